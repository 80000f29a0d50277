"""Jinja in dbt's YAML: which parts recon.yml's Jinja knows, references to other tables, and the project's variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from functools import lru_cache
from typing import Any

from jinja2 import Environment, TemplateError, meta, nodes
from jinja2.environment import TemplateExpression

from recon.base.errors import ReconError
from recon.project.sandbox import sandbox
from recon.project.templates import TemplateContext

JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
# The functions that recon.yml's Jinja knows; any other would stop the whole file from being read.
_KNOWN = frozenset(("var", "env_var", "ref"))
SOURCE = re.compile(r"""\bsource\(\s*['"]([^'"]+)['"]\s*,\s*['"]([^'"]+)['"]\s*\)""")
REF = re.compile(r"""\bref\(\s*(?:['"][^'"]+['"]\s*,\s*)?['"]([^'"]+)['"][^)]*\)""")
WRAPPED = re.compile(r"\{\{-?\s*(ref\([^)]*\))\s*-?\}\}")
_CALL = re.compile(r"\s*(?:env_var|var)\s*\(.+\)\s*", re.DOTALL)
_VAR = re.compile(r"""\s*\{\{-?\s*var\(\s*['"]([^'"]+)['"]\s*(?:,[^{}]*)?\)\s*-?\}\}\s*""")


def unknown_jinja(value: Any) -> str | None:
    """The first Jinja in a value that recon.yml does not know; None when there is none."""
    parts: Iterator[str | None]
    if isinstance(value, Mapping):
        parts = (unknown_jinja(inner) for inner in value.values())
    elif isinstance(value, list):
        parts = (unknown_jinja(inner) for inner in value)
    elif isinstance(value, str):
        text = SOURCE.sub("ref('x')", value)
        odd = [part for part in JINJA.findall(text) if not _is_known(part)]
        # Jinja that is opened and not closed stops Jinja from reading the file.
        parts = iter([*odd, *re.findall(r"\{[{%#].*", JINJA.sub("", text))])
    else:
        return None
    return next((part for part in parts if part is not None), None)


def _is_known(block: str) -> bool:
    """Whether recon.yml's Jinja can evaluate an expression: its names, and its filters."""
    environment = _of_recon()
    try:
        environment.compile(block)
        return block.startswith("{{") and meta.find_undeclared_variables(environment.parse(block)) <= _KNOWN
    except TemplateError:
        return False


@lru_cache(maxsize=1)
def _of_recon() -> Environment:
    return sandbox({}, [])


