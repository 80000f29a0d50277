"""recon forget: rows of a person are erased from quarantine, stored failures and samples, and entered in a chain."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from recon.base.errors import ConfigError
from recon.model.wire.quarantine import parse_erased
from recon.project import Project, load
from recon.recovery.forget import Forgetting, matches
from recon.reports import html, run_results
from recon.write.ledger import open_ledger
from recon.write.ledger.erasures import ERASURES, ErasuresEdited, ErasureTable
from recon.write.ledger.failures import FAILURES, append_failures, stored_failures
from recon.write.ledger.store import open_store
from tests.support.ledger_entries import entry
from tests.support.messages import raises, same_message
from tests.support.sample_run import sample_run
from tests.unit.cli.test_cli import Ended, project, recon  # noqa: F401 - fixtures

NAMES = {7: "Zoe Nobody", 8: "Yan Somebody"}
CHECK = "test.lake.not_null_orders_status"
WHO = ("--by", "Carol", "--reason", "ticket 12")


@pytest.fixture
def kept(project: Path) -> Project:  # noqa: F811
    """Two customers in quarantine, in stored failures and in the samples of the last results."""
    loaded = load(project)
    open_ledger(loaded).append(entry(0, pipeline="orders", sink="orders"))
    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    rows = [
        {
            "customer_id": number,
            "name": name,
            "_batch_id": 0,
            "_source_offset": number,
            "_recon_id": f"id'{number}",
            "_recon_reasons": ["no_name"],
            "_recon_release": None,
            "_recon_epoch": 0,
            "_recon_quarantined_at": at,
        }
        for number, name in NAMES.items()
    ]
    schema = pa.Table.from_pylist(rows).schema
    schema = schema.set(schema.get_field_index("_recon_release"), pa.field("_recon_release", pa.int64()))
    write_deltalake(str(quarantine(project)), pa.Table.from_pylist(rows, schema))
    samples = tuple({"customer_id": number, "name": name} for number, name in NAMES.items())
    result = replace(sample_run().results[0], pipeline="orders", sink="orders", unique_id=CHECK, samples=samples)
    run = replace(sample_run(), results=(result,))
    append_failures(open_store(loaded, FAILURES), run, {CHECK: [*samples, {"other": 1}]})
    html.write(run, project / "target" / "report.html")
    run_results.write(run, project / "target" / "run_results.json")
    return loaded


def quarantine(folder: Path) -> Path:
    return folder / "_recon" / "quarantine" / "orders" / "orders"


def everything(folder: Path) -> str:
    """All that recon keeps now, without older versions of the tables."""
    tables = (DeltaTable(str(quarantine(folder))), DeltaTable(str(folder / "_recon" / "failures")))
    files = [(folder / "target" / name).read_text() for name in ("report.html", "run_results.json")]
    return str([table.to_pyarrow_table().to_pylist() for table in tables]) + "".join(files)


def erasures(loaded: Project) -> list[tuple[int, int, int]]:
    table = ErasureTable(open_store(loaded, ERASURES))
    return [(one.quarantined, one.failures, one.samples) for one in table.of("orders", "orders")]


def test_a_person_is_erased_everywhere_and_nobody_else(
    recon: Callable[..., Ended],  # noqa: F811
    kept: Project,
    project: Path,  # noqa: F811
) -> None:
    assert NAMES[7] in everything(project)
    ended = recon("forget", "--where", "customer_id = 7", *WHO, "--yes")
    assert ended.code == 0 and "VACUUM" in ended.out and "3 rows erased." in ended.out
    assert "1 stored failing rows lack a column" in ended.err, "a row without customer_id may be hers"
    after = everything(project)
    assert NAMES[7] not in after and NAMES[8] in after
    assert erasures(kept) == [(1, 1, 1)]
    rows = {row["_recon_id"]: row for row in DeltaTable(str(quarantine(project))).to_pyarrow_table().to_pylist()}
    assert len(rows) == 2, "its place stays, so that audits account for the offset"
    erased = rows["id'7"]
    assert (erased["customer_id"], erased["name"], erased["_source_offset"]) == (None, None, 7)
    assert erased["_recon_reasons"] == ["no_name", "_erased"] and erased["_recon_release"] is None
    assert "1 rows pending" in recon("quarantine", "show").out
    again = recon("forget", "--where", "customer_id = 7", *WHO, "--yes")
    assert (again.code, erasures(kept)) == (0, [(1, 1, 1)]) and "No row meets the condition." in again.err


def test_audits_and_the_ledger_say_who_erased(
    recon: Callable[..., Ended],  # noqa: F811
    kept: Project,
    project: Path,  # noqa: F811
) -> None:
    recon("forget", "--where", "customer_id = 7", *WHO, "--yes")
    sentence = "1 quarantined row, 1 stored failing row, 1 sample erased by Carol on "
    verified = recon("ledger", "verify")
    assert verified.code == 0 and f"ERASED  {sentence}" in verified.out and "ticket 12" in verified.out
    recon("audit", "--no-spark", "--select", "test_name:ledger_integrity")
    (result,) = run_results.read(project / "target" / "run_results.json").results
    assert result.status == "pass"
    assert [(str(f.code), f.message.startswith(sentence)) for f in result.findings] == [("ERASED", True)]
    assert NAMES[7] not in everything(project) and "customer_id = 7" not in everything(project)


@pytest.mark.parametrize("edit", ["UPDATE", "DELETE"])
def test_an_edited_erasure_is_tampering(
    recon: Callable[..., Ended],  # noqa: F811
    kept: Project,
    project: Path,  # noqa: F811
    edit: str,
) -> None:
    recon("forget", "--where", "customer_id = 7", *WHO, "--yes")
    table = DeltaTable(str(project / "_recon" / "erasures"))
    if edit == "UPDATE":
        table.update(updates={"by": "'Mallory'"})
    else:
        table.delete()
    with pytest.raises(ErasuresEdited):
        erasures(kept)
    verified = recon("ledger", "verify")
    assert verified.code == 1 and "TAMPERED" in verified.out
    recon("audit", "--no-spark", "--select", "test_name:ledger_integrity")
    (result,) = run_results.read(project / "target" / "run_results.json").results
    assert (result.status, [str(f.code) for f in result.findings]) == ("fail", ["TAMPERED"])


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_table_of_erasures_that_is_gone_is_tampering(
    recon: Callable[..., Ended],  # noqa: F811
    kept: Project,
    project: Path,  # noqa: F811
    made_anew: bool,
) -> None:
    """An audit keeps how many erasures it saw, and the hash of the newest, in its sealed results."""
    recon("forget", "--where", "customer_id = 7", *WHO, "--yes")
    audit = ("audit", "--no-spark", "--select", "test_name:ledger_integrity")
    recon(*audit)
    shutil.rmtree(project / "_recon" / "erasures")
    if made_anew:
        recon("forget", "--where", "customer_id = 8", "--by", "Mallory", "--reason", "another", "--yes")
    recon(*audit)
    (result,) = run_results.read(project / "target" / "run_results.json").results
    assert (result.status, "TAMPERED" in [str(f.code) for f in result.findings]) == ("fail", True)
    verified = recon("ledger", "verify")
    assert verified.code == 1 and "TAMPERED" in verified.out and "an earlier audit read 1 erasure" in verified.out


def test_erasures_that_cannot_be_read_are_not_known(
    recon: Callable[..., Ended],  # noqa: F811
    kept: Project,
    project: Path,  # noqa: F811
) -> None:
    recon("forget", "--where", "customer_id = 7", *WHO, "--yes")
    for file in (project / "_recon" / "erasures").rglob("*.parquet"):
        file.unlink()
    recon("audit", "--no-spark", "--select", "test_name:ledger_integrity")
    (result,) = run_results.read(project / "target" / "run_results.json").results
    assert (result.status, [str(f.code) for f in result.findings]) == ("error", ["INCONCLUSIVE"])


def test_a_row_that_was_removed_without_an_erasure_is_no_erasure(kept: Project, project: Path) -> None:  # noqa: F811
    """What is removed by hand leaves no entry: the quarantine's log shows a DELETE, which audits look into."""
    DeltaTable(str(quarantine(project))).delete("customer_id = 7")
    from recon.base.storage import Storage
    from recon.judge.history.table_history import changes_rows, rows_lost
    from recon.witness import delta_log

    def removed() -> list[int | None]:
        commits = delta_log.read(Storage(str(quarantine(project)))).commits.values()
        return [rows_lost(commit) for commit in commits if changes_rows(commit)]

    assert erasures(kept) == [] and removed() == [1]
    forgetting = Forgetting(kept, "customer_id = 8")
    forgetting.erase(forgetting.found(), by="Carol", reason="ticket 12")
    assert removed() == [1, 0], "an erasure takes no row away"
    commits = delta_log.read(Storage(str(quarantine(project)))).commits.values()
    marks = [parse_erased(commit.user_metadata) for commit in commits]
    assert marks == [None, None, 1], "audits know its commit by the number of its entry"


