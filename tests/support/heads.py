"""A ledger whose heads are signed, for tests."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from recon.model import LedgerEntry
from recon.project import DeltaSink, LedgerConfig, Pipeline, Project
from recon.project.heads import Heads
from recon.write.ledger import Ledger, columns, open_ledger
from recon.write.ledger.chain import link
from recon.write.ledger.heads import signing
from recon.write.ledger.heads.documents import Document
from recon.write.ledger.heads.places import publish
from tests.support.ledger_entries import entry

SEED = base64.b64encode(bytes(range(32))).decode()
OTHER_SEED = base64.b64encode(bytes(range(1, 33))).decode()
NOW = datetime(2026, 11, 23, 17, 0, tzinfo=UTC)


def signing_project(folder: Path, *sinks: str, key: str | None = SEED, **heads: Any) -> Project:
    """A project with heads, published in the folder `outside` by default."""
    heads = {"origin": "example.org/lake", "publish": [{"folder": str(folder / "outside")}], **heads}
    return Project(
        name="lake",
        ledger=LedgerConfig(location="_recon"),
        heads=Heads.model_validate({**heads, **({} if key is None else {"key": key})}),
        pipelines=(
            Pipeline(
                name="orders",
                checkpoint="cp",
                sinks=tuple(DeltaSink(name=name, target=name) for name in sinks or ("orders",)),
            ),
        ),
        project_dir=folder,
    )


def grow(project: Project, count: int, sink: str = "orders") -> Ledger:
    """Appends entries to a chain."""
    ledger = open_ledger(project)
    begin = ledger.end("orders", sink)
    for number in range(begin, begin + count):
        ledger.append(entry(number, sink=sink))
    return ledger


def publish_heads(project: Project, at: datetime = NOW) -> Document:
    """Signs and publishes, as an audit does."""
    done = signing.sign(project, open_ledger(project), at)
    assert done.document is not None and not done.contradictions and not done.notes, done
    published, failed = publish(project, done.document)
    assert published and not failed, failed
    return done.document


def rewrite(project: Project, changed: list[LedgerEntry]) -> None:
    """Writes the ledger's table anew with these entries, as they are."""
    ledger = open_ledger(project)
    write_deltalake(ledger.location, _table(changed), mode="overwrite")


def _table(entries: list[LedgerEntry]) -> pa.Table:
    return columns.to_table(entries)


def linked(entries: list[LedgerEntry]) -> list[LedgerEntry]:
    """Entries numbered, chained and sealed anew: what one can do who can write the whole ledger."""
    from dataclasses import replace

    made: list[LedgerEntry] = []
    for number, original in enumerate(entries, 1):
        made.append(link(replace(original, sequence=number), made[-1].entry_hash if made else ""))
    return made


def files(folder: Path) -> Mapping[str, bytes]:
    """Every file below a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def versions(project: Project) -> int:
    """The version of the ledger's table."""
    return DeltaTable(open_ledger(project).location).version()
