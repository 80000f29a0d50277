"""Jinja in dbt's YAML: which parts recon.yml's Jinja knows, and references to other tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
# The functions that recon.yml's Jinja knows; any other would stop the whole file from being read.
_KNOWN = re.compile(r"\{\{-?\s*(?:var|env_var|ref)\s*\(")
SOURCE = re.compile(r"""\bsource\(\s*['"]([^'"]+)['"]\s*,\s*['"]([^'"]+)['"]\s*\)""")
REF = re.compile(r"""\bref\(\s*(?:['"][^'"]+['"]\s*,\s*)?['"]([^'"]+)['"][^)]*\)""")
WRAPPED = re.compile(r"\{\{-?\s*(ref\([^)]*\))\s*-?\}\}")


def unknown_jinja(value: Any) -> str | None:
    """The first Jinja in a value that recon.yml does not know; None when there is none."""
    parts: Iterator[str | None]
    if isinstance(value, Mapping):
        parts = (unknown_jinja(inner) for inner in value.values())
    elif isinstance(value, list):
        parts = (unknown_jinja(inner) for inner in value)
    elif isinstance(value, str):
        text = SOURCE.sub("ref('x')", value)
        odd = [part for part in JINJA.findall(text) if not _KNOWN.match(part)]
        # Jinja that is opened and not closed stops Jinja from reading the file.
        parts = iter([*odd, *re.findall(r"\{[{%#].*", JINJA.sub("", text))])
    else:
        return None
    return next((part for part in parts if part is not None), None)