def calls_in_braces(value: Any) -> Any:
    """Arguments of a test in which `var('x')` without braces is what dbt makes of it: a call."""
    if isinstance(value, Mapping):
        return {key: calls_in_braces(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [calls_in_braces(inner) for inner in value]
    return f"{{{{ {value.strip()} }}}}" if isinstance(value, str) and _CALL.fullmatch(value) else value


class Variables:
    """The variables of a dbt project, as its tests see them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """`values` are the `vars` of dbt_project.yml; one without a value is not given, as for recon's var."""
        self.values = {
            name: str(value) if isinstance(value, date) else value
            for name, value in values.items()
            if value is not None
        }
        context = TemplateContext(self.values)
        self._environment = sandbox({"var": context.var, "env_var": context.env_var}, [])
        # dbt's filters that say which type a text has; `_is_true` and the like read the text of a boolean, too.
        for name in ("as_bool", "as_native", "as_number", "as_text"):
            self._environment.filters[name] = _unchanged
        self.written: dict[str, None] = {}  # those whose value took the place of var()

    def resolved(self, value: Any) -> Any:
        """A value of a test in which each `var('x')` has the project's value as its default.

        A text that is nothing but `var('x')` becomes the value itself where that is no text. dbt keeps lists and
        numbers there; recon.yml's Jinja gives text.
        """
        if isinstance(value, Mapping):
            return {key: self.resolved(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.resolved(inner) for inner in value]
        if not isinstance(value, str) or not JINJA.search(value):
            return value
        whole = _VAR.fullmatch(value)
        if whole and whole[1] in self.values and not isinstance(self.values[whole[1]], str):
            self.written[whole[1]] = None
            return self.values[whole[1]]
        return JINJA.sub(lambda block: self._with_defaults(block[0]), value)

    def _with_defaults(self, block: str) -> str:
        """A block of Jinja in which `var('x')` and `var('x', …)` have the project's value as their default."""
        try:
            tokens = [(kind, text) for _, kind, text in Environment().lex(block)]
        except TemplateError:
            return block  # what is not valid Jinja is reported as such
        written, at = "", 0
        while at < len(tokens):
            end, name = _call_of_var(tokens, at)
            if name in self.values:
                written += f"var({name!r}, {self.values[name]!r})"
            else:
                written += "".join(text for _, text in tokens[at:end])
            at = end
        return written

    def evaluated(self, value: Any) -> Any:
        """What dbt makes of a value of config; None where that is not known here, such as what `target` is."""
        if not isinstance(value, str) or not JINJA.search(value):
            return value
        (first, *others) = self._expressions(value)
        return self._evaluated(first) if not others and value.strip().startswith("{{") else None

    def configured(self, sql: str, key: str) -> tuple[bool, Any]:
        """Whether a model's file sets a key in `config(…)`, and its value; None for one that is not known here."""
        given, found = False, None  # of several calls the last counts
        for block, conditional in _blocks(sql):
            try:
                calls = list(self._environment.parse(block).find_all(nodes.Call))
            except TemplateError:
                continue
            for call in calls:
                if isinstance(call.node, nodes.Name) and call.node.name == "config":
                    for keyword in call.kwargs:
                        if keyword.key == key:
                            given, found = True, None if conditional else self._evaluated(keyword.value)
        return given, found

    def _expressions(self, text: str) -> list[nodes.Expr]:
        try:
            outputs = self._environment.parse(text.strip()).find_all(nodes.Output)
            return [node for output in outputs for node in output.nodes] or [nodes.Const(None)]
        except TemplateError:
            return [nodes.Const(None)]

    def _evaluated(self, expression: nodes.Expr) -> Any:
        tree = nodes.Template([nodes.Assign(nodes.Name("result", "store"), expression, lineno=1)], lineno=1)
        self._environment.begin()
        try:
            tree.set_environment(self._environment)
            return TemplateExpression(self._environment.from_string(tree), True)()
        except (ReconError, TemplateError, TypeError, ValueError, ArithmeticError, LookupError):
            return None


def _unchanged(value: Any) -> Any:
    return value


def _call_of_var(tokens: list[tuple[str, str]], at: int) -> tuple[int, str | None]:
    """The end of a call of `var` that begins at a token, and its variable's name; else the next token, and None."""
    code = [n for n in range(at, len(tokens)) if tokens[n][0] != "whitespace"][:3]
    if [tokens[n] for n in code[:2]] != [("name", "var"), ("operator", "(")] or code[0] != at:
        return at + 1, None
    if len(code) < 3 or tokens[code[2]][0] != "string":
        return at + 1, None
    depth = 0
    for n in range(code[1], len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[n][1], 0) if tokens[n][0] == "operator" else 0
        if depth == 0:
            return n + 1, tokens[code[2]][1][1:-1]
    return at + 1, None


def _blocks(sql: str) -> Iterator[tuple[str, bool]]:
    """The `{{ … }}` of a file, as Jinja's lexer divides it, and whether each is within an `if`."""
    try:
        block: list[str] = []
        depth, statement = 0, False
        for _, kind, text in Environment().lex(sql):
            if kind == "variable_begin" or block:
                block.append(text)
            if kind == "variable_end":
                yield "".join(block), depth > 0
                block = []
            if statement and kind == "name":
                depth += {"if": 1, "endif": -1}.get(text, 0)
            statement = kind == "block_begin" or (statement and kind == "whitespace")
    except TemplateError:
        return
