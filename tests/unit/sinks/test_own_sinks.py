"""A kind of sink that an installed package offers: its keys, its promise, its writer, and packages that are broken."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recon.base.errors import ConfigError
from recon.project import DeltaSink, Project, load, sink_class, sink_kinds
from recon.testing import only_built_in
from recon.write.sinks import open_sink
from tests.support.messages import same_message
from tests.support.own_sinks import blocks, install
from tests.unit.cli.test_cli import Ended, recon  # noqa: F401


@pytest.fixture(autouse=True)
def nothing_is_left_installed() -> Iterator[None]:
    with only_built_in():
        yield
    sys.modules.pop("lake_sinks", None)


def entry_points_of_the_page() -> str:
    lines = tomllib.loads(blocks("toml")[0])["project"]["entry-points"]["recon.sinks"]
    return "\n".join(f"{kind} = {target}" for kind, target in lines.items())


def project(folder: Path, old: str = "", new: str = "") -> Project:
    (folder / "recon.yml").write_text(blocks("yaml")[0].replace(old, new))
    return load(folder)


def test_a_sink_of_an_installed_package_is_like_a_built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, entry_points_of_the_page())
    assert "json_lines" in sink_kinds() and "lake_sinks" not in sys.modules
    loaded = project(tmp_path)
    (sink,) = loaded.pipelines[0].sinks
    assert (sink.kind, sink.guarantee, sink.suffix) == ("json_lines", "exactly-once", ".ndjson")  # type: ignore[attr-defined]
    writer = open_sink(loaded, "orders", sink)
    assert type(writer).__name__ == "JsonLinesWriter"
    assert not writer.log().exists


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("suffix: .ndjson", "sufix: .ndjson"),
        ("suffix: .ndjson", "suffix: [a]"),
        ("kind: json_lines", "kind: json_line"),
        ("kind: json_lines", "kind: json"),
    ],
)
def test_its_keys_are_checked_by_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    install(tmp_path, monkeypatch, entry_points_of_the_page())
    with pytest.raises(ConfigError) as caught:
        project(tmp_path, old, new)
    assert same_message("recon.yml:" + str(caught.value).partition("recon.yml:")[2])


@pytest.mark.parametrize(
    "target", ["lake_snks:JsonLinesSink", "lake_sinks:JsonLines", "lake_sinks:JsonLinesWriter", "recon:Sink"]
)
def test_a_package_that_is_broken_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    recon: Callable[..., Ended],  # noqa: F811
) -> None:
    install(tmp_path, monkeypatch, f"json_lines = {target}")
    with pytest.raises(ConfigError) as caught:
        project(tmp_path)
    assert same_message("recon.yml:" + str(caught.value).partition("recon.yml:")[2])
    assert recon("sinks", "--kinds").code == 2


def test_a_kind_that_the_class_does_not_accept_and_a_writer_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "lines = lake_sinks:JsonLinesSink\n" + entry_points_of_the_page())
    with pytest.raises(ConfigError) as caught:
        project(tmp_path, "kind: json_lines", "kind: lines")
    assert same_message("recon.yml:" + str(caught.value).partition("recon.yml:")[2])
    loaded = project(tmp_path)
    sink = loaded.pipelines[0].sinks[0]
    monkeypatch.setattr(type(sink), "writer", "lake_sinks:JsonWriter")
    with pytest.raises(ConfigError) as caught:
        open_sink(loaded, "orders", sink)
    assert same_message(str(caught.value))


def test_a_package_cannot_take_a_built_in_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "delta = lake_sinks:JsonLinesSink")
    assert sink_class("delta") is DeltaSink


def test_recon_sinks_lists_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recon: Callable[..., Ended]) -> None:  # noqa: F811
    install(tmp_path, monkeypatch, entry_points_of_the_page())
    everything = {row["kind"]: row for row in json.loads(recon("sinks", "--kinds", "--output", "json").out)}
    assert everything["json_lines"]["guarantee"] == "exactly-once"
    (tmp_path / "recon.yml").write_text(blocks("yaml")[0])
    (row,) = json.loads(recon("sinks", "--output", "json").out)
    assert (row["sink"], row["kind"], row["guarantee"]) == ("orders.orders", "json_lines", "exactly-once")
