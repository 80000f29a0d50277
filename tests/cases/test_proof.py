"""Fault cases 41 and on: what a proof must not be fooled by, on real parts.

tests/truth has them in a model, too; of case 90 the audit alone (tests/truth/stories.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest

from recon.model import Level
from recon.project import Project
from recon.recovery.verify import verify
from recon.write.hook import foreach_batch
from recon.write.ledger import open_ledger
from tests.cases.lake import Lake, failing, findings, ranges

MakeLake = Callable[..., Lake]


def _as(lake: Lake, pipeline: str) -> Project:
    """The lake's project with its pipeline under another name."""
    (mine,) = lake.project.pipelines
    return lake.project.model_copy(update={"pipelines": (mine.model_copy(update={"name": pipeline}),)})


@pytest.mark.case(43, "OVERLAP", "DUPLICATE")
def test_43_two_pipelines_append_one_topic_into_one_table(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(30)
    lake.run()
    other = replace(lake, checkpoint_name="other")
    other.run(foreach_batch(_as(other, "p2"), pipeline="p2", sink="s"))
    run = lake.audit()
    assert run.pipelines[0].answer == "not complete" and failing(run) == {"DUPLICATE", "OVERLAP"}
    assert ranges(findings(run, "DUPLICATE", "OVERLAP")) == {(0, 0, 30)}
    assert "pipeline p2, sink s" in findings(run, "OVERLAP")[0].message


@pytest.mark.case(49, "DUPLICATE")
def test_49_rows_of_the_table_are_inserted_into_it(written: Lake) -> None:
    lake = written
    lake.sql("INSERT INTO {table} SELECT * FROM {table} WHERE _source_offset BETWEEN 5 AND 24")
    for then in ("", "OPTIMIZE {table}"):
        if then:
            lake.sql(then)
        run = lake.audit(keep=False)
        assert run.pipelines[0].answer == "not complete" and failing(run) == {"DUPLICATE"}
        assert (0, 5, 25) in ranges(findings(run, "DUPLICATE"))


@pytest.mark.case(49, "UNSTAMPED")
def test_49_a_stranger_whose_rows_are_no_records_doubles_nothing(written: Lake) -> None:
    lake = written
    lake.sql(
        "INSERT INTO {table} BY NAME SELECT * EXCEPT (_source_offset), NULL AS _source_offset FROM {table} LIMIT 3"
    )
    run = lake.audit()
    assert run.pipelines[0].answer == "complete", run.pipelines[0].because
    assert findings(run, "UNSTAMPED")


@pytest.mark.case(51, "TAMPERED")
def test_51_the_ledger_is_put_back_from_an_older_copy(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.produce(30)
    lake.run()
    shutil.copytree(lake.path / "recon", lake.path / "copy")
    lake.produce(60)
    lake.run(per_trigger=30)
    shutil.rmtree(lake.path / "recon")
    shutil.move(lake.path / "copy", lake.path / "recon")
    run = lake.audit(keep=False)
    assert run.pipelines[0].answer == "not complete" and failing(run) == {"TAMPERED"}
    assert [f.batch_id for f in findings(run, "TAMPERED")] == [2]
    (found,) = verify(lake.project, open_ledger(lake.project))
    assert (found.code, found.batch_id, found.level) == ("TAMPERED", 2, Level.FAIL)
    # The next start restores the entries from the sink, and says so.
    lake.produce(1)
    lake.run()
    assert [e.status for e in lake.entries()] == ["committed", "rebuilt", "rebuilt", "committed"]
    assert lake.audit().pipelines[0].answer == "complete"
    assert not [f for f in verify(lake.project, open_ledger(lake.project)) if f.level is Level.FAIL]
