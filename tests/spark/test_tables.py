"""Tables and views that no stream writes, of every kind that the session reads, as tables with tests of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import recon

RECON = """\
version: 2
name: warehouse
tables:
  - name: view
    format: table
    target: plain.seen
    data_tests:
      - unique: {arguments: {column_name: grp}}
      - compare: {arguments: {to: ref('files'), key: id, exclude_columns: [grp]}}
    columns: [{name: id, data_tests: [not_null]}]
  - {name: by_name, target: spark_catalog.plain.seen, data_tests: [&ids {not_null: {arguments: {column_name: id}}}]}
  - {name: parquet_table, format: table, target: plain.files, data_tests: [*ids]}
  - {name: of_session, format: table, target: temporary, data_tests: [*ids]}
  - {name: global, format: table, target: global_temp.everywhere, data_tests: [*ids]}
  - name: files
    format: parquet
    target: files
    data_tests: [*ids, {not_null: {arguments: {column_name: id}, config: {alias: cut, where: "id > 5 or"}}}]
  - name: database
    format: jdbc
    options: {url: "jdbc:derby:memory:tables;create=true", dbtable: ROWS_OF}
    data_tests: [{not_null: {arguments: {column_name: ID}}}]
  - {name: gone, format: parquet, target: nowhere, data_tests: [*ids]}
"""


def test_each_is_tested_and_none_has_a_ledger(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(3)
    rows.write.parquet(f"{tmp_path}/files")
    rows.createOrReplaceTempView("temporary")
    rows.createOrReplaceGlobalTempView("everywhere")
    rows.toDF("ID").write.jdbc("jdbc:derby:memory:tables;create=true", "ROWS_OF", mode="overwrite")
    spark.sql("CREATE DATABASE plain")
    try:
        spark.sql(f"CREATE TABLE plain.files USING parquet LOCATION '{tmp_path}/files'")
        spark.sql("CREATE VIEW plain.seen AS SELECT id, 1 AS grp FROM plain.files")
        (tmp_path / "recon.yml").write_text(RECON)
        (tmp_path / "data_tests").mkdir()
        (tmp_path / "data_tests" / "ids.sql").write_text("select * from {{ ref('view') }} where id > 1")
        run = recon.audit(tmp_path, spark=spark)
    finally:
        spark.sql("DROP DATABASE plain CASCADE")
    by_status: dict[str, list[str]] = {}
    for result in run.results:
        by_status.setdefault(result.status, []).append(result.name)
    assert by_status == {
        "pass": [
            "not_null_by_name_id",
            "not_null_database_ID",
            "not_null_files_id",
            "not_null_global_id",
            "not_null_of_session_id",
            "not_null_parquet_table_id",
            "compare_view_id__ref_files_",
            "not_null_view_id",
        ],
        "fail": ["unique_view_grp", "ids"],
        "error": ["cut", "not_null_gone_id"],
    }
    (cut,) = (result for result in run.results if result.name == "cut")
    assert cut.message.endswith("complete the expression (line 18 of recon.yml)")
    assert (run.pipelines, run.notes, run.exit_code) == ((), (), 1)
    # What they measured is a later audit's history; there is no ledger beside it.
    assert [path.name for path in (tmp_path / "_recon").iterdir()] == ["results"]
