"""A finished run as `recon.run_audit` returns it: with the forms in which a program or a notebook uses it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from typing_extensions import override

from recon.base.errors import ConfigError
from recon.base.text import plural
from recon.model import RunResult
from recon.reports import pages

if TYPE_CHECKING:
    import pandas as pd

F = TypeVar("F", bound=Callable[..., Any])


def _not_for_templates(method: F) -> F:
    """Marks a method that the sandbox of the user's templates refuses to call."""
    method.unsafe_callable = True  # type: ignore[attr-defined]
    return method


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AuditRun(RunResult):
    """One audit: `pipelines` have the answers, `results` the checks.

    It shows itself as a table in a notebook; `exit_code` is what `recon audit` would end with.
    """

    @classmethod
    def of(cls, run: RunResult) -> Self:
        """The same run."""
        return cls(**{field.name: getattr(run, field.name) for field in fields(run)})

    def to_dict(self) -> dict[str, Any]:
        """The content of run_results.json, as plain JSON values."""
        from recon.reports import run_results

        return run_results.as_dict(self)

    def to_pandas(self) -> pd.DataFrame:
        """A row per finding, and one per check that failed without any; columns as in `findings.csv`.

        Offsets and counts are Int64, with NA where a finding has none.
        """
        import pandas as pd

        from recon.reports.forms.findings import as_arrow

        frame: pd.DataFrame = as_arrow(self).to_pandas(types_mapper={_int64(): pd.Int64Dtype()}.get)
        return frame

    @_not_for_templates
    def write(self, folder: str | os.PathLike[str], *, templates: str | os.PathLike[str] | None = None) -> Path:
        """Writes run_results.json and report.html into a folder, which is made; returns the folder.

        Args:
            folder: where to write them.
            templates: a folder of report templates of yours (docs/report_templates.md).

        Raises:
            ConfigError: a template has a fault; run_results.json is written, and no report. Or the folder is none
                that can be written.
        """
        from recon.reports import html, run_results

        if not isinstance(folder, (str, os.PathLike)):
            raise ConfigError(f"folder is {folder!r}; give a path")
        folder = Path(folder)
        try:
            run_results.write(self, folder / "run_results.json")
            html.write(self, folder / "report.html", templates=None if templates is None else Path(templates))
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"{folder} cannot be written: {reason}; choose another folder") from error
        return folder

    @override
    def __repr__(self) -> str:
        answers = "; ".join(f"{facts.name}: {facts.says}" for facts in self.pipelines)
        counts = ", ".join(f"{count} {status}" for status, count in self.counts().items() if count)
        checks = f"{plural(len(self.results), 'check')}: {counts or 'none'}"
        return f"<AuditRun {self.project}: {'; '.join(part for part in (answers, checks) if part)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return pages.fragment("notebook.html.j2", run=self)


def _int64() -> Any:
    import pyarrow as pa

    return pa.int64()
