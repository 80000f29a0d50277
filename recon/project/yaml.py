"""Renders a YAML file by Jinja and parses it into a tree with line numbers.

Jinja runs in its sandbox and knows `env_var`, `var` and `ref`, as in dbt. Their values are inserted after the YAML is
parsed, so that no character of a password can change the structure of the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

from recon.base.credentials import HIDDEN
from recon.base.errors import ConfigError
from recon.project.sandbox import sandbox
from recon.project.secrets import mask
from recon.project.templates import (
    TemplateContext,
    bounded_range,
    compiled,
    display_path,
    read_text,
    reference,
    rendered,
    template_error,
)

_MOST_VALUES, _DEEPEST = 40_000, 100
_TOO_MANY = f"more than {_MOST_VALUES:,} values; an alias counts as all that its anchor holds"
_TOO_DEEP = f"values are nested more than {_DEEPEST} levels deep"
_LONG = 200_000  # characters; PyYAML's own parser takes a second for twice as many
_MOST_DIGITS = 1_000
# Private-use characters, which YAML and Jinja let through: a line's number, and a placeholder for a value.
_LINE = re.compile("\ue000(\\d+)\ue001")
_VALUE = re.compile("\ue002(\\d+)\ue003")
# A comment line that holds Jinja. dbt parses YAML first, so Jinja in a comment is never evaluated.
_COMMENT = re.compile(r"^([ \t]*#).*(?:\{\{|\{%|\{#).*$", re.MULTILINE)


@dataclass(frozen=True)
class LocatedValue:
    """A value of the file with its line; `items` are the located values inside a mapping or a list.

    The line of a mapping's item is the line of its key.
    """

    value: Any
    line: int
    items: Mapping[str | int, LocatedValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """A file that was read: its name for messages, its tree, and what messages must mask.

    `secrets` are the values that came from the environment, `named_secrets` those of variables named like a credential.
    `hidden_lines` are the lines that call env_var.
    """

    name: str
    root: LocatedValue
    secrets: frozenset[str] = field(repr=False)
    hidden_lines: frozenset[int]
    named_secrets: frozenset[str] = field(default=frozenset(), repr=False)

    def shown(self, value: Any, line: int) -> str:
        """A value of the file for a message; what came from the environment is masked."""
        if value is None:
            return "nothing"
        if isinstance(value, (list, tuple)):
            return "a list"
        if isinstance(value, Mapping):
            return "a mapping"
        text = str(value).lower() if isinstance(value, bool) else str(value)
        masked = HIDDEN if line in self.hidden_lines else mask(text, self.secrets)
        return f"'{masked}'" if isinstance(value, str) else masked


def read(file: Path, variables: Mapping[str, Any]) -> Document:
    """Reads a file as a tree.

    Raises:
        ConfigError: it cannot be read, or it is not valid Jinja or YAML; the message names the line.
    """
    name, source, context = display_path(file), read_text(file), TemplateContext(variables)
    text, lines, values = _render(name, source, context)
    root = _Tree(name, lines, values).build(text)
    hidden_lines = frozenset(n for n, row in enumerate(source.splitlines(), 1) if "env_var" in row)
    secrets, named = (frozenset(of - {""}) for of in (context.secrets, context.named_secrets))
    return Document(name, root, secrets, hidden_lines, named)


class _Verbatim(str):
    """A value that env_var, var or ref returned and no filter changed."""

    __slots__ = ()


def mapping(text: str) -> dict[str, Any] | None:
    """A mapping in YAML or JSON that stands in no file, such as `--vars`; None where it is none.

    Raises:
        ConfigError: it holds more values, or is nested deeper, than a recon.yml may be.
    """
    try:
        loader, node = _composed(text)
        if node is not None and _size(node, {}) > _MOST_VALUES:
            raise ConfigError(_TOO_MANY)
        value = loader.construct_document(node) if node is not None else None
    except (yaml.YAMLError, ValueError):
        return None
    return {str(key): each for key, each in value.items()} if isinstance(value, dict) else None


class _NumberLines(Extension):
    """Marks the start of each line of the template, so that loops and comments do not shift line numbers."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for token in stream:
            if token.type != "data":
                yield token
                continue
            first, *rest = token.value.split("\n")
            marked = [f"\ue000{token.lineno + n}\ue001{row}" for n, row in enumerate(rest, 1)]
            yield Token(token.lineno, "data", "\n".join([first, *marked]))


