"""What sinks promise: the table of `recon sinks`, the one of the docs, and the kinds of recon.yml."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recon import already_processed, batch_files, explain, foreach_batch, starting_offsets
from recon.base.errors import ConfigError, EvidenceError
from recon.project import load, sink_kinds
from recon.project.guarantees import guarantees
from tests.support.messages import raises
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401

PAGE = Path(__file__).parents[3] / "docs" / "sinks.md"


def test_every_kind_has_a_promise_and_a_line_in_the_docs() -> None:
    kinds = {kind for name, _ in guarantees() for kind in re.sub(r" \(.*", "", name).split(", ")}
    assert kinds == {*sink_kinds(), "routes"}
    for kind, promise in guarantees():
        line = f"| `{kind}` | {promise.label} | {promise.how} | {promise.needs} |"
        assert line in PAGE.read_text(), "run python scripts/sinks_page.py"


def test_a_kind_that_is_unknown_and_a_key_of_another_kind(tmp_path: Path) -> None:
    def message_of(sink: str) -> str:
        (tmp_path / "recon.yml").write_text(
            "version: 2\nname: n\nledger: l\npipelines:\n  - name: p\n    checkpoint: c\n    sinks:\n"
            f"      - {{name: ok, target: t}}\n      - {sink}\n"
        )
        with pytest.raises(ConfigError) as error:
            load(tmp_path)
        return "recon.yml:" + str(error.value).partition("recon.yml:")[2]

    unknown = message_of("{name: s, target: t, kind: delta_merg}")
    assert unknown.startswith("recon.yml:9: kind of sink 's' must be 'delta' or 'delta_merge' or ")
    assert unknown.endswith("found 'delta_merg'; did you mean 'delta_merge'?")
    assert message_of("{name: s, target: t, keys: [id]}").startswith("recon.yml:9: unknown key 'keys' in sink 's'")
    assert message_of("{name: s, target: t, kind: delta_merge}") == "recon.yml:9: missing key 'keys' in sink 's'"
    near = message_of("{name: s, target: t, kind: delta_merge, keys: [id], partition_byy: [d]}")
    assert near == "recon.yml:9: unknown key 'partition_byy' in sink 's'; did you mean 'partition_by'?"


def test_recon_sinks(recon: Callable[..., Ended], tmp_path: Path) -> None:  # noqa: F811
    everything = recon("sinks", "--kinds", "--output", "json")
    assert len(json.loads(everything.out)) == len(list(guarantees()))
    (tmp_path / "recon.yml").write_text(
        "version: 2\nname: n\nledger: l\npipelines:\n  - {name: p, checkpoint: c, sinks: [{name: s, target: t},"
        " {name: f, target: u, kind: json, mode: append}]}\n"
    )
    shown = recon("sinks")
    assert (shown.code, shown.err) == (0, "")
    assert "p.s (delta): exactly-once\n" in shown.out
    assert "p.f (json): at-least-once\n" in shown.out
    (first, second) = json.loads(recon("sinks", "--output", "json").out)
    assert (first["sink"], first["guarantee"], second["guarantee"]) == ("p.s", "exactly-once", "at-least-once")


@pytest.mark.parametrize(
    ("sink", "sentence"),
    [
        (
            "{name: s, target: t, kind: delta_merge, keys: [id], newer_wins: id}",
            "newer_wins of sink 's' is 'id', one of the keys; it has to tell rows of a key apart",
        ),
        (
            "{name: s, target: t, kind: delta_merge, keys: [id], scd2: {effective: ts, valid_from: id}}",
            "valid_from in scd2 of sink 's' is 'id', which is another column of the sink; name it otherwise",
        ),
        (
            "{name: s, target: t, kind: delta_merge, keys: [id], scd2: {effective: ts, valid_from: a, valid_to: a}}",
            "valid_to in scd2 of sink 's' is 'a', which is another column of the sink; name it otherwise",
        ),
        ("{name: s, target: t, kind: custom, write: 'a:b', declares: of each route}", None),
        ("{name: s, target: t, kind: [delta]}", None),
        ("{name: s, target: t, kind: jdbc_append, connection: 'jdbc:postgresql://u:hunter2@h/d'}", None),
    ],
)
def test_a_key_that_cannot_be_is_named_with_its_place(tmp_path: Path, sink: str, sentence: str | None) -> None:
    (tmp_path / "recon.yml").write_text(
        f"version: 2\nname: n\nledger: l\npipelines:\n  - name: p\n    checkpoint: c\n    sinks:\n      - {sink}\n"
    )
    with pytest.raises(ConfigError) as error:
        load(tmp_path)
    message = str(error.value).partition("recon.yml:8: ")[2]
    assert message and "hunter2" not in message
    if sentence is not None:
        assert message == sentence


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "jdbc_upsert", "connection": {"url": "jdbc:postgresql://h/d", "user": "u", "password": "hunter2"}},
        {"kind": "jdbc_upsrt", "connection": {"url": "jdbc:postgresql://h/d", "password": "hunter2"}},
        {"kind": "jdbc_append", "connection": "jdbc:postgresql://u:hunter2@h/d"},
        {"kind": "jdbc_append", "connection": {"url": "jdbc:postgresql://u:hunter2@h/d"}},
    ],
)
def test_foreach_batch_tells_no_secret(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        foreach_batch(pipeline="p", checkpoint="c", ledger="l", target="t", **options)
    assert "hunter2" not in str(error.value)
    assert str(error.value).startswith("foreach_batch: ")


def test_a_folder_without_manifests_is_no_empty_table(tmp_path: Path) -> None:
    with raises(EvidenceError):
        batch_files(str(tmp_path / "misspelt"))


def test_the_api_takes_a_folder_as_well_as_a_project(tmp_path: Path) -> None:
    for function in (explain, already_processed, starting_offsets):
        with raises(ConfigError):
            function(tmp_path, "p", 0) if function is already_processed else function(tmp_path, "p")  # type: ignore[operator]
