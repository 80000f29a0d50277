"""Jinja that cannot take minutes or gigabytes: of recon.yml, of its SQL tests, of dbt's YAML and of report templates.

No single step makes a value that is too large, and the time is checked between steps. Whatever repeats something is a
loop or a macro, and each turn is a step.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from math import inf
from typing import Any, TypeVar

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import Context, markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from recon.project.templates import too_large

MOST_OF_VALUE = 100_000  # characters and items of what an expression makes, and of what a filter gets
MOST_S = 0.7  # of processor time, for all expressions of a file
MOST_TOKENS = 40_000  # of Jinja in a file: `{{ a }}` has three; Jinja's compiler takes a second for them
_MOST_POWER = 1_000
# Filters that are put into the syntax tree: for `for`, for `~`, and around what is compared or is a key.
_COUNTED, _JOINED, _SMALL = "recon_counted", "recon_joined", "recon_small"
# Filters that are left out: they take long for a small text, and make nothing that belongs into a file.
_LEFT_OUT = ("pprint", "striptags", "urlize")
_OF_BYTES = ("encode", "to_bytes")  # no file has bytes, and their methods have no bounds here
# What a format writes with a width: `{:>9}`, `%(name)-9.3f`; and a field whose width another field has, `{:>{w}}`.
_FIELD = re.compile(r"\{[^{}]*\}|%(?:\([^)]*\))?[^a-zA-Z%]*")
_WIDTH = re.compile(r"\d{1,12}")
_NESTED = re.compile(r"\{[^{}]*\{")
T = TypeVar("T")


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with bounds on each file and each value, and on the time of one rendering."""

    intercepted_binops = frozenset(("*", "**", "%", "+"))

    def __init__(
        self,
        *,
        finalize: Callable[[Any], Any] | None = None,
        most_of_value: int = MOST_OF_VALUE,
        most_s: float = MOST_S,
        **options: Any,
    ) -> None:
        """`finalize` makes what Jinja writes of an expression's value, None as it is."""
        self._most_of_value, self._most_s = most_of_value, most_s

        def write(value: Any) -> Any:
            self.require_small(value)
            return value if finalize is None else finalize(value)

        self._clock = threading.local()  # processor time is a thread's
        super().__init__(finalize=write, **options)
        for name in _LEFT_OUT:
            del self.filters[name]
        self.filters = {name: self._bounded(name, of_jinja) for name, of_jinja in self.filters.items()}
        self.tests = {name: self._bounded("", of_jinja) for name, of_jinja in self.tests.items()}
        self.filters.update({_COUNTED: self.counted, _JOINED: self._joined, _SMALL: self._small})

    def begin(self) -> None:
        """A rendering begins, in this thread."""
        self._clock.until = time.thread_time() + self._most_s

    def step(self) -> None:
        """Raises SecurityError where the rendering takes too long."""
        if time.thread_time() > getattr(self._clock, "until", inf):
            raise SecurityError(
                f"loops and expressions take longer than {self._most_s:g} s; write what they make by hand"
            )

    def require_small(self, *values: Any) -> None:
        """Raises SecurityError where values are too large together."""
        self._require(size(values, self._most_of_value))

    def counted(self, items: Iterable[T]) -> Iterator[T]:
        """The items; before each of them the clock is looked at."""
        for item in items:
            self.step()
            yield item

    def _joined(self, values: Iterable[Any]) -> str:
        """What `~` makes."""
        values = list(values)
        self.require_small(values)
        return markup_join(values) if self.autoescape else str_join(values)

    def _small(self, value: T) -> T:
        """The value: a list that holds itself often over would be compared, or hashed, for hours."""
        self.require_small(value)
        return value

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An item; its key is small."""
        return super().getitem(obj, self._small(argument))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether an expression may use it: what makes bytes, it may not."""
        return attr not in _OF_BYTES and super().is_safe_attribute(obj, attr, value)

    def _tokenize(self, source: str, name: str | None, *more: Any, **named: Any) -> TokenStream:
        stream = super()._tokenize(source, name, *more, **named)
        return TokenStream(_counted_tokens(stream, name), name, stream.filename)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _Steps().visit(tree)
        tree.set_environment(self)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """What an operator makes is small, and is not made otherwise."""
        estimate = 0
        if operator == "**" and _times(right) > _MOST_POWER:
            raise too_large("a power", f"it is at most {_MOST_POWER:,}")
        if operator == "*":
            estimate = size(left) * _times(right) + size(right) * _times(left)
        elif operator == "%" and isinstance(left, str):
            estimate = _formats(left, right)
        self._require(estimate)
        made = super().call_binop(context, operator, left, right)
        self.require_small(made)
        return made

    def call(self, context: Context, function: Any, /, *arguments: Any, **named: Any) -> Any:
        """A method of a text makes no other that is too large."""
        self.require_small(arguments, named)
        method = getattr(function, "__wrapped__", function)  # Jinja wraps `format`
        of = getattr(method, "__self__", None)
        if isinstance(of, str):
            estimate: Callable[..., int] = _ESTIMATES.get(getattr(method, "__name__", ""), _any_width)
            self._require(estimate(of, *arguments, *named.values()))
        made = super().call(context, function, *arguments, **named)
        return self.counted(made) if isinstance(made, Iterator) else made

    def _require(self, estimate: int) -> None:
        self.step()
        if estimate > self._most_of_value:
            raise too_large("a value", f"an expression has at most {self._most_of_value:,} characters and items")

    def _bounded(self, name: str, of_jinja: Any) -> Callable[..., Any]:
        passes = 1 if getattr(of_jinja, "jinja_pass_arg", None) is not None else 0

        @wraps(of_jinja)
        def call(*arguments: Any, **named: Any) -> Any:
            given = (*arguments[passes:], *named.values())
            self.require_small(given)
            if name in _ESTIMATES:
                self._require(_ESTIMATES[name](*given))
            made = of_jinja(*arguments, **named)
            if isinstance(made, Iterator):
                return self.counted(made)
            self.require_small(made)
            return made

        return call


