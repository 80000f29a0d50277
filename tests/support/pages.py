"""The examples on the pages: each fenced block of docs/ and README.md, parsed by Sybil, and what holds it to the code.

A block is evaluated by its language. `RUN_BY` names the pages whose Python (and the YAML that belongs to it) needs real
parts, and the tests that run it. A block that no test can run says why, in an HTML comment in the line above:

    <!-- not run: needs a bucket -->
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from sybil import Document, Example, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown.lexers import FencedCodeBlockLexer

from recon.audits.controls.catalog import catalog
from recon.base.errors import ConfigError
from recon.checks.binding import bind
from recon.cli.app import app
from recon.project import load

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))

# The tests that run a page's Python and what belongs to it; each names the page.
RUN_BY = {
    "README.md": ("tests/kafka/test_documented_stream.py",),
    "index.md": ("tests/kafka/test_documented_stream.py",),
    "api.md": ("tests/kafka/test_documented_stream.py",),
    "lost_checkpoint.md": ("tests/kafka/test_cookbook.py",),
    "recreated_topic.md": ("tests/kafka/test_cookbook.py",),
    "quarantine.md": ("tests/kafka/test_documented_stream.py",),
    "compare.md": ("tests/spark/test_documented_frames.py",),
    "files_sink.md": ("tests/spark/test_documented_frames.py",),
    "event_hubs.md": ("tests/unit/evidence/test_event_hubs.py",),
    "quickstart.md": ("tests/cases/test_quickstart.py",),
    "observe.md": ("tests/cases/test_quickstart.py", "tests/cases/test_own_function.py"),
    "progress.md": ("tests/spark/test_documented_frames.py",),
    "own_checks.md": ("tests/spark/test_own_checks_run.py", "tests/unit/checks/test_own_checks.py"),
    "own_sinks.md": ("tests/spark/test_own_sinks_run.py", "tests/support/own_sinks.py"),
}
_NEEDS_OWN = ("own_checks.md", "own_sinks.md")  # their YAML needs their Python
_KAFKA_TOOLS = ("kafka-configs.sh", "kafka-get-offsets.sh", "kafka-topics.sh")
EXTRAS = tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])

_BLOCK = FencedCodeBlockLexer(language=r"\w*")
_COMMENT = re.compile(r"<!-- not run: (?P<reason>[^>]+) -->\n[ \t]*\Z")
_python = PythonEvaluator()


def language(example: Example) -> str:
    """The language of a block; the empty text where the page names none."""
    return str(example.region.lexemes["language"])


def why_not_run(example: Example) -> str | None:
    """The reason that the page gives for a block that no test runs."""
    comment = _COMMENT.search(example.document.text, 0, example.region.start)
    return comment["reason"] if comment else None


def run_by(example: Example) -> tuple[str, ...]:
    """The tests that run this block because it needs more than its own text; none for most."""
    name = Path(example.path).name
    needs = language(example) == "python" or (language(example) == "yaml" and name in _NEEDS_OWN)
    return RUN_BY.get(name, ()) if needs else ()


@cache
def page(path: Path) -> Document:
    """A page with its blocks; the Python of a page shares one namespace."""

    def blocks(document: Document) -> Iterator[Region]:
        for region in _BLOCK(document):
            region.parsed = region.lexemes["source"]
            region.evaluator = _EVALUATORS[region.lexemes["language"]]
            yield region

    return Document.parse(str(path), blocks)


def examples(path: Path, *languages: str) -> list[Example]:
    """The blocks of a page in these languages, of all by default."""
    return [example for example in page(path) if not languages or language(example) in languages]


def run(
    path: Path,
    namespace: dict[str, Any],
    replaced: Mapping[str, str] | None = None,
    then: Callable[[], object] = lambda: None,
) -> None:
    """Runs the Python of a page, block by block, in one namespace.

    Args:
        path: the page.
        namespace: what the page takes for given; names that its blocks bind are added.
        replaced: texts of the page and what stands for them here, such as a bucket's address.
        then: called after each block, for instance to wait for a query.
    """
    for example in examples(path, "python"):
        source = str(example.parsed)
        for text, mine in (replaced or {}).items():
            source = source.replace(text, mine)
        lines = "\n" * (example.line + example.parsed.line_offset)
        exec(compile(lines + source, example.path, "exec", dont_inherit=True), namespace)
        then()


# recon.yml

_TOP = {"version": 2, "name": "lake", "ledger": "_recon"}
_PIPELINE = {"name": "orders", "checkpoint": "checkpoints/orders"}
_SINK = {"name": "orders", "target": "lake/orders"}
_CUSTOMERS = {"name": "customers", "target": "lake/customers"}  # which examples refer to


def _of_pipeline(**keys: Any) -> dict[str, Any]:
    return {"pipelines": [{**_PIPELINE, "sinks": [_SINK, _CUSTOMERS], **keys}]}


def _of_sink(**keys: Any) -> dict[str, Any]:
    return _of_pipeline(sinks=[{**_SINK, **keys}, _CUSTOMERS])


def projects(text: str) -> Iterator[str]:
    """The recon.yml files that a fragment can be a part of, the likeliest first."""
    part = yaml.safe_load(text)
    if set(part) == {"groups"}:  # rules of Prometheus
        return
    if "sinks" in part or "source" in part:
        yield _whole(_of_pipeline(**part))
    elif set(part) & {"data_tests", "columns"}:
        yield _whole(_of_sink(**part))
        if "data_tests" in part:
            yield _whole(_of_sink(columns=[{"name": "status", **part}]))
            yield _whole(_of_pipeline(**part))
            for source in ({"delta": "lake/events"}, {"files": "landing/events"}):
                yield _whole(_of_pipeline(source=source, **part))
    elif "scd2" in part:
        yield _whole(_of_sink(kind="delta_merge", keys=["id"], **part))
    else:  # a part of the top: as it stands, since YAML reads `on` as a key otherwise than it is written
        rest = {key: value for key, value in (_TOP | _of_pipeline()).items() if key not in part}
        yield "\n".join(f"{key}: {json.dumps(value)}" for key, value in rest.items()) + f"\n{textwrap.dedent(text)}"


def _whole(parts: dict[str, Any]) -> str:
    return json.dumps(_TOP | parts, indent=1)  # JSON keeps the quotes of Jinja


def check_project(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes a fragment as recon.yml into a folder, loads it and binds its checks.

    Raises:
        ConfigError: recon refuses it wherever it may stand.
    """
    for name in re.findall(r"env_var\('(\w+)'\)", text):
        monkeypatch.setenv(name, "jdbc:postgresql://localhost/shop" if name.endswith("_URL") else "secret")
    refused: list[ConfigError] = []
    for project in projects(text):
        (folder / "recon.yml").write_text(project)
        try:
            bind(load(folder))
        except ConfigError as error:
            refused.append(error)
        else:
            return
    if refused:
        raise refused[0]


