"""Two tests of each of 65 small Delta tables: most tables of a lake are small, and each costs its Spark jobs.

Ours: `recon.run_audit` in the session that an audit builds for itself, from recon.yml to the results, without a ledger.
Floor: in the same session, of one table after another, a count of NULLs and a `groupBy` of the key.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from bench.peers import measure

TABLES = 65
ROWS = 1_000
REPEATS = 3
_WORK = Path(__file__).with_name(".work") / "small_tables"


def run() -> dict[str, Any]:
    """Medians in seconds, in turn in one session."""
    from recon.audits.run import run_audit
    from recon.project import load
    from recon.spark.session import session

    shutil.rmtree(_WORK, ignore_errors=True)
    _WORK.mkdir(parents=True)
    config = _WORK / "recon.yml"
    config.write_text(_recon_yml())
    spark = session(load(config))
    try:
        for n in range(TABLES):
            spark.range(ROWS * n, ROWS * (n + 1), 1, 1).write.format("delta").save(str(_WORK / f"t{n}"))

        def ours() -> None:
            result = run_audit(load(config), exclude=["test_name:ledger_integrity"], spark=spark, keep=False)
            statuses = [check.status for check in result.results]
            assert statuses == ["pass"] * (2 * TABLES), statuses

        def floor() -> None:
            for n in range(TABLES):
                rows = spark.read.format("delta").load(str(_WORK / f"t{n}"))
                nulls = rows.where("id IS NULL").count()
                twice = rows.groupBy("id").count().where("count > 1").count()
                assert not nulls and not twice

        taken = measure.alternate({"ours": ours, "floor": floor}, REPEATS)
    finally:
        spark.stop()
    return {"name": "small_tables", **taken, "ratio": taken["ours"] / taken["floor"], "unit": "s", "peers": {}}


def _recon_yml() -> str:
    sinks = "".join(
        f"      - {{name: t{n}, target: t{n}, columns: [{{name: id, data_tests: [not_null, unique]}}]}}\n"
        for n in range(TABLES)
    )
    return (
        "name: small_tables\nledger: no_ledger\nspark: {master: 'local[2]'}\npipelines:\n"
        f"  - name: lake\n    checkpoint: no_checkpoint\n    source: {{topics: [orders]}}\n    sinks:\n{sinks}"
    )
