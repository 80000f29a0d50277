"""`deletes` of a sink: how it is read, and what is refused with the line and the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon.base.errors import ConfigError
from recon.project import load

SINK = """\
version: 2
name: shop
ledger: _recon
pipelines:
  - name: orders
    checkpoint: cp
    source: {{{source}}}
    write: {write}
    sinks:
      - name: lake
        target: {target}
        kind: {kind}
        deletes: {deletes}{more}
"""


def labels(
    folder: Path,
    deletes: str,
    *,
    kind: str = "delta",
    target: str = "lake",
    more: str = "",
    write: str = "recon",
    source: str = "topics: [orders]",
) -> list[str]:
    text = SINK.format(deletes=deletes, kind=kind, target=target, write=write, source=source, more=f"\n        {more}")
    (folder / "recon.yml").write_text(text)
    return [declared.label for declared in load(folder).pipelines[0].sinks[0].declared_deletions]


def test_one_declaration_or_several(tmp_path: Path) -> None:
    one = "{by: {predicate: event_time}, older_than: {count: 30, period: day}}"
    assert labels(tmp_path, one) == ["by predicate event_time, older than 30 days"]
    two = "[{by: {predicate: [a, b], user: ada}, older_than: {count: 1, period: hour, column: at}}, {by: {job: erase}}]"
    assert labels(tmp_path, two) == ["by predicate a, b and user ada, older than 1 hour by at", "by job erase"]
    iceberg = {"kind": "iceberg", "target": "lake.sales.orders"}
    assert labels(tmp_path, "{by: {snapshot_property: {job: x}}}", **iceberg) == ["by snapshot property job x"]
    columns = "source_columns: {partition: p, offset: o}"
    assert labels(tmp_path, "{by: {job: x}}", write="native", more=columns) == ["by job x"]


@pytest.mark.parametrize(
    ("deletes", "why"),
    [
        ("{by: {predicate: a}}", "recon.yml:13: .* names a predicate alone"),
        ("{by: {}}", "recon.yml:13: .* names nobody"),
        ("{by: a}", "recon.yml:13: by .* must be a mapping"),
        ("{older_than: {count: 1, period: day}}", "recon.yml:13: missing key 'by'"),
        ("{by: {job: x}, older_than: {count: -3, period: day}}", "recon.yml:13: count .* must be at least 1, found -3"),
        ("{by: {job: x}, older_than: {count: 3, period: month}}", "recon.yml:13: period .* found 'month'"),
        ("{by: {jobs: x}}", "unknown key 'jobs' .* did you mean 'job'"),
        ("{by: {user_metadata: '*'}}", "which every commit has"),
        ("{by: {snapshot_property: {job: x}}}", "is not recorded by a commit of a Delta table"),
    ],
)
def test_what_is_refused(tmp_path: Path, deletes: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        labels(tmp_path, deletes)


@pytest.mark.parametrize(
    ("kind", "target", "more", "why"),
    [
        ("parquet", "lake", "", "a sink of kind parquet has no log that says who deleted rows"),
        ("custom", "lake", "write: jobs:write", "a sink of kind custom has no log"),
        ("delta_merge", "lake", "keys: [id]", "rows of a sink of kind delta_merge are replaced by later ones"),
        ("delta", "lake", "stamp_source_offsets: false", "no row says which record it was made of"),
        ("iceberg", "lake.sales.orders", "", "is not recorded by an Iceberg snapshot"),
    ],
)
def test_sinks_that_cannot_tell(tmp_path: Path, kind: str, target: str, more: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"recon.yml:13: .*{why}"):
        labels(tmp_path, "{by: {job: x}}", kind=kind, target=target, more=more)


def test_pipelines_whose_rows_do_not_tell(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names no source_columns"):
        labels(tmp_path, "{by: {job: x}}", write="native")
    with pytest.raises(ConfigError, match="carry no offsets"):
        labels(tmp_path, "{by: {job: x}}", source="delta: lake/raw")