def _render(file: str, source: str, context: TemplateContext) -> tuple[str, list[int], list[str]]:
    """The rendered text, for each of its lines the line of the file it came from, and its placeholders' values."""
    values: list[str] = []

    def verbatim(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            value = function(*arguments, **named)
            return _Verbatim(value) if isinstance(value, str) else value

        return call

    def write(value: Any) -> Any:
        """What Jinja writes for an expression: a placeholder for a verbatim value, else its text."""
        if not isinstance(value, _Verbatim):
            return value
        values.append(str(value))
        return f"\ue002{len(values) - 1}\ue003"

    ref = verbatim(reference)
    functions = {"env_var": verbatim(context.env_var), "var": verbatim(context.var), "ref": ref, "source": ref}
    environment = sandbox({**functions, "range": bounded_range()}, [_NumberLines], write)
    try:
        text = rendered(compiled(environment, _COMMENT.sub(r"\1", source), file))
    except Exception as error:
        known = "recon.yml knows env_var('NAME'), var('name') and ref('table')"
        raise template_error(error, [file], file, 1, known) from None
    rows, lines, at = [], [], 1
    for row in text.split("\n"):
        mark = _LINE.search(row)
        at = int(mark.group(1)) if mark else at
        rows.append(_LINE.sub("", row))
        lines.append(at)
    return "\n".join(rows), lines, values


class _Loader(yaml.SafeLoader):
    """PyYAML's, which composes nested nodes by recursion, down to a depth."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node with all that is in it."""
        self._depth += 1
        if self._depth > _DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _TooMuch(None, None, _TOO_DEEP, mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _TooMuch(yaml.composer.ComposerError):
    """More values, or deeper ones, than a file may have."""


def _composed(text: str) -> tuple[Any, yaml.Node | None]:
    """The loader of a text, and its tree: by libyaml where it is there, which is eight times as fast.

    Raises:
        yaml.YAMLError: the text is not valid, or too much; in PyYAML's words, of a long one in libyaml's.
    """
    if yaml.__with_libyaml__:
        try:
            _require_bounded(text)
            of_c = yaml.CSafeLoader(text)
            return of_c, of_c.get_single_node()
        except _TooMuch:
            raise
        except yaml.YAMLError:
            if len(text) > _LONG:
                raise
    loader = _Loader(text)
    return loader, loader.get_single_node()


def _require_bounded(text: str) -> None:
    """Goes through a text before its tree is made, which libyaml makes by recursion without a bound."""
    values = depth = 0
    first: Any = None
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.NodeEvent):
            first = first or event.start_mark
            values += 1
            if values > _MOST_VALUES:
                raise _TooMuch(None, None, _TOO_MANY, first)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                mark: Any = event.start_mark
                raise _TooMuch(None, None, _TOO_DEEP, mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _size(node: yaml.Node, known: dict[yaml.Node, int]) -> int:
    """How many values a node holds, aliases counted each time; each node is looked at once."""
    if node not in known:
        known[node] = 1  # of an anchor that holds itself, which is refused later
        if isinstance(node, yaml.CollectionNode):
            inner = [part for child in node.value for part in (child if isinstance(child, tuple) else (child,))]
            known[node] += sum(_size(child, known) for child in inner)
    return known[node]


class _Tree:
    """Builds the tree from PyYAML's nodes, which carry line numbers."""

    def __init__(self, name: str, lines: list[int], values: list[str]) -> None:
        self.name = name
        self.lines = lines
        self.values = values
        self.flattened: set[yaml.Node] = set()

    def build(self, text: str) -> LocatedValue:
        try:
            self.loader, node = _composed(text)
            if node is not None and _size(node, {}) > _MOST_VALUES:
                raise self._refused(node.start_mark.line, _TOO_MANY)
            return LocatedValue(None, 1) if node is None else self._located(node, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            reason = error.problem or error.context or ""
            if reason.startswith("but "):
                reason = f"{error.context}, {reason}"
            if "'\\t'" in reason:
                reason += "; indent with spaces"
            elif isinstance(error, yaml.parser.ParserError | yaml.scanner.ScannerError):
                reason += "; check the indentation, brackets and quotes here and just above"
            raise self._refused(mark.line if mark else 0, reason) from None
        except yaml.reader.ReaderError as error:
            row = text.count("\n", 0, error.position)
            raise self._refused(row, f"{error.reason} ({error.character!r})") from None

    def _located(self, node: yaml.Node, above: tuple[yaml.Node, ...]) -> LocatedValue:
        if node in above:
            raise self._refused(node.start_mark.line, "an alias is inside its own anchor")
        line = self._line(node)
        if isinstance(node, yaml.ScalarNode):
            return LocatedValue(self._scalar(node), line)
        if node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise self._refused(node.start_mark.line, f"the tag {node.tag} is not known")
        items: dict[str | int, LocatedValue] = {}
        if isinstance(node, yaml.SequenceNode):
            for n, child in enumerate(node.value):
                items[n] = self._located(child, (*above, node))
            return LocatedValue([item.value for item in items.values()], line, items)
        assert isinstance(node, yaml.MappingNode)
        if node not in self.flattened:  # an alias refers to the same node
            self._require_unique_keys(node)
            self.loader.flatten_mapping(node)  # YAML's merge key, <<
            self.flattened.add(node)
        for key, child in node.value:
            inner = self._located(child, (*above, node))
            items[self._key(key)] = LocatedValue(inner.value, self._line(key), inner.items)
        return LocatedValue({k: item.value for k, item in items.items()}, line, items)

    def _require_unique_keys(self, node: yaml.MappingNode) -> None:
        """Raises for a key that a mapping has twice; YAML would silently take the last one."""
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            text = self._key(key)
            if text in seen:
                quoted = "a key" if _VALUE.search(key.value) else f"the key '{text}'"
                raise self._refused(key.start_mark.line, f"{quoted} is already given at line {seen[text]}")
            seen[text] = self._line(key)

    def _key(self, node: yaml.Node) -> str:
        value = self._scalar(node) if isinstance(node, yaml.ScalarNode) else None
        # YAML 1.1 reads `on` as true; as a key it is the word.
        if value is True and node.value == "on":
            return "on"
        if not isinstance(value, str):
            raise self._refused(node.start_mark.line, "a key must be a string; put it in quotes")
        return value

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        tag, text = node.tag, node.value
        if _VALUE.search(text):
            text = _VALUE.sub(lambda placeholder: self.values[int(placeholder.group(1))], text)
            if node.style is None:  # unquoted: the type (number, boolean, null) is resolved from the inserted value
                tag = self.loader.resolve(yaml.ScalarNode, text, (True, False))
        try:
            if len(text) > _MOST_DIGITS and tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
                raise ValueError(text[:_MOST_DIGITS])  # 1:1:1 is a number in YAML 1.1, of any length
            return self.loader.construct_object(yaml.ScalarNode(tag, text, node.start_mark, node.end_mark))
        except ValueError:
            kind = tag.rpartition(":")[2]
            raise self._refused(node.start_mark.line, f"a value is not a valid {kind}; put it in quotes") from None

    def _line(self, node: yaml.Node) -> int:
        return self.lines[min(node.start_mark.line, len(self.lines) - 1)]

    def _refused(self, row: int, reason: str) -> ConfigError:
        line = self.lines[min(row, len(self.lines) - 1)]
        return ConfigError(f"{self.name}:{line}: not valid YAML: {reason}")
