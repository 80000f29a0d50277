"""Test a check of your own: evaluate it on a DataFrame or on witnesses, without a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from recon.base.clock import utc_now
from recon.base.errors import ConfigError
from recon.base.text import did_you_mean
from recon.checks.base import Check, EvidenceCheck
from recon.checks.bound import Bound
from recon.checks.data_check import DataCheck
from recon.checks.engine import runner
from recon.checks.engine.context import ScanContext
from recon.checks.engine.reading import Reading
from recon.model import CheckResult, Witnesses
from recon.project import CheckConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def evaluate(
    check: Check,
    on: DataFrame | Witnesses,
    *,
    tables: Mapping[str, DataFrame] | None = None,
    history: Sequence[Any] = (),
    **config: Any,
) -> CheckResult:
    """The result that an audit would give for this check.

    Args:
        check: the check with its arguments, such as `WithinCredit(column_name="amount")`.
        on: the table's rows for a check of rows; for an evidence check the witnesses, made by
            `recon.testing.witnesses`.
        tables: the other tables that the check opens, by reference, such as `ref('customers')`.
        history: the values that earlier runs kept for a check that `remembers`, newest first.
        config: the check's `config` of recon.yml, such as `where`, `severity` or `limit`; here `samples` is `full` by
            default.

    Raises:
        ConfigError: `on` is not what this kind of check judges.
    """
    settings = check.settled(CheckConfig(**{"samples": "full", **config}))
    bound = Bound(
        check=check,
        config=settings,
        unique_id=f"test.{check.test}",
        name=check.test,
        pipeline=on.pipeline if isinstance(on, Witnesses) else "pipeline",
        column=getattr(check, "column_name", None),
    )
    if isinstance(check, EvidenceCheck) and isinstance(on, Witnesses):
        reading = Reading(lambda: on.rows, lambda versions: on.commit_rows, lambda questions: on.probes)
        (result,) = runner.run_evidence([bound], lambda _: replace(on, reader=reading), utc_now)
    elif isinstance(check, DataCheck) and not isinstance(on, Witnesses):
        context = ScanContext(tables=_Tables(tables or {}), history=lambda _, __: history)
        (result,) = runner.run_table([bound], on, "the table", utc_now, context)
    else:
        needed = "witnesses" if isinstance(check, EvidenceCheck) else "a DataFrame"
        raise ConfigError(f"check {check.test} judges {needed}, and was given {type(on).__name__}")
    return result


@dataclass(frozen=True)
class _Tables:
    """The tables given to `evaluate`."""

    frames: Mapping[str, DataFrame] = field(default_factory=dict)

    def open(self, reference: str) -> DataFrame:
        if reference not in self.frames:
            raise ConfigError(f"no table {reference} was given to evaluate{did_you_mean(reference, self.frames)}")
        return self.frames[reference]
