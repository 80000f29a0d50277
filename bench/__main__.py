"""`python -m bench [name …]`: measures, prints a table and keeps what was measured in bench/.results.json.

That file is not tracked. `make figures` (`python -m scripts.figures`) carries it into bench/results.json and
docs/figures.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).with_name(".results.json")  # not tracked
PUBLISHED = Path(__file__).with_name("results.json")  # what docs/figures.md shows
Result = dict[str, Any]

# Each figure's function, imported when it is measured: some need a JVM, a database or a tool of others.
BENCHES: Mapping[str, str] = {
    "hook_overhead": "bench.hook_overhead:run",
    "evidence_audit_day": "bench.evidence_audit:day",
    "evidence_audit_year": "bench.evidence_audit:year",
    "evidence_audit_next": "bench.evidence_audit:next_audit",
    "trace_year": "bench.trace_year:run",
    "many_pipelines": "bench.many_pipelines:run",
    "ledger_contention": "bench.ledger_contention:run",
    "probe": "bench.probe:run",
    "row_readback": "bench.row_readback:run",
    "compare_equal": "bench.compare:equal",
    "compare_different": "bench.compare:different",
    "compare_wide": "bench.compare:wide",
    "small_tables": "bench.small_tables:run",
    "check_suite": "bench.check_suite:run",
    "check_suite_incremental": "bench.check_incremental:run",
    "hook_checks": "bench.hook_checks:run",
    "jdbc_upsert": "bench.jdbc_upsert:run",
    "sustained_rate": "bench.sustained_rate:run",
    "judge_scaling": "bench.judge_scaling:run",
    "judge_day": "bench.judge_day:run",
    "account_day": "bench.account:day",
    "account_year": "bench.account:of_year",
    "heads_proof": "bench.heads_proof:run",
    "compliance_year": "bench.compliance_year:as_html",
    "compliance_year_pdf": "bench.compliance_year:as_pdf",
    "first_verdict": "bench.first_verdict:run",
    "native_proved": "bench.native_proved:run",
    "observe_beside": "bench.observe_beside:run",
}


def measure(name: str) -> Result:
    """Runs one benchmark: name, ours, floor, ratio, unit and peers."""
    module, _, function = BENCHES[name].partition(":")
    result: Result = getattr(import_module(module), function)()
    return result


def load(file: Path) -> dict[str, Result]:
    """The results in a file by name; none when the file does not exist."""
    return {r["name"]: r for r in (json.loads(file.read_text()) if file.exists() else [])}


def save(results: Mapping[str, Result], file: Path) -> None:
    """Writes results in the order of `BENCHES`."""
    file.write_text(json.dumps([results[name] for name in BENCHES if name in results], indent=2) + "\n")


def table(results: Mapping[str, Result]) -> str:
    """Results as the Markdown table of docs/figures.md."""
    lines = ["| figure | recon | floor | ratio | command |", "| --- | --- | --- | --- | --- |"]
    for name in BENCHES:
        if r := results.get(name):
            lines.append(f"| `{name}` | {cells(r)} | `make bench BENCH={name}` |")
    return "\n".join(lines)


def cells(result: Result) -> str:
    """What was measured, the floor and their ratio, as cells of a table in Markdown."""
    ours, floor = (f"{_amount(result[key])} {result['unit']}" for key in ("ours", "floor"))
    return f"{ours} | {floor} | {result['ratio']:.3f}"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def main(names: Sequence[str], measured: Path = MEASURED) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    results = load(measured)
    for name in names or BENCHES:
        print(f"{name} …", file=sys.stderr, flush=True)
        results[name] = measure(name)
        save(results, measured)
    print(table({name: results[name] for name in names or BENCHES}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
