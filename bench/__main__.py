"""`python -m bench [name …]`: measure, print a table, keep bench/results.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")
Result = dict[str, Any]


def _hook_overhead() -> Result:
    from bench.hook_overhead import run

    return run()


def _evidence_audit_day() -> Result:
    from bench.evidence_audit import day

    return day()


def _evidence_audit_year() -> Result:
    from bench.evidence_audit import year

    return year()


def _row_readback() -> Result:
    from bench.row_readback import run

    return run()


def _compare_equal() -> Result:
    from bench.compare import equal

    return equal()


def _compare_different() -> Result:
    from bench.compare import different

    return different()


def _check_suite() -> Result:
    from bench.check_suite import run

    return run()


def _check_suite_incremental() -> Result:
    from bench.check_incremental import run

    return run()


def _hook_checks() -> Result:
    from bench.hook_checks import run

    return run()


def _jdbc_upsert() -> Result:
    from bench.jdbc_upsert import run

    return run()


def _sustained_rate() -> Result:
    from bench.sustained_rate import run

    return run()


BENCHES: dict[str, Callable[[], Result]] = {
    "hook_overhead": _hook_overhead,
    "evidence_audit_day": _evidence_audit_day,
    "evidence_audit_year": _evidence_audit_year,
    "row_readback": _row_readback,
    "compare_equal": _compare_equal,
    "compare_different": _compare_different,
    "check_suite": _check_suite,
    "check_suite_incremental": _check_suite_incremental,
    "hook_checks": _hook_checks,
    "jdbc_upsert": _jdbc_upsert,
    "sustained_rate": _sustained_rate,
}


def table(results: Sequence[Result]) -> str:
    """The figures as the README's Markdown table."""
    lines = ["| figure | recon | floor | ratio | command |", "| --- | --- | --- | --- | --- |"]
    for r in sorted(results, key=lambda r: list(BENCHES).index(r["name"])):
        unit = r["unit"]
        name = r["name"]
        lines.append(
            f"| `{name}` | {r['ours']:.3g} {unit} | {r['floor']:.3g} {unit} | {r['ratio']:.3f} | "
            f"`make bench BENCH={name}` |"
        )
    return "\n".join(lines)


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"there is no bench {unknown[0]!r}; there is {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    kept = {r["name"]: r for r in (json.loads(RESULTS.read_text()) if RESULTS.exists() else [])}
    for name in names or BENCHES:
        print(f"{name} …", file=sys.stderr, flush=True)
        kept[name] = BENCHES[name]()
        RESULTS.write_text(json.dumps([kept[n] for n in BENCHES if n in kept], indent=2) + "\n")
    print(table([kept[n] for n in (names or BENCHES)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
