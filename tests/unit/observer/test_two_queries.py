"""Two queries write one table, and both are pipelines of one recon.yml: whose a commit is, and a row that is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from recon.audits.run import run_audit
from recon.base.errors import ConfigError
from recon.model import Code, Finding, Level, RunResult
from recon.project import Project, load
from recon.write.ledger import open_ledger
from recon.write.observer import look
from recon.write.observer.found import found_stream
from tests.support.messages import raises, same_message
from tests.support.native_stream import NativeStream

CHECKS = "[ledger_integrity, offset_continuity, checkpoint_commits, delta_history, source_rows]"
NAMED = "source_columns: {topic: kafka_topic, partition: kafka_partition, offset: kafka_offset}"
COUNTS = "description: counts alone"


def pipeline(name: str, topic: str, more: str = COUNTS, write: str = "native") -> str:
    return (
        f"  - name: {name}\n    write: {write}\n    checkpoint: cp_{name}\n    source: {{topics: [{topic}]}}\n"
        f"    rows: {{filters: false}}\n    sinks: [{{name: s, target: table, {more}, data_tests: {CHECKS}}}]\n"
    )


def project_in(folder: Path, *pipelines: str) -> Project:
    (folder / "recon.yml").write_text("name: lake\nledger: ledger\npipelines:\n" + "".join(pipelines))
    return load(folder)


def query(folder: Path, name: str, topic: str, app_id: str = "") -> NativeStream:
    return NativeStream(folder / f"cp_{name}", folder / "table", app_id=app_id).start({topic: {0: 0}})


def answers(run: RunResult) -> list[str]:
    return [of.answer for of in run.pipelines]


def told(run: RunResult) -> list[Finding]:
    return [f for r in run.results for f in r.findings if f.level is not Level.INFO]


def codes(run: RunResult, name: str) -> set[Code]:
    return {finding.code for finding in told(run) if finding.pipeline == name}


@pytest.mark.parametrize("more", [NAMED, COUNTS])
def test_each_has_its_own_commits(tmp_path: Path, more: str) -> None:
    eu, us = query(tmp_path, "eu", "a"), query(tmp_path, "us", "b")
    project = project_in(tmp_path, pipeline("eu", "a", more), pipeline("us", "b", more))
    eu.batch({"a": {0: 10}})
    us.batch({"b": {0: 7}})
    eu.batch({"a": {0: 20}})
    run = run_audit(project, no_spark=True)
    assert (answers(run), told(run)) == (["complete", "complete"], [])
    eu.batch({"a": {0: 30}})
    later = run_audit(project, no_spark=True)
    assert (answers(later), told(later)) == (["complete", "complete"], [])
    assert not look(project, project.pipelines[1], open_ledger(project), lambda _, question: question()).waits


def test_one_of_them_is_a_function_with_a_number(tmp_path: Path) -> None:
    eu, us = query(tmp_path, "eu", "a"), query(tmp_path, "us", "b", app_id="us-app")
    project = project_in(tmp_path, pipeline("eu", "a"), pipeline("us", "b", "txn_app_id: us-app", "foreach_batch"))
    us.batch({"b": {0: 7}})
    eu.batch({"a": {0: 10}})
    us.batch({"b": {0: 9}})
    run = run_audit(project, no_spark=True)
    assert (answers(run), told(run)) == (["complete", "complete"], [])


def test_what_the_other_one_read_is_not_known_any_more(tmp_path: Path) -> None:
    eu, us = query(tmp_path, "eu", "a"), query(tmp_path, "us", "b")
    project = project_in(tmp_path, pipeline("eu", "a"), pipeline("us", "b"))
    eu.batch({"a": {0: 10}})
    us.batch({"b": {0: 7}})
    run_audit(project, no_spark=True)
    for end in (9, 11, 13):
        us.batch({"b": {0: end}})
    us.purge(0, 1, 2)
    assert answers(run_audit(project, no_spark=True)) == ["complete", "could not be proved"]


def test_the_other_one_reads_the_same_topic(tmp_path: Path) -> None:
    eu, us = query(tmp_path, "eu", "a"), query(tmp_path, "us", "a")
    project = project_in(tmp_path, pipeline("eu", "a"), pipeline("us", "a"))
    eu.batch({"a": {0: 10}})
    us.batch({"a": {0: 10}})
    assert "complete" not in answers(run_audit(project, no_spark=True))[:1]


def test_the_checkpoint_of_the_other_one_cannot_be_read(tmp_path: Path) -> None:
    eu, us = query(tmp_path, "eu", "a"), query(tmp_path, "us", "b")
    project = project_in(tmp_path, pipeline("eu", "a"), pipeline("us", "b"))
    eu.batch({"a": {0: 10}})
    us.batch({"b": {0: 7}})
    shutil.move(tmp_path / "cp_us", tmp_path / "elsewhere")
    run = run_audit(project, no_spark=True)
    (stranger,) = (f for f in told(run) if f.code is Code.UNSTAMPED)
    assert stranger.pipeline == "eu" and same_message(stranger.message) and answers(run)[0] == "could not be proved"
    shutil.move(tmp_path / "elsewhere", tmp_path / "cp_us")


def test_a_query_that_no_pipeline_names_is_another_program(tmp_path: Path) -> None:
    eu, us = query(tmp_path, "eu", "a"), query(tmp_path, "us", "b")
    project = project_in(tmp_path, pipeline("eu", "a"))
    eu.batch({"a": {0: 10}})
    us.batch({"b": {0: 7}})
    run = run_audit(project, no_spark=True)
    assert answers(run) == ["could not be proved"] and Code.UNSTAMPED in codes(run, "eu")


def test_a_deleted_row_is_a_loss_of_the_pipeline_that_wrote_it(tmp_path: Path) -> None:
    eu, us = query(tmp_path, "eu", "a"), query(tmp_path, "us", "b")
    project = project_in(tmp_path, pipeline("eu", "a"), pipeline("us", "b"))
    eu.batch({"a": {0: 10}})
    us.batch({"b": {0: 7}})
    run_audit(project, no_spark=True)
    DeltaTable(tmp_path / "table").delete("kafka_topic = 'a' AND kafka_offset = 3")
    run = run_audit(project, no_spark=True)
    assert answers(run) == ["not complete", "complete"]
    assert codes(run, "eu") >= {Code.MUTATED, Code.GAP} and not codes(run, "us")


def test_whose_the_rows_were_the_log_does_not_tell(tmp_path: Path) -> None:
    """OPTIMIZE put the rows of both into one file, and only rows would tell: without Spark nothing is proved."""
    eu, us = query(tmp_path, "eu", "a"), query(tmp_path, "us", "b")
    project = project_in(tmp_path, pipeline("eu", "a", NAMED), pipeline("us", "b", NAMED))
    eu.batch({"a": {0: 10}})
    us.batch({"b": {0: 7}})
    assert answers(run_audit(project, no_spark=True)) == ["complete", "complete"]
    DeltaTable(tmp_path / "table").optimize.compact()
    DeltaTable(tmp_path / "table").delete("kafka_topic = 'a' AND kafka_offset = 3")
    for _ in range(2):
        run = run_audit(project, no_spark=True)
        assert answers(run) == ["could not be proved", "could not be proved"] and not told(run)
    (of_us,) = (r for r in run.results if r.check == "delta_history" and r.pipeline == "us")
    assert same_message(of_us.message)


def test_columns_without_the_topic_do_not_tell_them_apart(tmp_path: Path) -> None:
    columns = "source_columns: {partition: kafka_partition, offset: kafka_offset}"
    with raises(ConfigError):
        project_in(tmp_path, pipeline("eu", "a", columns), pipeline("us", "b"))
    assert project_in(tmp_path, pipeline("eu", "a", columns), pipeline("us", "a", columns))


def test_a_found_stream_takes_no_columns_without_the_topic_where_another_query_writes_the_table(tmp_path: Path) -> None:
    eu, us = (NativeStream(tmp_path / f"cp_{of}", tmp_path / "table", with_topic=False) for of in ("eu", "us"))
    eu.start({"a": {0: 0}}).batch({"a": {0: 10}})
    alone = found_stream(str(eu.checkpoint), str(eu.table), {})
    us.start({"b": {0: 0}}).batch({"b": {0: 7}})
    beside = found_stream(str(eu.checkpoint), str(eu.table), {})
    assert (alone.doubt, beside.source_columns) == ("", alone.source_columns) and same_message(beside.doubt)
