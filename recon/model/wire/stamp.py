"""The stamp of a data commit (a Delta commit's userMetadata, for example), and the canonical text of offset ranges.

The ledger's hashes cover the text, and the stamp of a commit has it, so that the two are compared as strings. It is
`[[source,"topic","topic_id",[partitions],[starts],[ends]],…]`, without spaces, sorted by (source, topic, topic_id,
partition).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import groupby

from recon.base.errors import EvidenceError
from recon.model.evidence import ReconStamp
from recon.model.offsets import OffsetSpan
from recon.model.wire.values import checked, loads, optional, text, whole

_OPENING = '{"recon":1,'
_HEAD = ("pipeline", "sink", "epoch", "batch_id", "query_id", "run_id", "prev_hash")
_COUNTS = ("number", "given", "taken", "removed", "held", "read", "filtered")
_TEXTS = ("by", "reason", "files_digest")
_OFFSETS = ',"offsets":'


def sort_key(span: OffsetSpan) -> tuple[int, str, str, int]:
    """The canonical order of ranges: source, topic, topic id, partition."""
    return (span.source, span.topic, span.topic_id or "", span.partition)


def offsets_text(offsets: Iterable[OffsetSpan]) -> str:
    """The canonical text of ranges.

    >>> offsets_text([OffsetSpan("orders", None, 1, 5, 9), OffsetSpan("orders", None, 0, 0, 7)])
    '[[0,"orders",null,[0,1],[0,5],[7,9]]]'
    """
    groups = []
    ordered = sorted(offsets, key=sort_key)
    for (source, topic, topic_id), members in groupby(ordered, key=lambda o: (o.source, o.topic, o.topic_id)):
        rows = list(members)
        columns = ([r.partition for r in rows], [r.start_offset for r in rows], [r.end_offset for r in rows])
        groups.append([source, topic, topic_id, *columns])
    return json.dumps(groups, separators=(",", ":"), ensure_ascii=False)


def parse_offsets(canonical: str) -> tuple[OffsetSpan, ...]:
    """The ranges of a canonical text.

    Raises:
        EvidenceError: the text is not of that form.
    """
    try:
        return tuple(
            OffsetSpan(text(topic), optional(text, topic_id), *map(whole, (partition, start, end, source)))
            for source, topic, topic_id, partitions, starts, ends in loads(canonical)
            for partition, start, end in zip(partitions, starts, ends, strict=True)
        )
    except (ValueError, TypeError) as error:
        raise EvidenceError(
            f"offset ranges are not in recon's canonical form: {canonical[:120]!r} ({error})"
        ) from error


def dump_stamp(stamp: ReconStamp) -> str:
    """The stamp as text: compact JSON with the ranges last."""
    head = {name: getattr(stamp, name) for name in _HEAD}
    known = {name: value for name in (*_COUNTS, *_TEXTS) if (value := getattr(stamp, name)) is not None}
    text = json.dumps({"recon": 1, **head, **known}, separators=(",", ":"), ensure_ascii=False)
    return f"{text[:-1]}{_OFFSETS}{stamp.offsets_text}}}"


def parse_stamp(user_metadata: str | None) -> ReconStamp | None:
    """The stamp in a commit's userMetadata; None for a text that another writer put there.

    The ranges stay text: a day of commits is compared without parsing them.

    Raises:
        EvidenceError: it starts like a stamp and is torn.
    """
    if not user_metadata or not user_metadata.startswith(_OPENING):
        return None
    head, separator, offsets = user_metadata.partition(_OFFSETS)
    try:
        fields = loads(head + "}")
        if not separator or fields.pop("recon") != 1:
            raise ValueError("no offsets")
        if not offsets.endswith("}"):
            raise ValueError("it does not end")
        return checked(ReconStamp(**fields, offsets_text=offsets[:-1]))
    except (ValueError, TypeError, KeyError) as error:
        raise EvidenceError(f"userMetadata starts like recon's stamp and is torn: {user_metadata[:120]!r}") from error


def reads_any_of(text: str, topics: Collection[str]) -> bool:
    """Whether ranges in canonical text are of one of these topics; without parsing them.

    >>> reads_any_of('[[0,"orders",null,[0],[0],[9]]]', ["orders"])
    True
    """
    return any(f",{json.dumps(topic, ensure_ascii=False)}," in text for topic in topics)


def same_ranges(first: str, second: str) -> bool:
    """Whether two canonical texts hold the same ranges; a topic id that one of them lacks counts as equal.

    The broker may have been reachable on a replay and not on the first attempt, or the other way round.
    """
    try:
        mine, theirs = ({(s.source, s.topic, *s[2:5]): s.topic_id for s in parse_offsets(t)} for t in (first, second))
    except EvidenceError:
        return False
    return mine.keys() == theirs.keys() and all(
        topic_id == theirs[span] or None in (topic_id, theirs[span]) for span, topic_id in mine.items()
    )
