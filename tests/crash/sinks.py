"""What the crash kit needs to know of a sink kind: one entry of `ADAPTERS` each.

An adapter says how the sink stands in recon.yml, how its rows are read back without recon, what its label is, and which
seams of its own it has. Nothing else in the kit knows a kind by name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Where = tuple[int, int]  # partition, offset
State = dict[int, tuple[int, Where]]  # id → n, and the record it came from


@dataclass(frozen=True)
class World:
    """Where things are: what an adapter needs to write recon.yml and to read its sink."""

    folder: Path
    bootstrap: str


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One sink kind of the kit; `name` is pipeline and sink at once.

    `config`: the sink's mapping in recon.yml, without its name.
    `read`: its rows as they stand now, as dicts with id, n, op, _batch_id, _source_partition, _source_offset.
    `rewrites`: rows are replaced by key; then `deletes` says whether op "d" removes the key.
    `points`: seams of the sink itself, besides those of the hook.
    """

    name: str
    config: Callable[[World], Mapping[str, Any]]
    read: Callable[[World], list[dict[str, Any]]]
    label: str = "exactly-once"
    rewrites: bool = False
    deletes: bool = False
    points: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def rows(self, world: World) -> Counter[Where]:
        """(partition, offset) → how many rows carry it."""
        return Counter((row["_source_partition"], row["_source_offset"]) for row in self.read(world))

    def state(self, world: World) -> State:
        """The row that stands under each key."""
        found = self.read(world)
        state = {row["id"]: (row["n"], (row["_source_partition"], row["_source_offset"])) for row in found}
        assert len(state) == len(found), f"{self.name}: a key stands in two rows"
        return state


def parsed(frame: DataFrame) -> DataFrame:
    """The transform of every pipeline: the record's JSON as columns, its coordinates kept."""
    from pyspark.sql import functions as F

    fields = F.from_json(F.col("value").cast("string"), "id long, n long, op string").alias("r")
    source = ["_source_topic", "_source_partition", "_source_offset"]
    return frame.select(*source, fields).select("r.*", *source)


def record(number: int, keys: int, partitions: int) -> tuple[str, str, int]:
    """(key, value, partition) of the n-th record: a key always goes to the same partition, every 9th deletes."""
    key = number % keys
    value = {"id": key, "n": number, "op": "d" if number % 9 == 8 else "u"}
    return str(key), json.dumps(value), key % partitions


def expected(records: Mapping[Where, str], *, deletes: bool) -> State:
    """The state that a key's records leave, in plain Python: the last by offset wins."""
    state: State = {}
    for where, value in sorted(records.items()):
        fields = json.loads(value)
        if deletes and fields["op"] == "d":
            state.pop(fields["id"], None)
        else:
            state[fields["id"]] = (fields["n"], where)
    return state


# -- Delta -----------------------------------------------------------------------------------------


def _delta_rows(name: str) -> Callable[[World], list[dict[str, Any]]]:
    def read(world: World) -> list[dict[str, Any]]:
        from deltalake import DeltaTable

        return DeltaTable(str(world.folder / name)).to_pyarrow_table().to_pylist()

    return read


DELTA = Adapter(
    name="delta",
    config=lambda world: {"kind": "delta", "target": "delta"},
    read=_delta_rows("delta"),
    checks=("delta_history", "source_rows"),
)

ADAPTERS: dict[str, Adapter] = {adapter.name: adapter for adapter in (DELTA,)}
