"""schema_contract, volume_anomaly and metric_anomaly on real Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from recon.base.errors import ConfigError
from recon.checks.engine.context import ScanContext
from recon.checks.engine.runner import run_table
from recon.checks.registry import build
from recon.project import CheckSpec
from recon.spark.frames import local_frame
from recon.spark.releases import data_type
from tests.support.data_checks import bound, counted_jobs, one, run
from tests.support.messages import raises

# As in the session that an audit starts.
pytestmark = pytest.mark.usefixtures("ansi")


@pytest.fixture(scope="module")
def table(spark):
    from pyspark.sql.types import StringType, StructField, StructType

    before = "order_id bigint NOT NULL, `a.b` int, at timestamp, price decimal(10,2)"
    after = (
        "address struct<city: string, zip: struct<code: int NOT NULL>>, items array<struct<sku: string>>,"
        "tags map<string, double>, _batch_id bigint, _source_topic string, _source_partition int,"
        "_source_offset bigint"
    )
    # As a catalog table or Delta has a varchar column.
    code = StructField("code", StringType(), True, {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"})
    schema = StructType([*data_type(before).fields, code, *data_type(after).fields])
    return local_frame(spark, [], schema)


ALL = [
    {"name": "order_id", "data_type": "long", "nullable": False},
    {"name": "a.b", "data_type": "INTEGER"},
    {"name": "at"},
    {"name": "price", "data_type": "numeric(10, 2)"},
    {"name": "code", "data_type": "varchar(3)"},
    {"name": "address.city", "data_type": "string", "nullable": True},
    {"name": "address.zip.code", "nullable": False},
    {"name": "items.element.sku", "data_type": "string"},
    {"name": "items", "data_type": "array<struct<sku: string>>"},
    {"name": "tags.value", "data_type": "double"},
    {"name": "tags.key", "nullable": False},
]


def test_a_table_as_promised(spark, table):
    with counted_jobs(spark) as jobs:
        result = one(table, "schema_contract", columns=ALL)
    assert (result.status, result.failures, jobs) == ("pass", 0, [])
    # recon's own columns may be promised, too, and are then looked at.
    stamped = one(table, "schema_contract", columns=[*ALL, {"name": "_batch_id", "data_type": "int"}])
    assert stamped.message == "column _batch_id: bigint instead of int"


def test_everything_that_differs_is_told(table):
    columns = [
        {"name": "order_id", "data_type": "int", "nullable": True},
        {"name": "AT", "data_type": "timestamp"},
        {"name": "address.street", "data_type": "string"},
        {"name": "price", "data_type": "decimal(12,2)"},
        {"name": "code", "data_type": "varchar(4)"},
    ]
    result = one(table, "schema_contract", columns=columns)
    assert (result.status, result.failures) == ("fail", 9)
    found = [(s["column"], s["problem"], s["expected"], s["found"]) for s in result.samples]
    assert set(found) >= {
        ("order_id", "type", "int", "bigint"),
        ("order_id", "nullability", "nullable", "not null"),
        ("AT", "missing", "timestamp", "at"),
        ("address.street", "missing", "string", None),
        ("price", "type", "decimal(12,2)", "decimal(10,2)"),
    }
    open_ = one(table, "schema_contract", mode="open", columns=columns)
    assert open_.failures == 5
    assert open_.message == "column order_id: bigint instead of int, and 4 more columns differ"
    extra = one(table, "schema_contract", {"limit": 20}, columns=[c for c in ALL if c["name"] not in ("at", "a.b")])
    assert [(s["column"], s["problem"]) for s in extra.samples] == [("a.b", "extra"), ("at", "extra")]
    assert extra.message == "column a.b: int, which the contract does not have, and 1 more columns differ"


def test_columns_that_differ_are_shown_up_to_the_limit_and_stored(table):
    stored = []
    context = ScanContext(keep_failures=lambda bound, rows: stored.append((bound.name, [r["column"] for r in rows])))
    promised = [c for c in ALL if c["name"] not in ("at", "a.b")]
    (result,) = run_table(
        [bound("schema_contract", {"limit": 1, "store_failures": True}, columns=promised)],
        table,
        "the_table",
        lambda: datetime.now(UTC),
        context,
    )
    assert (result.failures, [s["column"] for s in result.samples]) == (2, ["a.b"])
    assert stored == [("schema_contract", ["a.b", "at"])]


def test_a_type_that_is_none(spark, table):
    with counted_jobs(spark) as jobs:
        bad, good = run(
            table,
            bound("schema_contract", columns=[{"name": "at", "data_type": "bigit"}]),
            bound("schema_contract", columns=ALL),
        )
    assert (bad.status, good.status, jobs) == ("error", "pass", [])
    assert bad.message.startswith("column at: 'bigit' is no type of Spark SQL: ")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"columns": []},
        {"columns": [{"name": "a"}, {"name": "a"}]},
        {"columns": [{"data_type": "int"}]},
        {"columns": [{"name": "a", "type": "int"}]},
        {"columns": [{"name": "a"}], "mode": "shut"},
        {"columns_": [{"name": "a"}]},
    ],
    ids=str,
)
def test_contracts_that_make_no_sense(arguments):
    with raises(ConfigError):
        build(CheckSpec(test="schema_contract", arguments=arguments), "here")


def test_a_delta_table_keeps_not_null(spark, tmp_path):
    import pyarrow as pa
    from deltalake import write_deltalake

    schema = pa.schema([pa.field("order_id", pa.int64(), nullable=False), pa.field("note", pa.string())])
    write_deltalake(str(tmp_path / "t"), pa.table({"order_id": [1], "note": ["x"]}, schema=schema))
    table = spark.read.format("delta").load(str(tmp_path / "t"))
    promised = [{"name": "order_id", "nullable": False}, {"name": "note", "nullable": True}]
    assert one(table, "schema_contract", columns=promised).status == "pass"


# -- anomalies ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows(spark, tmp_path_factory):
    """10 rows of yesterday, 2 of today, 1 without a time."""
    path = str(tmp_path_factory.mktemp("rows") / "t")
    spark.range(13).selectExpr(
        "id",
        "if(id = 12, NULL, timestampadd(MICROSECOND, -1, date_trunc('DAY', current_timestamp()))"
        " + make_dt_interval(if(id < 10, 0, 1))) AS at",
        "if(id = 12, NULL, date_add(current_date(), if(id < 10, -1, 0))) AS day",
        "if(id > 9, NULL, id) AS n",
        "if(id = 5, double('NaN'), 1.0) AS d",
        "cast(NULL AS int) AS none",
        "cast(id AS string) AS s",
    ).coalesce(1).write.parquet(path)
    return spark.read.parquet(path)


def audited(table, history, *bounds):
    """Results with what earlier runs kept; `history` is by the check's name."""
    context = ScanContext(history=lambda of, key: history[of.name] if key == "value" else ())
    return list(run_table(bounds, table, "the_table", lambda: datetime.now(UTC), context))


