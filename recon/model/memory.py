"""What a check, or a part of the judge, remembers of a sink from audit to audit; all is in `recon.judge.memories`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from recon.model.evidence import Witnesses
from recon.model.ledger import EntryHead, LedgerSlice
from recon.model.proof import CoveredRanges, SinkProof
from recon.model.result import CheckResult


@dataclass(frozen=True, kw_only=True)
class SinkAudit:
    """What an audit of one sink saw and found, as it ends.

    `before` is the state that it went on from, and `results` are those of the pipeline's checks that look at the sink.
    No later audit judges the `settled` entries again. `coverage` has every offset that the entries up to them account
    for, `read` every offset of any judged entry.
    """

    before: SinkProof | None
    ledger: LedgerSlice
    witnesses: Witnesses
    results: Sequence[CheckResult]
    settled: Sequence[EntryHead] = ()
    coverage: Sequence[CoveredRanges] = ()
    read: Sequence[CoveredRanges] = ()


@dataclass(frozen=True, kw_only=True)
class SinkMemory:
    """What is remembered of a sink; its fields are stored, under `name`, in the state of the sink's proof.

    `format` is the version of the fields: a state with a later one is refused. `of_any_audit` is whether an audit that
    could not evaluate every check adds to it.
    """

    name: ClassVar[str]
    format: ClassVar[int] = 1
    of_any_audit: ClassVar[bool] = False

    @classmethod
    def after(cls, before: Self | None, audit: SinkAudit) -> Self | None:
        """What is remembered after an audit, where `before` was remembered until then; None for nothing."""
        raise NotImplementedError

    @classmethod
    def upgraded(cls, fields: Any, version: int) -> Any:
        """The stored fields of an earlier version as those of this one."""
        return fields
