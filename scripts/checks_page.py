"""Write docs/checks.md from the docstrings of the checks; `python scripts/checks_page.py`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from recon.checks.base import Check, EvidenceCheck
from recon.checks.data.grouped import GroupableCheck
from recon.checks.data_check import JointCheck, KeyCheck, QueryCheck, RowCheck, SchemaCheck, WholeCheck
from recon.checks.registry import REGISTRY, check_class

PAGE = Path(__file__).parents[1] / "docs" / "checks.md"

_INTRO = """\
# Every check

<!-- written by scripts/checks_page.py from the docstrings of the checks; edit those -->

Checks are listed in `data_tests` of a pipeline, a sink or a column; [recon.yml](recon_yml.md) shows how, and which
`config` each takes: `severity`, `where`, `warn_if`, `error_if`, `limit` and so on. Names and arguments are dbt's and
dbt_utils' where those have the check; the prefix `dbt_utils.` may stay. A check of your own is a class like these: see
[checks of your own](own_checks.md).

What holds for all checks on rows: `where` leaves rows out before anything is measured. On zero rows a check is
*skipped*, never passed, unless its text below says otherwise; `if_empty: pass` or `if_empty: fail` in the config
decides differently. What cannot be evaluated (an unknown column, a type that does not fit, an expression that Spark
refuses) is status *error* of that check, and the others still run. Failing rows are fetched for failed checks only,
those of one table in one Spark job.
"""

# What a check derives from is what it costs.
_FAMILIES: tuple[tuple[type[Check], str, str, str], ...] = (
    (
        RowCheck,
        "shared scan",
        "In the one scan that they share",
        "All of a table's are measured in one Spark job, equal aggregates once, and no other columns are read.",
    ),
    (
        KeyCheck,
        "own grouping",
        "With a grouping of their own",
        "The table is grouped by a key; checks with the same key and `where` share the grouping.",
    ),
    (
        QueryCheck,
        "own query",
        "With a query of their own",
        "Each costs a Spark job on this table and, where it names one, another.",
    ),
    (WholeCheck, "own jobs", "With jobs of their own", "Each measures the table itself."),
    (
        JointCheck,
        "another library",
        "By another library",
        "All with one `where` are measured together by another library.",
    ),
    (SchemaCheck, "no Spark job", "By the schema alone", "No row is read, and no Spark job runs."),
    (
        EvidenceCheck,
        "no Spark",
        "On evidence",
        "These compare the ledger with the checkpoint, the sink's record and Kafka, and need no JVM. [Evidence checks]"
        "(evidence_checks.md) says of each how it decides and what its codes mean.",
    ),
)


@dataclass
class Docstring:
    """A docstring in its parts: Args as text by name; `notes` are Usual, Zero rows and Cost."""

    summary: str
    prose: list[str] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    example: str = ""


def read(check: type) -> Docstring:
    """The docstring of a check, or of a class that it derives from."""
    first, _, rest = (vars(check).get("__doc__") or "").partition("\n")
    blocks = re.split(r"\n(?=\S)", "\n" + textwrap.dedent(rest).strip())
    docstring = Docstring(first.strip())
    for block in blocks:
        head, _, body = block.strip("\n").partition("\n")
        if head == "Args:":
            docstring.arguments = dict(_entries(textwrap.dedent(body)))
        elif head in ("Usual:", "Zero rows:", "Cost:"):
            docstring.notes[head[:-1]] = " ".join(body.split())
        elif head == "Example:":
            docstring.example = textwrap.dedent(body).strip()
        elif block.strip():
            docstring.prose.append(block.strip("\n"))
    docstring.prose = re.split(r"\n\s*\n", "\n".join(docstring.prose)) if docstring.prose else []
    return docstring


def _entries(body: str) -> Iterator[tuple[str, str]]:
    """`name: text` lines with what is indented below them."""
    for entry in re.split(r"\n(?=\S)", body.strip()):
        name, _, text = entry.partition(":")
        yield name, " ".join(text.split())


def argument_texts(check: type[Check]) -> dict[str, str]:
    """The text of each argument, the check's own or inherited; required ones first, and the column before all."""
    texts: dict[str, str] = {}
    for base in check.__mro__:
        for name, text in read(base).arguments.items():
            texts.setdefault(name, text)
    needed = required(check)
    mine = [name for name in texts if name in arguments(check)]
    ordered = sorted(mine, key=lambda name: (name not in needed, name in needed and name != "column_name"))
    return {name: texts[name] for name in ordered}