DAILY = {"period": {"count": 1, "period": "day"}}
METRICS = [
    ("row_count", None, 13),
    ("null_count", "n", 3),
    ("null_proportion", "n", 3 / 13),
    ("min", "n", 0),
    ("max", "n", 9),
    ("mean", "n", 4.5),
    ("sum", "n", 45),
    ("stddev", "n", 3.0276503540974917),
    ("approx_distinct", "s", 13),
    ("mean", "d", None),
    ("max", "none", None),
]


def test_the_last_complete_period_is_counted_and_metrics_measured_in_one_job(spark, rows):
    asked = [
        bound("volume_anomaly", timestamp_column="at", **DAILY),
        bound("volume_anomaly", timestamp_column="day", **DAILY),
        bound("volume_anomaly"),
        *(bound("metric_anomaly", metric=metric, column_name=column) for metric, column, _ in METRICS),
    ]
    with counted_jobs(spark) as jobs:
        first = audited(rows, {"volume_anomaly": [], "metric_anomaly": []}, *asked)
    assert len(jobs) == 1
    # Nothing to compare with: never a pass, and what was measured is there for the next run.
    assert {(r.status, r.message) for r in first} == {("skipped", "not enough history: 0 of 7 runs")}
    assert [r.evidence["value"] for r in first[:3]] == [10, 10, 13]
    found = [r.evidence["value"] for r in first[3:]]
    assert found[:8] == pytest.approx([value for *_, value in METRICS[:8]])
    assert found[8] == pytest.approx(13, abs=1)
    assert found[9:] == [None, None]

    usual = {"volume_anomaly": [10, 11, 9, 10, 12, 10, 9, 8], "metric_anomaly": [4.4, 4.5, 4.6, 4.5, 4.5, 4.3, 4.7]}
    by_name = dict(zip(["period", "days", "growth"], audited(rows, usual, *asked[:3]), strict=True))
    assert (by_name["period"].status, by_name["days"].status) == ("pass", "pass")
    mean, total, nothing = audited(
        rows,
        usual,
        bound("metric_anomaly", metric="mean", column_name="n"),
        bound("metric_anomaly", metric="sum", column_name="n"),
        bound("metric_anomaly", metric="max", column_name="none"),
    )
    assert (mean.status, total.status, nothing.status) == ("pass", "fail", "fail")
    assert total.message.startswith("sum of n is 45, far above the median 4.5 of 7 earlier runs")
    assert nothing.message == "max of none is missing, and was 4.5 in the median of 7 earlier runs"


