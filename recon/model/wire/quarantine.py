"""The userMetadata of the commits that releases, and `recon forget`, make in a quarantine table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_CLAIM, _CLOSED, _RETURNED, _ERASED = "recon_claim", "recon_closed", "recon_given_back", "recon_erased"
_DECISION = ("by", "reason")  # earlier versions do not have them


@dataclass(frozen=True, kw_only=True)
class ClaimNote:
    """What a claim says of its release: a token of its own, and how the rows are repaired.

    `expressions` are SQL by column; `function` is True where a Python function repairs, which cannot be stored.
    `force` writes rows that still fail their checks. `by` and `reason` are who releases, and why. None and False where
    the commit is gone from the log.
    """

    token: str | None = None
    expressions: Mapping[str, str] | None = None
    function: bool = False
    force: bool = False
    by: str | None = None
    reason: str | None = None


def dump_claim(claim: ClaimNote) -> str:
    """The userMetadata of the commit that claims rows in the quarantine table."""
    said = {name: value for name, value in asdict(claim).items() if value is not None or name not in _DECISION}
    return json.dumps({_CLAIM: 1, **said})


def parse_claim(user_metadata: str | None) -> ClaimNote:
    """The claim of a commit; the defaults where it has none."""
    fields = _fields(user_metadata)
    return ClaimNote(**{name: fields[name] for name in ClaimNote.__dataclass_fields__ if name in fields})


def dump_closed(number: int) -> str:
    """The userMetadata of the empty commit that takes a release's txn, so that Delta skips a later write of it."""
    return json.dumps({_CLOSED: number})


def dump_returned(number: int) -> str:
    """The userMetadata of the commit that lets the rows of a release wait in the quarantine table again."""
    return json.dumps({_RETURNED: number})


def parse_returned(user_metadata: str | None) -> int | None:
    """The number of the release whose rows a commit returned to the quarantine table; None for other commits."""
    return _number(user_metadata, _RETURNED)


def dump_erased(number: int) -> str:
    """The userMetadata of a commit that removes values from quarantined rows, for the erasure of this number."""
    return json.dumps({_ERASED: number})


def parse_erased(user_metadata: str | None) -> int | None:
    """The number of the erasure that a commit carries out; None for other commits."""
    return _number(user_metadata, _ERASED)


def _number(user_metadata: str | None, name: str) -> int | None:
    if not user_metadata or name not in user_metadata:  # most commits carry a long stamp: do not parse it
        return None
    number = _fields(user_metadata).get(name)
    return number if isinstance(number, int) else None


def _fields(user_metadata: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(user_metadata or "{}")
    except ValueError:  # another writer's text
        return {}
    return fields if isinstance(fields, dict) else {}
