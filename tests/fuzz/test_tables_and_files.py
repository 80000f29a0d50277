"""Damaged rows of the ledger and of its results, run_results.json and recon.yml: a result, or one sentence."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from recon.audits import retry
from recon.base.errors import ReconError
from recon.checks.binding import bind
from recon.project import load
from recon.reports import html, run_results
from recon.write.ledger.ledger import Ledger
from recon.write.ledger.store import Store
from tests.fuzz.lakes import Lake, remembered
from tests.fuzz.mutations import STRANGE, damaged
from tests.fuzz.test_witness_files import CHUNK, MUTATIONS, TRANSACTIONS, whole_world
from tests.support.sample_run import sample_run
from tests.truth.memory import MemoryStore, memory_ledger

RECON_YML = """\
version: 2
name: lake
ledger: lake/_recon
kafka: {bootstrap.servers: "{{ env_var('RECON_FUZZ', 'localhost:9092') }}"}
pipelines:
  - name: orders
    checkpoint: checkpoints/orders
    source: {topics: [orders], isolation_level: read_committed}
    data_tests:
      - offset_continuity
      - kafka_end_offsets: {arguments: {warn_after: {count: 5, period: minute}}, config: {severity: warn}}
    sinks:
      - name: orders
        kind: delta
        target: lake/orders
        data_tests: [delta_history, {unique_combination_of_columns: {arguments: {combination_of_columns: [a, b]}}}]
        columns:
          - name: status
            data_tests: [not_null, {accepted_values: {arguments: {values: [new, 2026-11-01, 0x10]}}}]
"""


def _copied(store: Store, rows: list[dict[str, Any]]) -> MemoryStore:
    assert isinstance(store, MemoryStore)
    fresh = memory_ledger()
    copy = {"ledger": fresh.store, "results": fresh.results, "proof": fresh.proofs.store}[store.kind]
    assert isinstance(copy, MemoryStore)
    copy.parts, copy.lengths, copy.history = (
        [pa.Table.from_pylist(rows, schema=store.schema)],
        store.lengths,
        store.history,
    )
    return copy


def _row_damaged(rows: list[dict[str, Any]], random: Random) -> list[dict[str, Any]]:
    """The rows with one of them gone, twice, or with another value."""
    changed = [dict(row) for row in rows]
    at = random.randrange(len(changed))
    kind = random.random()
    if kind < 0.1:
        del changed[at]
    elif kind < 0.2:
        changed.append(changed[at])
    else:
        name = random.choice(sorted(changed[at].keys() - {"date"}))  # the name of a folder, made from a time
        value = changed[at][name]
        if isinstance(value, str) and value.startswith(("{", "[")):
            changed[at][name] = damaged(value.encode(), random).decode(errors="replace")
        elif isinstance(value, list) and value and random.random() < 0.7:
            span = dict(random.choice(value))
            span[random.choice(sorted(span))] = random.choice([None, -1, 2**31 - 1, "x"])
            changed[at][name] = [span, *value[1:]]
        else:
            changed[at][name] = random.choice([None, random.choice(STRANGE), -1, 2**62, f"{value}x"])
    return changed


@pytest.mark.parametrize("first", range(0, MUTATIONS, CHUNK))
@pytest.mark.parametrize("table", ["ledger", "results", "proof"])
def test_a_damaged_row(table: str, first: int, tmp_path: Path) -> None:
    """An edited entry, or state of the proof, is never part of "complete"; an earlier result that cannot be read is no
    proof.
    """
    world = whole_world(TRANSACTIONS[first // CHUNK % 2])
    lake = Lake(world, tmp_path)
    remembered(world, lake)
    fresh = memory_ledger().proofs.store if table == "ledger" else world.ledger.proofs.store
    stores = {"ledger": world.ledger.store, "results": world.ledger.results, "proof": fresh}
    store = stores[table]
    assert isinstance(store, MemoryStore)
    rows = pa.concat_tables(store.parts).to_pylist()
    whole = pa.Table.from_pylist(rows, schema=store.schema)
    assert lake.answer() == "complete"
    for seed in range(first, first + CHUNK):
        changed = _row_damaged(rows, Random(seed))
        try:
            copy = _copied(store, changed)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue  # the table's own schema refuses it
        # A copy of an entry says nothing new; an entry that is gone or edited does.
        same = all(row in rows for row in changed) and all(row in changed for row in rows)
        same = same or copy.parts[0].equals(whole)  # 1.5 in a column of whole numbers is 1
        tables = {**stores, table: copy}
        ledger = Ledger(tables["ledger"], tables["results"], tables["proof"])
        try:
            answer = lake.answer(ledger)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {_difference(rows, changed)}") from error
        if table != "results":
            assert same or answer != "complete", f"seed {seed}: {_difference(rows, changed)}"


def _difference(rows: list[dict[str, Any]], changed: list[dict[str, Any]]) -> Any:
    if len(rows) != len(changed):
        return f"{len(rows)} rows, {len(changed)} after"
    return [
        (a, b)
        for row, new in zip(rows, changed, strict=True)
        for a, b in zip(row.items(), new.items(), strict=True)
        if a != b
    ]


@pytest.mark.parametrize("first", range(0, MUTATIONS, CHUNK))
def test_a_damaged_run_results(first: int, tmp_path: Path) -> None:
    file = tmp_path / "run_results.json"
    run_results.write(sample_run(), file)
    content = file.read_bytes()
    for seed in range(first, first + CHUNK):
        file.write_bytes(damaged(content, Random(seed)))
        try:
            run = run_results.read(file)
            retry.options_of(run)
            if seed % 10 == 0:
                html.render(run)
        except ReconError as error:
            assert "\n" not in str(error), seed
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize("first", range(0, MUTATIONS, CHUNK))
def test_a_damaged_recon_yml(first: int, tmp_path: Path) -> None:
    file = tmp_path / "recon.yml"
    for seed in range(first, first + CHUNK):
        random = Random(seed)
        new = damaged(RECON_YML.encode(), random)
        if random.random() < 0.5:  # another value behind a key
            lines = RECON_YML.split("\n")
            at = random.choice([at for at, line in enumerate(lines) if ":" in line])
            lines[at] = f"{lines[at].partition(':')[0]}: {random.choice(STRANGE)!r}"
            new = "\n".join(lines).encode()
        file.write_bytes(new)
        try:
            bind(load(tmp_path))
        except ReconError as error:
            assert "\n" not in str(error).strip(), (seed, str(error))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {new!r}") from error
