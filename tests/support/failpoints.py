"""Failpoints that end a micro-batch as a killed process would, without ending the process."""

from __future__ import annotations

from recon.model import ReconStamp
from recon.write.sinks import Failpoint


def dies_at(name: str, *, sink: str | None = None, batch_id: int | None = None, times: int | None = None) -> Failpoint:
    """A failpoint that raises RuntimeError at one moment, of one sink and micro-batch where they are given.

    `times`: how often; the default is always.
    """
    died = 0

    def failpoint(point: str, stamp: ReconStamp) -> None:
        nonlocal died
        if point != name or sink not in (None, stamp.sink) or batch_id not in (None, stamp.batch_id):
            return
        if times is None or died < times:
            died += 1
            raise RuntimeError(f"died at {point}")

    return failpoint
