"""What this tree's judge says otherwise of audits that tests recorded (tests/support/recorded.py).

    RECON_RECORD=build/recorded .venv/bin/pytest tests/cases     # before a change: an hour of real parts
    python -m scripts.recorded build/recorded                    # after it: a minute, without a JVM

It names each test, the check and both answers; the exit code is 1 where one differs.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from tests.support.recorded import Said, recordings


def _difference(before: Said, now: Said) -> str:
    return "; ".join(f"{what}: {_only(before[what], now[what])}" for what in before if before[what] != now[what])


def _only(before: Any, now: Any) -> str:
    """Both values; of two lists what only one of them has."""
    if isinstance(before, list) and isinstance(now, list):
        return f"only before {[e for e in before if e not in now]}, only now {[e for e in now if e not in before]}"
    return f"{before} before, {now} now"


def main() -> int:
    """Print the differences."""
    parser = argparse.ArgumentParser(prog="python -m scripts.recorded")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--test", default="", help="only tests whose name contains this")
    asked = parser.parse_args()
    tests = compared = differ = 0
    for test, recorded in recordings(asked.folder):
        if asked.test not in test:
            continue
        tests += 1
        for number, audited in enumerate(recorded):
            compared += 1
            before, now = audited.said()
            if before != now:
                differ += 1
                print(f"{test} [{number}] {audited.name}: {_difference(before, now)}")  # noqa: T201
    print(f"{compared:,} answers of {tests:,} tests compared, {differ:,} differ")  # noqa: T201
    return 1 if differ or not compared else 0


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # here, not in main: a test calls that
    sys.exit(main())
