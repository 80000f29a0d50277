"""How many of the judge's functions have a cyclomatic complexity above 10; `make lint` runs it.

    python -m scripts.complexity        the share, and the worst functions where it is above what is allowed

radon counts branches, boolean operators and comprehensions. What is allowed is what was reached: lower it with each
function that gets simpler, never raise it. The aim is 4 in 100.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from radon.complexity import cc_visit

ROOT = Path(__file__).parents[1]
ROOMS = ("recon/judge", "recon/checks/evidence")
ABOVE = 10
ALLOWED = 6  # functions above it, of 1005


class Function(NamedTuple):
    """A function or a method, and how complex it is."""

    complexity: int
    place: str


def functions() -> Iterator[Function]:
    """The functions of the judge."""
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            for block in cc_visit(file.read_text(encoding="utf-8")):
                if block.letter != "C":  # the methods of a class are listed as well
                    yield Function(block.complexity, f"{file.relative_to(ROOT)}:{block.lineno} {block.name}")


def main() -> int:
    """Prints the share; 1 where more functions are above the limit than allowed."""
    every = list(functions())
    above = sorted((function for function in every if function.complexity > ABOVE), reverse=True)
    said = [f"complexity above {ABOVE}: {len(above)} of {len(every)} functions of the judge, {ALLOWED} allowed"]
    if len(above) > ALLOWED:
        said += [f"  {function.complexity:3} {function.place}" for function in above]
    sys.stdout.write("\n".join(said) + "\n")
    return 1 if len(above) > ALLOWED else 0


if __name__ == "__main__":
    sys.exit(main())