@pytest.mark.parametrize("step", ["entered", "quarantine", "failures"])
def test_an_interrupted_erasure_is_run_again(kept: Project, project: Path, step: str) -> None:  # noqa: F811
    run = run_results.read(project / "target" / "run_results.json")

    def stop(at: str) -> None:
        if at == step:
            raise KeyboardInterrupt

    first = Forgetting(kept, "customer_id = 7", run=run)
    with pytest.raises(KeyboardInterrupt):
        first.erase(first.found(), by="Carol", reason="ticket 12", failpoint=stop)
    second = Forgetting(kept, "customer_id = 7", run=run)
    forgotten = second.erase(second.found(), by="Carol", reason="ticket 12")
    assert forgotten is not None and [len(result.samples) for result in forgotten.results] == [1]
    left = [row["failing_row"] for row in stored_failures(open_store(kept, FAILURES))]
    assert NAMES[7] not in str(left) and len(left) == 2
    assert NAMES[7] not in str(DeltaTable(str(quarantine(project))).to_pyarrow_table().to_pylist())
    assert erasures(kept)[0] == (1, 1, 1) and len(erasures(kept)) == 2


def test_a_dry_run_and_a_question_that_nobody_answers_erase_nothing(
    recon: Callable[..., Ended],  # noqa: F811
    kept: Project,
    project: Path,  # noqa: F811
) -> None:
    before = everything(project)
    dry = recon("forget", "--where", "customer_id = 7", "--dry-run")
    assert dry.code == 0 and ["orders", "orders", "1", "1", "1"] in [line.split() for line in dry.out.splitlines()]
    told = json.loads(recon("forget", "--where", "customer_id = 7", "--dry-run", "--output", "json").out)
    assert (told[0]["quarantined"], told[0]["failures"], told[0]["samples"]) == (1, 1, 1)
    asked = recon("forget", "--where", "customer_id = 7", *WHO)
    assert asked.code == 2 and same_message(asked.err.splitlines()[-1])
    nobody = recon("forget", "--where", "customer_id = 7", "--yes")
    assert nobody.code == 2 and same_message(nobody.err)
    assert everything(project) == before and erasures(kept) == []


