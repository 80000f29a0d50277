"""The forms by name, and how each is written to a file."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from recon.base.errors import ConfigError
from recon.base.storage import write_private
from recon.base.text import did_you_mean
from recon.model import RunResult
from recon.reports.run_results import write_text

# Name → the file's name, and what makes its text, which is imported when it is asked for. Parquet alone is no text.
_TEXTS: Mapping[str, tuple[str, str]] = {
    "markdown": ("report.md", "markdown:as_markdown"),
    "junit": ("junit.xml", "junit:as_junit"),
    "csv": ("findings.csv", "findings:as_csv"),
    "github": ("github.txt", "annotations:as_github"),
    "azure": ("azure.txt", "annotations:as_azure"),
}
_PARQUET = "parquet"
FORMS: Mapping[str, str] = {**{name: file for name, (file, _) in _TEXTS.items()}, _PARQUET: "findings.parquet"}


def text(run: RunResult, form: str, templates: Path | None = None) -> str:
    """A run in a form; `templates` is a folder of the user's, which only Markdown has.

    Raises:
        ConfigError: there is no such form, it is no text, or a template has a fault.
    """
    if form == _PARQUET:
        raise ConfigError("parquet is no text: name a file to write it to")
    _require(form)
    module, _, name = _TEXTS[form][1].partition(":")
    make: Any = getattr(import_module(f"recon.reports.forms.{module}"), name)
    made: str = make(run, templates) if form == "markdown" else make(run)
    return made


def write(run: RunResult, form: str, path: str | os.PathLike[str], templates: Path | None = None) -> Path:
    """Writes a run in a form, in one step; returns the file. `templates` is as for `text`.

    Raises:
        ConfigError: there is no such form, or a template has a fault.
    """
    _require(form)
    if form != _PARQUET:
        return write_text(text(run, form, templates), path)
    import pyarrow.parquet as pq

    from recon.reports.forms.findings import as_arrow

    content = io.BytesIO()
    pq.write_table(as_arrow(run), content)
    return write_private(Path(path), content.getvalue())


def _require(form: str) -> None:
    if form not in FORMS:
        raise ConfigError(f"there is no form {form!r}{did_you_mean(form, FORMS)}")