# Commands


def commands(text: str) -> Iterator[list[str]]:
    """The commands of a console block: its lines after `$ `, or all lines where none has that."""
    lines = text.splitlines()
    typed = [line[2:] for line in lines if line.startswith("$ ")] or lines
    for line in typed:
        line = line.replace("<address of this repository>", "'<address of this repository>'")
        words = shlex.split(line.replace("…", "x"), comments=True)
        if any(word.startswith("[") for word in words):  # a synopsis
            continue
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if words:
            yield words


def check_command(words: list[str]) -> None:
    """Raises where a command of the pages does not exist, or does not take these options."""
    program, *rest = words
    if program == "recon":
        _check_recon(rest)
    elif program == "make":
        assert rest[0] in TARGETS, words
    elif program == "pip":
        assert rest[0] == "install" and re.fullmatch(rf"\./recon(\[({'|'.join(EXTRAS)})\])?", rest[1]), words
    elif program == "git":
        assert rest == ["clone", "<address of this repository>", "recon"], words
    elif program == "cd":
        assert len(rest) == 1, words
    elif program == "python":
        demo = {file.name for file in (ROOT / "recon/local/demo/templates").iterdir()}
        assert (ROOT / rest[0]).is_file() or rest[0] in demo, words
    elif program == "spark-submit":
        assert [word for word in rest if word.endswith(".py") and (ROOT / word).is_file()], words
    elif program in ("systemctl", "journalctl"):
        assert (ROOT / "examples/schedule" / rest[-1]).is_file(), words
    elif program.endswith(".sh"):
        assert program in _KAFKA_TOOLS, words
    else:
        assert program in (".venv/bin/pytest", ".venv/bin/python"), words