def test_only_selected_checks(recon: Callable[..., Ended], kept: Project, project: Path) -> None:  # noqa: F811
    recon(
        "forget", "--where", "customer_id = 7", *WHO, "--yes", "--select", "unique_combination_of_columns_orders_a__b"
    )
    assert erasures(kept) == [] and NAMES[7] in everything(project)
    recon("forget", "--where", "customer_id = 7", *WHO, "--yes", "--select", "not_null_orders_status")
    assert erasures(kept) == [(0, 1, 1)], "rows in quarantine belong to no check of an audit"


@pytest.mark.parametrize("where", ["customer_id =", "1) OR (SELECT", "customer_id = 7; DROP TABLE r"])
def test_what_is_no_condition(kept: Project, where: str) -> None:
    with raises(ConfigError):
        Forgetting(kept, where).found()


def test_brackets_and_comments_of_a_condition_reach_no_further_than_it(kept: Project) -> None:
    """What was erased already is not erased, and counted, again."""

    def found(where: str) -> list[str]:
        return [row for one in Forgetting(kept, where).found() for row in one.quarantined]

    first = Forgetting(kept, "customer_id = 8")
    first.erase(first.found(), by="Carol", reason="ticket 12")
    assert found("customer_id = 7 -- of ticket 12") == ["id'7"]
    assert found("customer_id = 7) OR (1 = 1") == ["id'7"]


def test_conditions() -> None:
    rows = [{"id": 7, "Name": "it's"}, {"id": "7", "Name": None}, {"id": None, "Name": {"a": 1}}, {"x": 1}]
    assert matches(rows, "id = 7") == [True, False, False, None]
    assert matches(rows, "name = 'it''s' OR \"Name\" IS NULL") == [True, True, False, None]
    assert matches(rows, '"nosuch" = 7') == [None] * 4, "a name that no column has is no text"
    assert matches([], "id = 7") == []
