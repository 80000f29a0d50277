"""The state store: on the heap, or in RocksDB where the state is too large for the heap."""

from __future__ import annotations

from functools import partial
from statistics import median

from recon.base.trend import quantile
from recon.write.streams.facts import Advice, Facts, unknown
from recon.write.streams.units import size

_ROCKSDB_FROM = 256 << 20  # bytes of state on the heap from which garbage collection pauses show
_SETTING = "spark.sql.streaming.stateStore.providerClass"


def state_store(facts: Facts) -> Advice:
    """Whether the state has grown too large for the heap and should move to RocksDB."""
    if not facts.batches:
        return unknown(facts, "no micro-batch is recorded", _SETTING)
    stateful = [b for b in facts.batches if b.state_bytes is not None]
    if not stateful:
        return Advice(
            decision="keep",
            recommendation="nothing to choose: the query keeps no state",
            because=f"none of {len(facts.batches)} micro-batches had a stateful operator",
        )
    sizes = [float(b.state_bytes or 0) for b in stateful]
    high, last = quantile(sizes, 0.95), stateful[-1]
    rows = last.state_rows
    advice = partial(
        Advice,
        because=(
            f"the state takes {size(median(sizes))} (median of {len(sizes)} micro-batches; 95th percentile "
            f"{size(high)}), {rows or 0:,} rows; on the heap, garbage collection pauses begin to show at "
            f"{size(_ROCKSDB_FROM)}"
        ),
        figures={"state_bytes_p95": high, "state_rows": rows, "rocksdb": last.rocksdb, "batches": len(stateful)},
    )
    if last.rocksdb:
        return advice(
            decision="keep", recommendation="RocksDB is in use, and right for a state of this size or one that grows"
        )
    if high < _ROCKSDB_FROM:
        return advice(decision="keep", recommendation="the state store on the heap is right for a state of this size")
    return advice(
        decision="change",
        recommendation=(
            "use the RocksDB state store, with changelog checkpointing; a new checkpoint is needed, as the provider of "
            "one cannot be changed"
        ),
        setting=_SETTING,
        value="org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
