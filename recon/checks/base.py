"""What a check is: it says what to measure or to compare and how to judge, and does neither itself.

Evidence checks judge witnesses (`EvidenceCheck.judge`), by values alone: nothing here, in `recon.checks.evidence` or in
`recon.judge` reads a file, asks a server or starts Spark. Data checks look at the rows of a table:
`recon.checks.data_check`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from recon.model import Verdict, Witnesses
from recon.model.positions import SourceKind

if TYPE_CHECKING:
    from recon.project import CheckConfig


_SET_BY_FIT = "recon_set_by_fit"


def set_by_fit() -> Any:
    """A dataclass field that `DataCheck.fit` sets, such as a column's type: None before; no argument of recon.yml."""
    return field(default=None, repr=False, compare=False, metadata={_SET_BY_FIT: True})


@dataclass(frozen=True, kw_only=True)
class Check(ABC):
    """Anything that gives a verdict; its dataclass fields are its arguments.

    `test` is its name in recon.yml, set by each class. `kind` is "evidence" or "data". `scope` says what one verdict
    is about: "pipeline", "sink", or "table" (a sink's rows). `named_after` are the arguments that its `label` shows.
    """

    test: ClassVar[str]
    kind: ClassVar[str]
    scope: ClassVar[str]
    named_after: ClassVar[Sequence[str]] = ()

    @classmethod
    def argument_fields(cls) -> dict[str, Field[Any]]:
        """The arguments by their names in recon.yml; a field `columns_` is the argument `columns`."""
        return {f.name.rstrip("_"): f for f in fields(cls) if f.init and not f.metadata.get(_SET_BY_FIT)}

    def values_of(self, arguments: Iterable[str]) -> tuple[Any, ...]:
        """The values of these fields, those of a list one by one; None is left out."""
        values: list[Any] = []
        for name in arguments:
            value = getattr(self, name)
            values += value if isinstance(value, (list, tuple)) else () if value is None else (value,)
        return tuple(values)

    def label(self) -> str:
        """The part of the check's name that its arguments add, like dbt's; `""` for none."""
        return "__".join(map(yaml_text, self.values_of(self.named_after)))

    @classmethod
    def variants(cls, arguments: Mapping[str, Any], folder: Path) -> Iterable[Mapping[str, Any]]:
        """The arguments of each check that one item of `data_tests` stands for: itself, or a whole suite.

        `folder` is recon.yml's; a file that an argument names is relative to it.

        Raises:
            ConfigError: what the arguments name cannot be read.
        """
        return (arguments,)

    def hide(self, text: str) -> str:
        """A message of the check without its secrets, such as a value from the environment."""
        return text

    def settled(self, config: CheckConfig) -> CheckConfig:
        """The config it runs with: the given one, completed by what the check itself brings along."""
        return config


def yaml_text(value: Any) -> str:
    """A plain value as YAML writes it.

    >>> yaml_text(True), yaml_text(1.5), yaml_text("new")
    ('true', '1.5', 'new')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class EvidenceCheck(Check):
    """Judges witnesses. `needs` names the fields of `Witnesses` it cannot do without.

    `scope` is "pipeline" (judged once) or "sink" (judged once per sink). Where a witness in `needs` is Unavailable, the
    runner does not call `judge`. It gives status error, or skipped when the user chose to skip the witness. `uses`
    names further witnesses that `judge` reads and can do without. All others are Unavailable to it. What costs more is
    read while it judges, and only where a question is left: by `Witnesses.with_rows` (`reads_rows` says that it may),
    `with_commit_rows` and `with_answers`. `about` is the kind of source that it judges, None where it judges streams of
    every kind.

    Cost:
        no Spark job.
    """

    needs: ClassVar[Sequence[str]] = ("ledgers",)
    uses: ClassVar[Sequence[str]] = ()
    about: ClassVar[SourceKind | None] = None
    reads_rows: ClassVar[bool] = False
    kind: ClassVar[str] = "evidence"
    scope: ClassVar[str] = "pipeline"

    @abstractmethod
    def judge(self, witnesses: Witnesses) -> Verdict:
        """The verdict. Pure, but for what it asks the witnesses for: no I/O, no clock."""
