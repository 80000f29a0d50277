"""Renders the templates: values are escaped, control characters made visible, and a page fetches nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.model import NextStep
from recon.reports import sums, words
from recon.text import plural

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment

_TEMPLATES = Path(__file__).parent / "templates"


def html(template: str, script: str = "page.js", **values: Any) -> str:
    """Renders a `*.html.j2` template with one of recon's scripts; its content security policy allows no other."""
    from markupsafe import Markup

    source = (_TEMPLATES / script).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    env = _environment(escape=True)
    return env.get_template(template).render(
        **values,
        script=Markup(source),  # our own files, without any data in them
        style=Markup((_TEMPLATES / "page.css").read_text(encoding="utf-8")),
        # No network and no script but ours, whatever text the data contains.
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:",
    )


def fragment(template: str, **values: Any) -> str:
    """Renders a `*.html.j2` template that is a part of another page, without style or script."""
    return _environment(escape=True).get_template(template).render(**values)


def markdown(template: str, **values: Any) -> str:
    """Renders a `*.md.j2` template, which passes values from data through the `md` filter."""
    return _environment(escape=False).get_template(template).render(**values)


def _environment(*, escape: bool) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # autoescape is a constant: select_autoescape() would leave *.j2 names unescaped.
    env = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        bytecode_cache=_compiled_before(),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    env.filters.update(
        number=words.number,
        when=words.when,
        day=words.day,
        harm=words.harm,
        sentence=_sentence,
        capitalized=_capitalized,
        by_purpose=_by_purpose,
        md=_markdown_cell,
    )
    env.globals.update(
        age=words.age,
        account_rows=sums.account_rows,
        adds_up=sums.adds_up,
        offsets=words.offsets,
        period=words.period,
        plural=plural,
        harms=words.HARMS,
        sink_name=words.sink_name,
        topic_partition=words.topic_partition,
    )
    return env


def _compiled_before() -> BytecodeCache | None:
    """Templates that an earlier process of this user compiled, which takes a tenth of a second; None without a place.

    They are in a folder of the system's temporary one that this user alone may read.
    """
    from jinja2 import FileSystemBytecodeCache
    from jinja2.bccache import Bucket

    class Cache(FileSystemBytecodeCache):
        def load_bytecode(self, bucket: Bucket) -> None:
            with suppress(OSError):
                super().load_bytecode(bucket)

        def dump_bytecode(self, bucket: Bucket) -> None:
            with suppress(OSError):  # a full disk: the report is rendered nevertheless
                super().dump_bytecode(bucket)

    try:
        return Cache(pattern="recon_%s.cache")
    except (OSError, RuntimeError):
        return None


def _visible(value: Any) -> Any:
    """Control and text-direction characters as escapes, so that data can neither hide nor reorder text."""
    if type(value) is not str or value.isprintable():
        return "" if value is None else value
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in value)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?" else text + "."


def _by_purpose(steps: Sequence[NextStep]) -> list[tuple[str, list[NextStep]]]:
    """Commands that are for the same thing together, in their order."""
    return [(purpose, list(same)) for purpose, same in groupby(steps, key=lambda step: step.purpose)]


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _markdown_cell(value: Any) -> str:
    """A value from data as inert Markdown: no markup, no line break, no table border of its own."""
    text = words.one_line("" if value is None else str(value))
    for character in "\\`*_[]|~":
        text = text.replace(character, "\\" + character)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
