"""Runs a job that is killed at an exact point: after a micro-batch's Delta commit, before its ledger entry.

    python -m recon.local.demo.crash SCRIPT BATCH_ID

SIGKILL ends the whole process group, Python and the JVM, as when a container is killed; nothing is cleaned up, flushed
or closed. The demo starts this in a group of its own.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from functools import partial

import recon
from recon.model import ReconStamp
from recon.write.sinks.failpoints import BEFORE_LEDGER


def run(script: str, batch_id: int) -> None:
    """Run the script as `python script` would, until this micro-batch is committed to Delta.

    Raises:
        RuntimeError: this process does not lead its group, so that killing the group would hit others.
    """
    if os.getpgrp() != os.getpid():
        raise RuntimeError("recon.local.demo.crash must lead its own process group: start it in a new session")

    def crash(point: str, stamp: ReconStamp) -> None:
        if point == BEFORE_LEDGER and stamp.batch_id == batch_id:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    recon.foreach_batch = partial(recon.foreach_batch, failpoint=crash)  # what the script calls
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
