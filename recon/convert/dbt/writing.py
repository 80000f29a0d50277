"""Writes recon.yml: lists indented, text of several lines as blocks, Jinja unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from recon.convert.dbt.jinja import JINJA, unknown_jinja
from recon.convert.dbt.nodes import Comment, Table, recon_name


class _Dumper(yaml.SafeDumper):
    """Writes YAML as people do: lists indented, text of several lines as a block."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.strip() and text == text.strip() else None
    if match := _PLACEHOLDER.search(text):
        style = '"' if match[1] else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent)
# Private-use characters, which YAML lets through: Jinja that is put back when the YAML is written, and whether it
# holds single quotes.
_PLACEHOLDER = re.compile("\ue010(\ue012?)(\\d+)\ue011")


def project_text(
    name: str,
    *,
    command: str,
    written_from: str,
    defaults: Mapping[str, Any],
    tables: Sequence[Table],
    others: Sequence[str],
) -> str:
    """The text of recon.yml: one pipeline with a sink for each table, of which only data tests run.

    Nothing in the other tool's files says that a stream writes these tables, so no check looks for a ledger, a
    checkpoint or topics.

    Args:
        name: of the project.
        command: that wrote it.
        written_from: the name of the other tool's file or folder.
        defaults: the config of all tests.
        tables: tables with tests.
        others: names of tables that tests refer to and that are not among `tables`.
    """
    lines = [
        f"# Written by '{command}' from {written_from}.",
        "# TODO marks lines to check: folders are guesses. 'recon list' lists the checks.",
        "version: 2",
        f"name: {_scalar(name)}",
        "ledger: lake/_recon",
    ]
    if defaults:
        lines += _indented(dumped({"defaults": defaults}), "")
    if others:
        lines += ["tables:  # TODO: where the tables are that tests refer to"]
        for other in others:
            lines += [f"  - name: {_scalar(recon_name(other))}", f"    target: {_scalar(f'lake/{recon_name(other)}')}"]
    lines += [
        "pipelines:",
        "  # Only the rows of these tables are tested. A table that recon's hook writes gets a pipeline of its own,",
        "  # with checkpoint, topics and evidence checks.",
        f"  - name: {_scalar(name)}",
        "    checkpoint: none  # no stream",
        "    data_tests:",
        "      - ledger_integrity: {config: {enabled: false}}  # no ledger",
        "    sinks:",
    ]
    for table in tables:
        lines += _sink_lines(table)
    return "\n".join(lines) + "\n"


def _sink_lines(table: Table) -> list[str]:
    todo = "" if table.target else "  # TODO: the Delta table's path or URI"
    lines = [
        f"      - name: {_scalar(table.name)}",
        f"        target: {_scalar(table.target or f'lake/{table.name}')}{todo}",
        *_description_lines(table.description, " " * 8),
        *(_indented(dumped({"defaults": table.defaults}), " " * 8) if table.defaults else ()),
        *_test_lines("data_tests", table.tests, " " * 8),
    ]
    if table.columns:
        lines += ["        columns:"]
    for column, description, tests in table.columns:
        lines += [
            f"          - name: {_scalar(column)}",
            *_description_lines(description, " " * 12),
            *_test_lines("data_tests", tests, " " * 12),
        ]
    return lines


def dumped(value: Any) -> str:
    """YAML with its Jinja unchanged: recon.yml's Jinja runs before its YAML is read, so no quote may be escaped."""
    pieces: list[str] = []

    def protect(inner: Any) -> Any:
        if isinstance(inner, Mapping):
            return {key: protect(each) for key, each in inner.items()}
        if isinstance(inner, (list, tuple)):
            return [protect(each) for each in inner]
        return JINJA.sub(placeholder, inner) if isinstance(inner, str) else inner

    def placeholder(match: re.Match[str]) -> str:
        pieces.append(match[0])
        quotes = "\ue012" if "'" in match[0] else ""
        return f"\ue010{quotes}{len(pieces) - 1}\ue011"

    text = yaml.dump(protect(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000)
    return _PLACEHOLDER.sub(lambda match: pieces[int(match[2])], text).rstrip("\n")


def _scalar(text: str) -> str:
    """A text as YAML writes it behind a key, on one line."""
    return dumped({"k": text}).removeprefix("k: ")


def _indented(text: str, indent: str, mark: str = "") -> list[str]:
    return [f"{indent}{mark}{line}".rstrip() for line in text.split("\n")]


def _description_lines(text: str | None, indent: str) -> list[str]:
    if not text or unknown_jinja(text) is not None:  # such as {{ doc('x') }}, which only dbt can look up
        return []
    return _indented(dumped({"description": text.strip()}), indent)


def _test_lines(key: str, items: Iterable[Any], indent: str) -> list[str]:
    """A list of tests; a `Comment` among them is written as a YAML comment."""
    items = list(items)
    if not items:
        return []
    real = [item for item in items if not isinstance(item, Comment)]
    lines = [f"{indent}{key}:" if real else f"{indent}{key}: []"]
    for item in items:
        if isinstance(item, Comment):
            lines += _indented(item, f"{indent}  ", "# ")
        else:
            lines += _indented(dumped([item]), f"{indent}  ")
    return lines
