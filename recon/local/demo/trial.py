"""`recon try`: an audit of recorded streams, without Java, a broker or a network.

The recording (recording.zip, made by scripts/record_try.py) has checkpoints, Delta tables with their data files, the
ledger, and what Kafka said when the streams had ended. The audit is the one of `recon audit`: nothing of its findings
is recorded. It judges as of the time of the recording, so that no age grows with the age of the wheel.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from datetime import datetime
from importlib import resources
from pathlib import Path

from recon.audits.options import Options
from recon.audits.run import audit
from recon.base.errors import ConfigError
from recon.local.demo.folder import TRY_MARKER, empty, require_ours
from recon.local.demo.recorded import KAFKA, RecordedSources
from recon.model import CheckResult, RunResult
from recon.project import load

_MARKER_TEXT = "Made by `recon try`, which may replace everything in this folder.\n"


def unpack(folder: Path) -> datetime:
    """Copies the recording into a folder, in place of one of an earlier `recon try`; returns when it was recorded.

    Raises:
        ConfigError: the folder has files of another origin, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        require_ours(folder, TRY_MARKER, "recon try")
        (folder / TRY_MARKER).write_text(_MARKER_TEXT, encoding="utf-8")
        empty(folder)
        with (
            (resources.files("recon.local.demo") / "recording.zip").open("rb") as packed,
            zipfile.ZipFile(packed) as recording,
        ):
            recording.extractall(folder)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be used for recon try: {error.strerror or error}; choose another with --dir"
        ) from error
    return datetime.fromisoformat(json.loads((folder / KAFKA).read_text(encoding="utf-8"))["read_at"])


def audited(
    folder: Path, recorded_at: datetime, on_result: Callable[[int, int, CheckResult], None] | None = None
) -> RunResult:
    """Audits an unpacked recording; `on_result` is called as by `recon.run_audit`."""
    options = Options(no_spark=True, sources=RecordedSources, now=recorded_at, on_result=on_result)
    return audit(load(folder), options)
