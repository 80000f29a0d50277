"""Renders the templates: values are escaped, control characters made visible, and a page fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recon.base.text import plural
from recon.model import NextStep
from recon.model.positions import partition_name
from recon.reports import sums, words

if TYPE_CHECKING:
    from jinja2 import BytecodeCache, Environment

_TEMPLATES = Path(__file__).parent / "templates"
_SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
# GitHub makes links of these, and tells the people whom they name: a zero width space keeps them text.
_LINKS = re.compile(r"(@|#|://|\bwww)")


def html(
    template: str,
    script: str = "page.js",
    templates: Path | None = None,
    *,
    sealed_style: str = "",
    **values: Any,
) -> str:
    """Renders a `*.html.j2` template with one of recon's scripts; its content security policy allows no other.

    `templates` is a folder of the user's, whose files replace or extend recon's. A page with `sealed_style`, a file
    behind page.css, has no style but these two, and the policy allows no other.

    Raises:
        ConfigError: a template of that folder has a fault.
    """
    from markupsafe import Markup

    source = (_TEMPLATES / script).read_text(encoding="utf-8")
    names = ("page.css", sealed_style) if sealed_style else ("page.css",)
    style = "".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in names)
    styles = f"{_source(style)}; form-action 'none'; base-uri 'none'" if sealed_style else "'unsafe-inline'"
    page = {
        **values,
        "script": Markup(source),  # our own files, without any data in them
        "style": Markup(style),
        # No network and no script but ours, whatever text the data contains.
        "policy": f"default-src 'none'; style-src {styles}; script-src {_source(source)}; img-src data:",
    }
    return _rendered(template, page, templates, escape=True)


def _source(text: str) -> str:
    """A source expression of a content security policy that allows this text alone."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def fragment(template: str, **values: Any) -> str:
    """Renders a `*.html.j2` template that is a part of another page, without style or script."""
    return _environment(escape=True).get_template(template).render(**values)


def markdown(template: str, templates: Path | None = None, **values: Any) -> str:
    """Renders a `*.md.j2` template, which passes values from data through the `md` or the `github` filter.

    Raises:
        ConfigError: a template of the user's folder `templates` has a fault.
    """
    return _rendered(template, values, templates, escape=False)


def _rendered(template: str, values: Mapping[str, Any], templates: Path | None, *, escape: bool) -> str:
    if templates is None:
        return _environment(escape=escape).get_template(template).render(**values)
    from recon.reports import own_templates

    return own_templates.render(_environment(escape=escape, templates=templates), templates, template, values)


def _environment(*, escape: bool, templates: Path | None = None) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    options: dict[str, Any] = {
        "autoescape": escape,  # a constant: select_autoescape() would leave *.j2 names unescaped
        "undefined": StrictUndefined,
        "trim_blocks": True,
        "lstrip_blocks": True,
        "finalize": _visible,
    }
    if templates is not None:
        from recon.reports import own_templates

        return _equipped(own_templates.environment(templates, _TEMPLATES, **options))
    loader = FileSystemLoader(_TEMPLATES)
    return _equipped(Environment(loader=loader, bytecode_cache=_compiled_before(), **options))


def _equipped(env: Environment) -> Environment:
    """With recon's filters and functions."""
    env.filters.update(
        number=words.number,
        when=words.when,
        day=words.day,
        harm=words.harm,
        sentence=_sentence,
        capitalized=_capitalized,
        by_purpose=_by_purpose,
        md=_markdown_cell,
        github=github,
    )
    env.globals.update(
        age=words.age,
        account_rows=sums.account_rows,
        adds_up=sums.adds_up,
        offsets=words.offsets,
        partition_name=partition_name,
        size=words.size,
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


class Inert(str):
    """Text of data that was made inert: nothing in it is shown as an escape."""

    __slots__ = ()


def github(text: str) -> Inert:
    """A value from data as text in GitHub's Markdown: no markup, no link, nobody's name that GitHub would tell."""
    escaped = _LINKS.sub("\\1\u200b", _SPECIAL.sub(r"\\\1", words.one_line(str(text))))
    return Inert(escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


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
