"""Appends of many streams to one ledger at the same instant, as an aligned trigger makes them.

Twelve processes, each a stream of 200 partitions with a chain of its own, wait for each other before every append:
2,004 appends after the first two of each. Ours: the 99th percentile of `Ledger.append` with one ledger. Floor: the
same processes, each with a ledger of its own, so that no commit meets another. No append may fail.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

STREAMS = 12
ROUNDS = 169
WARM_UP = 2
PARTITIONS = 200


def run() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        alone = _appends([f"{folder}/{stream}" for stream in range(STREAMS)])
        together = _appends([f"{folder}/shared"] * STREAMS)
    floor, ours = _p99(alone), _p99(together)
    print(f"median {statistics.median(together):.3f} s, longest {max(together):.3f} s of {len(together):,} appends")
    return {"name": "ledger_contention", "ours": ours, "floor": floor, "ratio": ours / floor, "unit": "s", "peers": {}}


def _p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


def _appends(ledgers: list[str]) -> list[float]:
    """Seconds of every append, by one process per ledger named."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(len(ledgers), context) as pool:
        barrier = manager.Barrier(len(ledgers))
        streams = [pool.submit(_stream, n, ledger, barrier) for n, ledger in enumerate(ledgers)]
        return [seconds for stream in streams for seconds in stream.result()]


def _stream(number: int, location: str, barrier: Any) -> list[float]:
    """Seconds of each append of one stream; an append that fails ends all streams."""
    from recon.write.ledger import open_ledger
    from tests.support.ledger_entries import project

    ledger = open_ledger(project(Path(location), location=location))
    seconds: list[float] = []
    try:
        for batch_id in range(ROUNDS):
            entry = _entry(f"stream_{number}", batch_id)
            barrier.wait(600)
            began = time.perf_counter()
            ledger.append(entry)
            seconds.append(time.perf_counter() - began)
    except BaseException:
        barrier.abort()
        raise
    return seconds[WARM_UP:]


def _entry(pipeline: str, batch_id: int) -> Any:
    from recon.model.offsets import OffsetSpan
    from tests.support.ledger_entries import entry

    now, width = datetime.now(UTC), 1250
    offsets = tuple(
        OffsetSpan("orders", "AAAAAAAAAAAAAAAAAAAAAA", p, batch_id * width, (batch_id + 1) * width)
        for p in range(PARTITIONS)
    )
    return entry(batch_id, at=now, pipeline=pipeline, sink="lake", offsets=offsets)