def note(check: type[Check], name: str) -> str:
    """A check's section `Usual`, `Zero rows` or `Cost`: its own, or that of a class that it derives from."""
    return next((text for base in check.__mro__ if (text := read(base).notes.get(name))), "")


def required(check: type[Check]) -> list[str]:
    """The arguments that have no default."""
    return [n for n, f in arguments(check).items() if f.default is MISSING and f.default_factory is MISSING]


def arguments(check: type[Check]) -> dict[str, Field[Any]]:
    """A check's arguments by name."""
    return check.argument_fields()


def example(check: type[Check]) -> str:
    """The docstring's example, or the plain one of a check that needs no arguments but a column."""
    if written := read(check).example:
        return written
    must = required(check)
    if not must:
        return f"data_tests:\n  - {check.test}"
    if must == ["column_name"]:
        return f"columns:\n  - name: order_id\n    data_tests: [{check.test}]"
    raise SystemExit(f"{check.__name__} needs {must}: give its docstring an Example: section")


def family(check: type[Check]) -> int:
    """Which of the families a check is of."""
    return next(i for i, (base, *_) in enumerate(_FAMILIES) if issubclass(check, base))


def cost(check: type[Check]) -> str:
    """The cost class of a check."""
    short = _FAMILIES[family(check)][1]
    if issubclass(check, GroupableCheck):
        return f"{short}; own grouping with `group_by_columns`"
    if issubclass(check, EvidenceCheck) and check.reads_rows:
        return "reads the sink's rows with Spark where a question is left"
    return short


def page() -> str:
    """The whole page."""
    checks = {name: check_class(name) for name in REGISTRY}
    out = [_INTRO, "| check | finds | cost |\n| --- | --- | --- |"]
    ordered = sorted(checks, key=lambda name: family(checks[name]))
    out[-1] += "".join(f"\n| [`{n}`](#{n}) | {_finds(checks[n])} | {cost(checks[n])} |" for n in ordered)
    for at, (_, _, title, text) in enumerate(_FAMILIES):
        mine = [name for name in ordered if family(checks[name]) == at]
        if mine:
            out += [f"\n## {title}\n\n{textwrap.fill(text, 120)}", *(_section(name, checks[name]) for name in mine)]
    return "\n".join(out).rstrip() + "\n"


def _section(name: str, check: type[Check]) -> str:
    docstring = read(check)
    notes = {name: note(check, name) for name in ("Usual", "Zero rows", "Cost")}
    if issubclass(check, EvidenceCheck) and check.reads_rows:
        notes["Cost"] = f"{cost(check)}; otherwise {notes['Cost']}"
    shown = [textwrap.fill(f"{title}: {text}", 120) for title, text in notes.items() if text]
    parts = [f"\n### {name}", docstring.summary, *docstring.prose, *shown]
    if taken := arguments(check):
        hints = _hints(check)
        rows = ["| argument | type | default | |", "| --- | --- | --- | --- |"]
        for argument, text in argument_texts(check).items():
            rows.append(f"| `{argument}` | {hints[argument]} | {_default(taken[argument])} | {_cell(text)} |")
        parts.append("\n".join(rows))
    if issubclass(check, EvidenceCheck):
        parts.append(f"How it decides, and its codes: [evidence checks](evidence_checks.md#{name}).")
    parts.append(f"```yaml\n{example(check)}\n```")
    return "\n\n".join(parts)


def _finds(check: type[Check]) -> str:
    return _cell(re.sub(r" \(dbt_utils' test of this name\)", "", read(check).summary))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _hints(check: type[Check]) -> Mapping[str, str]:
    hints = get_type_hints(check)
    return {name: _cell(_type(hints[f.name])) for name, f in arguments(check).items()}


def _type(hint: Any) -> str:
    """A field's type in the words of YAML."""
    plain = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "value"}
    if hint in plain:
        return plain[hint]
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(part) for part in inner if part is not NoneType))
    if is_dataclass(hint):
        return f"`{{{', '.join(f.name for f in fields(hint))}}}`"
    if isinstance(get_origin(hint), type) and issubclass(get_origin(hint), Mapping):
        return "mapping"
    if get_origin(hint) is not None and inner:
        return f"list of {_type(inner[0])}"
    return "value"


def _default(of: Field[Any]) -> str:
    if of.default is MISSING:
        return "required" if of.default_factory is MISSING else ""
    if of.default is None or of.default == ():
        return ""
    return f"`{str(of.default).lower() if isinstance(of.default, bool) else of.default}`"


if __name__ == "__main__":
    PAGE.write_text(page())