def sandbox(
    functions: Mapping[str, Any],
    extensions: Sequence[str | type[Extension]],
    finalize: Callable[[Any], Any] | None = None,
) -> Sandbox:
    """An environment in which templates can call these functions and nothing else."""
    environment = Sandbox(undefined=StrictUndefined, extensions=extensions, finalize=finalize, autoescape=False)
    environment.globals.clear()
    environment.globals.update(functions)
    return environment


class _Steps(NodeTransformer):
    """Puts the filters of the steps around what loops go through, and in place of `~`."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        """A loop; one that calls itself has no bound."""
        self.generic_visit(node)
        if node.recursive:
            raise SecurityError("a loop cannot be recursive here; write what it makes by hand")
        node.iter = _filter(_COUNTED, node.iter)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        """What is compared, on both sides."""
        self.generic_visit(node)
        node.expr = _filter(_SMALL, node.expr)
        for operand in node.ops:
            operand.expr = _filter(_SMALL, operand.expr)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        """A key of a mapping."""
        self.generic_visit(node)
        node.key = _filter(_SMALL, node.key)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """Texts put together by `~`."""
        self.generic_visit(node)
        return _filter(_JOINED, nodes.List(node.nodes, lineno=node.lineno))


def _filter(name: str, of: nodes.Node) -> nodes.Filter:
    return nodes.Filter(of, name, [], [], None, None, lineno=of.lineno)


def _counted_tokens(stream: TokenStream, name: str | None) -> Iterator[Token]:
    for n, token in enumerate(stream):
        if n >= MOST_TOKENS:
            raise TemplateSyntaxError(
                f"the file has more than {MOST_TOKENS:,} words and signs of Jinja", token.lineno, name, stream.filename
            )
        yield token


def size(value: Any, most: int = MOST_OF_VALUE) -> int:
    """Characters and items of a value, at any depth and however often a part is in it; counted up to a bound."""
    found, waiting = 0, [value]
    while waiting and found <= most:
        part = waiting.pop()
        if isinstance(part, (str, bytes)):
            found += len(part)
        elif isinstance(part, Mapping):
            found += len(part)
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, (list, tuple, set, frozenset)):
            found += len(part)
            waiting += part
        elif isinstance(part, int):
            found += part.bit_length() // 3
    return found


def _times(value: Any) -> int:
    return max(value, 0) if isinstance(value, int) else 0


def _any_width(of: Any, *arguments: Any) -> int:
    return size(of) + sum(map(_times, arguments))


def _each_line(of: Any, *arguments: Any) -> int:
    return size(of) + (str(of).count("\n") + 1) * sum(
        _times(a) + (len(a) if isinstance(a, str) else 0) for a in arguments
    )


def _replaced(of: Any, old: Any = "", new: Any = "", *_: Any) -> int:
    text, old = str(of), str(old)
    return len(text) + (text.count(old) if old else len(text) + 1) * len(str(new))


def _joins(of: Any, *arguments: Any) -> int:
    """`sep.join(items)` or `items|join(sep)`."""
    parts = (of, *arguments)
    separators = sum(len(part) for part in parts if isinstance(part, str))
    return size(parts) + separators * sum(len(part) for part in parts if isinstance(part, (list, tuple)))


def _formats(of: Any, *arguments: Any) -> int:
    text = str(of)
    if _NESTED.search(text.replace("{{", "")):
        raise SecurityError("a width within a format cannot be a field, as in {:{w}}; write the number")
    widths = sum(int(width) for field in _FIELD.findall(text) for width in _WIDTH.findall(field))
    values = [value for each in arguments for value in (each if isinstance(each, tuple) else (each,))]
    widths += text.count("*") * sum(map(_times, values))
    return len(text) + widths + (text.count("%") + text.count("{")) * size(arguments)


# The largest text or list that a method of a text or a filter makes of its arguments.
_ESTIMATES: Mapping[str, Callable[..., int]] = {
    "batch": _any_width,
    "center": _any_width,
    "expandtabs": lambda of, width=8: size(of) + str(of).count("\t") * _times(width),
    "format": _formats,
    "format_map": _formats,
    "indent": _each_line,
    "join": _joins,
    "replace": _replaced,
    "slice": _any_width,
    "translate": lambda of, table=(): size(of) * (1 + size(table)),
    "truncate": _any_width,
    "wordwrap": _any_width,
}
