"""What sinks promise: the table of `recon sinks`, the one of the docs, and the kinds of recon.yml."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recon.errors import ConfigError
from recon.project import KINDS, load
from recon.project.guarantees import guarantees
from recon.sinks import _WRITERS
from tests.unit.test_cli import Ended, recon  # noqa: F401

PAGE = Path(__file__).parents[2] / "docs" / "sinks.md"


def test_every_kind_has_a_promise_a_writer_and_a_line_in_the_docs() -> None:
    told = {kind for name, _ in guarantees() for kind in re.sub(r" \(.*", "", name).split(", ")}
    assert told == {*KINDS, "routes"}
    assert set(_WRITERS) == set(KINDS)
    for kind, promise in guarantees():
        line = f"| `{kind}` | {promise.label} | {promise.how} | {promise.needs} |"
        assert line in PAGE.read_text(), "run python scripts/sinks_page.py"


def test_a_kind_that_is_unknown_and_a_key_of_another_kind(tmp_path: Path) -> None:
    def said(sink: str) -> str:
        (tmp_path / "recon.yml").write_text(
            "version: 2\nname: n\nledger: l\npipelines:\n  - name: p\n    checkpoint: c\n    sinks:\n"
            f"      - {{name: ok, target: t}}\n      - {sink}\n"
        )
        with pytest.raises(ConfigError) as error:
            load(tmp_path)
        return "recon.yml:" + str(error.value).partition("recon.yml:")[2]

    unknown = said("{name: s, target: t, kind: delta_merg}")
    assert unknown.startswith("recon.yml:9: kind of sink s must be 'delta' or 'delta_merge' or ")
    assert unknown.endswith("found 'delta_merg'; did you mean 'delta_merge'?")
    assert said("{name: s, target: t, keys: [id]}").startswith("recon.yml:9: unknown key 'keys' in sink 's'")
    assert said("{name: s, target: t, kind: delta_merge}") == "recon.yml:9: missing key 'keys' in sink 's'"
    near = said("{name: s, target: t, kind: delta_merge, keys: [id], partition_byy: [d]}")
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