def test_from_run_to_run(spark, tmp_path):
    """As an audit does it: results are kept beside the ledger, and the next run finds them there, skipped ones too."""
    from recon.model import RunResult
    from recon.write.ledger.results import RESULTS, History, append_run
    from recon.write.ledger.store import DeltalakeStore

    asked = bound("volume_anomaly", min_runs=2)
    store = DeltalakeStore(RESULTS, str(tmp_path / "results"))
    told = []
    for day, rows in enumerate([100, 200, 300, 400, 400], start=1):
        at = datetime(2026, 1, day, tzinfo=UTC)
        context = ScanContext(history=History(lambda: store, [asked.unique_id], at))
        (result,) = run_table([asked], spark.range(rows), "the_table", lambda at=at: at, context)
        told.append((result.status, result.evidence["growth"], result.message))
        run_ = RunResult(
            invocation_id=str(day),
            project="p",
            recon_version="0",
            generated_at=at,
            period_from=None,
            period_to=at,
            elapsed_time=0.0,
            results=(result,),
        )
        append_run(store, run_)
    assert told == [
        ("skipped", None, "not enough history: 0 of 2 runs"),
        ("skipped", 100, "not enough history: 0 of 2 runs"),
        ("skipped", 100, "not enough history: 1 of 2 runs"),
        ("pass", 100, ""),
        ("fail", 0, told[-1][2]),
    ]
    assert told[-1][2].startswith("the number of rows since the last run is 0, below the median 100 of 3 earlier runs")


def test_an_emptied_table_has_no_usual_number_of_rows(rows):
    nowhere = {"where": "id > 99"}
    asked = [
        bound("volume_anomaly", nowhere, timestamp_column="at", **DAILY),
        bound("volume_anomaly", nowhere),
        bound("metric_anomaly", nowhere, metric="row_count"),
        bound("metric_anomaly", nowhere, metric="row_count", direction="up"),
        bound("metric_anomaly", nowhere, metric="mean", column_name="n"),
    ]
    # Far apart, so that the deviation alone would allow 0.
    totals = [10, 4000, 90, 900, 2000, 300, 1, 700, 50]
    daily, volume, counted, upwards, mean = audited(rows, {"volume_anomaly": totals, "metric_anomaly": totals}, *asked)
    assert [r.status for r in (daily, volume, counted, upwards, mean)] == ["fail", "fail", "fail", "pass", "skipped"]
    assert (daily.evidence["value"], counted.evidence["value"]) == (0, 0)
    assert counted.message == (
        "there are 0 rows, where earlier runs had some: row_count is 0, and was 300 in the median of 9 earlier runs"
    )
    assert mean.message == "0 rows where id > 99"
    still = {"volume_anomaly": [0, *totals], "metric_anomaly": [0, *totals]}
    assert [r.status for r in audited(rows, still, *asked)] == ["fail", "fail", "fail", "pass", "skipped"]
    often = {"volume_anomaly": [7, 0, *totals], "metric_anomaly": [7, 0, *totals]}
    assert [r.status for r in audited(rows, often, *asked)] == ["pass", "pass", "pass", "pass", "skipped"]


@pytest.mark.parametrize(("if_empty", "status"), [("skip", "skipped"), ("pass", "pass"), ("fail", "fail")])
def test_no_rows_and_too_little_history(rows, if_empty, status):
    config = {"where": "id > 99", "if_empty": if_empty}
    asked = bound("metric_anomaly", config, metric="row_count"), bound("volume_anomaly", config)
    for result in audited(rows, {"metric_anomaly": [5], "volume_anomaly": [5]}, *asked):
        assert (result.status, result.evidence["value"]) == (status, 0)
        assert result.message.startswith("not enough history: ")
    there = bound("metric_anomaly", {"if_empty": if_empty}, metric="row_count")
    assert audited(rows, {"metric_anomaly": [5]}, there)[0].status == "skipped"


@pytest.mark.parametrize(
    ("test", "arguments", "said"),
    [
        (
            "volume_anomaly",
            {"timestamp_column": "s", **DAILY},
            "volume_anomaly needs a date or timestamp, and column s",
        ),
        ("volume_anomaly", {"timestamp_column": "zzz", **DAILY}, "the_table has no column 'zzz'"),
        ("metric_anomaly", {"metric": "mean", "column_name": "s"}, "metric mean needs numbers, and column s is string"),
        ("metric_anomaly", {"metric": "null_count", "column_name": "zzz"}, "the_table has no column 'zzz'"),
    ],
)
def test_what_cannot_be_asked_is_an_error(rows, test, arguments, said):
    result = one(rows, test, **arguments)
    assert result.status == "error"
    assert said in result.message
