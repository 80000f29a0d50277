"""What a repair can do for a sink, from its keys in recon.yml alone. No I/O.

Where rows are appended, an offset without a row is missing, and the rows say so. Where later rows replace earlier ones,
rows say nothing: there the sink's own record says which offsets were read. A record that is read late must not replace
the row of a later one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

READ_ONCE_MORE = (
    "read the ranges once more through the hook, with a checkpoint of its own, the startingOffsets listed here and "
    "on_new_epoch: warn"
)
_REMOVE_BY_HAND = "remove all but one row of each doubled offset by hand, then accept the finding"
_REPLACED = (
    "rows of this sink are replaced by later ones, so which of these offsets was lost is not known: look the keys up "
    "in Kafka, correct the rows, then accept the finding"
)
_ONE_ROW = (
    "the sink has one row of a key however often a record is merged, so there is no row to remove: where newer_wins or "
    "the order of the offsets decided, the rows are right; accept the finding"
)
# Keys by which what becomes of a record depends on more than the record and the offset of the row that is there.
_WHY = {
    "delete_when": "a deleted key leaves no trace in the table, so a record from before its deletion would be "
    "inserted again",
    "insert_when": "what becomes of a record depends on the row that is there when it comes",
    "update_when": "what becomes of a record depends on the row that is there when it comes",
    "update": "of the other columns a row keeps the values of the record that came first",
    "order_by": "it ranks rows within a micro-batch alone, and between two the later one wins",
}


@dataclass(frozen=True, kw_only=True)
class RepairAbility:
    """What a repair can do for a sink; each text is the reason why it cannot, "" where it can.

    Attributes:
        refused: why it does nothing at all.
        by_hand: what to do about missing offsets then; "" where `refused` says it.
        only_unread: why offsets that a micro-batch read, and that have no row, are not read again.
        no_removal: why no doubled rows are removed.
        reads: what else there is to know of offsets that are read again, as the end of a sentence.
    """

    refused: str = ""
    by_hand: str = ""
    only_unread: str = ""
    no_removal: str = ""
    reads: str = ""

    def refusal(self, actions: Collection[str]) -> str:
        """Why it does nothing at all, and what to do instead of these actions of a plan; "" where it does something.

        Who reads offsets again because their rows are doubled has them three times.
        """
        steps = {"read": self.by_hand, "remove": _REMOVE_BY_HAND} if self.by_hand else {}
        asked = [step for action, step in steps.items() if action in actions]
        return ": ".join([self.refused, "; ".join(asked)] if asked else [self.refused]) if self.refused else ""


def without_record(key: str, who: str = "nothing records") -> RepairAbility:
    """That of a sink whose `key` means that nothing records its writes."""
    return RepairAbility(
        refused=f"it has {key}, so {who} its writes, and a repair that is interrupted could not tell what it wrote",
        by_hand=READ_ONCE_MORE,
    )


def of_replaced_rows(decided_by: str | None) -> RepairAbility:
    """That of a sink with one row per key; `decided_by` is its key by which the late record may win, if any."""
    refused = (
        ""
        if decided_by is None
        else (
            f"it has {decided_by}: {_WHY[decided_by]}, so a repair could put an older record in place of a newer row: "
            "compare the keys of these offsets with the table, correct the rows, then accept the finding"
        )
    )
    return RepairAbility(refused=refused, only_unread=_REPLACED, no_removal=_ONE_ROW)