def _check_recon(words: list[str]) -> None:
    parsed_command(words)


def parsed_command(words: list[str]) -> tuple[str, Mapping[str, Any]]:
    """The name of a command of recon and what its words give it, as the command line reads them; runs nothing."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("recon", [], resilient_parsing=True)
    names = []
    # A group may be a command itself: recon compliance --from …
    while hasattr(group, "get_command") and not (words and words[0].startswith("-")):
        name, *words = words
        names.append(name)
        command = group.get_command(context, name)
        assert command is not None, f"recon has no command {name}"
        group, context = command, context.__class__(command, parent=context, info_name=name)
    return " ".join(names), group.make_context(group.name, words).params


# What holds a block of a language


def _yaml(example: Example) -> None:
    for test in examples(Path(example.path), "sql"):
        _write_sql_test(test.parsed, example.namespace["folder"])
    folder, monkeypatch = example.namespace["folder"], example.namespace["monkeypatch"]
    if example.parsed.startswith("# controls.yml\n"):
        (folder / "controls.yml").write_text(example.parsed)
        check_project("compliance: {controls: controls.yml}", folder, monkeypatch)
        assert catalog(load(folder))
    else:
        check_project(example.parsed, folder, monkeypatch)


def _console(example: Example) -> None:
    for words in commands(example.parsed):
        check_command(words)


def _json(example: Example) -> None:
    json.loads(example.parsed)


def _toml(example: Example) -> None:
    entry_points = tomllib.loads(example.parsed)["project"]["entry-points"]
    assert set(entry_points) <= {"recon.checks", "recon.sinks"}


def _sql(example: Example) -> None:
    """A SQL test is read by recon; anything else is SQL that a parser of its dialect reads."""
    import sqlglot

    folder = example.namespace["folder"]
    if _write_sql_test(example.parsed, folder):
        check_project("defaults: {severity: warn}", folder, example.namespace["monkeypatch"])
    else:
        assert sqlglot.parse_one(example.parsed, dialect="tsql" if "-- Azure SQL" in example.parsed else "databricks")


def _write_sql_test(text: str, folder: Path) -> bool:
    name = re.match(r"-- ((?:data_tests|macros)/[\w/]+\.sql)", text)
    if name is not None:
        (folder / name[1]).parent.mkdir(exist_ok=True)
        (folder / name[1]).write_text(text)
    return name is not None


def _untagged(example: Example) -> None:
    """Commands, where the first line is one; otherwise output, or a listing.

    Synopses (`recon try [--dir DIR]`) are left out: tests/unit/docs/test_cli_docs.py compares those of docs/cli.md.
    """
    first = example.parsed.splitlines()[0]
    if re.match(r"\$ |(recon|make|pip|cd|python) ", first) and Path(example.path).name != "cli.md":
        _console(example)


def _nothing(example: Example) -> None:
    """Output, or a listing."""


_EVALUATORS = {
    "python": _python,
    "yaml": _yaml,
    "console": _console,
    "json": _json,
    "toml": _toml,
    "sql": _sql,
    "text": _nothing,
    "": _untagged,
}
