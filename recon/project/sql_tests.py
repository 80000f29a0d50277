"""A project's own SQL: `data_tests/*.sql` and `macros/*.sql`, rendered by Jinja as in dbt.

A singular test is a SELECT that returns failing rows. A generic test is a `{% test name(model, …) %}` block that
recon.yml lists like a built-in check. Jinja runs in its sandbox. Tables that a template refers to are not opened here:
the rendered text has a placeholder for each, which the caller replaces by a relation's name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import safe_range

from recon.base.errors import ConfigError
from recon.project.checks import CheckConfig, config_of
from recon.project.sandbox import sandbox
from recon.project.secrets import mask
from recon.project.templates import (
    TemplateContext,
    compiled,
    display_path,
    read_text,
    reference,
    rendered,
    template_error,
)

MACROS = "macros"
GENERIC = "generic"
MODEL = "model"  # the reference that stands for the tested rows

# Private-use characters, which Jinja lets through and SQL does not use: the number of a reference.
_REFERENCE = re.compile("\ue004(\\d+)\ue005")
_WRITTEN = re.compile(r"""\s*(?:\{\{)?\s*((?:ref|source)\(\s*(['"]).+?\2\s*(?:,\s*(['"]).+?\3\s*)?\))\s*(?:\}\})?\s*""")
_KNOWN = "SQL tests know ref, source, var, env_var, config and the project's macros"


@dataclass(frozen=True)
class Rendered:
    """A rendered test: its SQL with placeholders, their references in order of first use, and its `config(…)`.

    `secrets` are the values that env_var returned; messages must not show them.
    """

    text: str = field(repr=False)
    references: tuple[str, ...]
    config: CheckConfig
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    def sql(self, names: Sequence[str]) -> str:
        """The SQL with a relation's name for each reference."""
        return _REFERENCE.sub(lambda placeholder: names[int(placeholder[1])], self.text)

    def mask(self, text: str) -> str:
        """The text with the secrets masked."""
        return mask(text, self.secrets, shortest=4)


@dataclass(frozen=True)
class Singular:
    """One file of a test path: `name` is its stem, `file` its path for messages."""

    name: str
    file: str
    path: Path


@dataclass(frozen=True)
class Generic:
    """One `{% test %}` block. `arguments` maps each argument except `model` to whether it is required."""

    name: str
    file: str
    line: int
    arguments: Mapping[str, bool]


@dataclass
class _Rendering:
    """The references and the config of the template that is being rendered."""

    references: dict[str, int] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    def placeholder(self, name: str) -> str:
        return f"\ue004{self.references.setdefault(name, len(self.references))}\ue005"


_RENDERING: ContextVar[_Rendering | None] = ContextVar("recon_sql_rendering", default=None)


@dataclass(eq=False)
class SqlTests:
    """The SQL tests of one project; each file is read once, on first use.

    `paths` are folders of tests in `folder`, that of recon.yml; where they `must_exist`, a missing one is an error.
    """

    folder: Path
    paths: Sequence[str]
    context: TemplateContext
    must_exist: bool

    def __getstate__(self) -> dict[str, Any]:
        """Without the compiled templates, which cannot be pickled and are read again."""
        return {name: value for name, value in vars(self).items() if name != "_library"}

    @cached_property
    def singular(self) -> Sequence[Singular]:
        """All files of the test paths except those in `generic`, in the order of their paths.

        Raises:
            ConfigError: a configured path is missing, or two files have one name.
        """
        tests: dict[str, Singular] = {}
        for folder in self._test_folders():
            for path in _sql_files(folder):
                if path.is_relative_to(folder / GENERIC):
                    continue
                test = Singular(path.stem, display_path(path), path)
                if test.name in tests:
                    raise ConfigError(
                        f"{test.file} and {tests[test.name].file} would both be the test {test.name!r}; rename one"
                    )
                tests[test.name] = test
        return list(tests.values())

    @property
    def generic(self) -> Mapping[str, Generic]:
        """The project's own generic tests by name."""
        return self._library.generic

    def render(self, test: Singular) -> Rendered:
        """A singular test as SQL.

        Raises:
            ConfigError: the template fails; the message names file and line.
        """
        library = self._library
        source = read_text(test.path)
        return self._run(lambda: library.template(source, test.file), test.file, 1)

    def render_generic(self, test: Generic, arguments: Mapping[str, Any]) -> Rendered:
        """A generic test with its arguments as SQL; the tested rows are the reference `MODEL`.

        The text `ref('orders')` as an argument becomes that relation, as in dbt.

        Raises:
            ConfigError: the template fails; the message names file and line.
        """
        library = self._library

        def driver() -> Template:
            values = {name: self._argument(value) for name, value in arguments.items()}
            body = library.macro(f"test_{test.name}")
            driving = library.environment.from_string("{{ body() }}")
            # Jinja puts its lines into a traceback only where the error passes through a template's own render.
            driving.globals = {**driving.globals, "body": lambda: body(model=self._refer(MODEL), **values)}
            return driving

        return self._run(driver, test.file, test.line)

    def _run(self, template: Callable[[], Template], file: str, line: int) -> Rendered:
        rendering = _Rendering()
        token = _RENDERING.set(rendering)
        self._library.environment.begin()
        try:
            text = rendered(template())
            config = config_of(rendering.config)
        except Exception as error:
            raise template_error(error, self._library.files, file, line, _KNOWN) from None
        finally:
            _RENDERING.reset(token)
        if not text.strip():
            raise ConfigError(f"{file}:{line}: renders to nothing; a SQL test is a SELECT that returns failing rows")
        return Rendered(text, tuple(rendering.references), config, frozenset(self.context.secrets - {""}))

    # -- what templates call -------------------------------------------------------------------------

    def _refer(self, *names: str) -> str:
        rendering = _RENDERING.get()
        if rendering is None:
            raise ConfigError("ref and source can only be called inside a test or a macro")
        return rendering.placeholder(names[0] if names == (MODEL,) else reference(*names))

    def _ref(self, *names: Any) -> str:
        texts = [name for name in names if isinstance(name, str) and name]
        if len(texts) != len(names) or len(texts) not in (1, 2):
            raise ConfigError("ref takes a table's name, or a pipeline's and its sink's: ref('orders')")
        return self._refer(*texts)

    def _argument(self, value: Any) -> Any:
        reference_text = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
        if reference_text is None:
            return value
        return self._ref(*re.findall(r"""['"](.+?)['"]""", reference_text[1]))

    def _take_config(self, *mappings: Any, **keys: Any) -> str:
        rendering = _RENDERING.get()
        if rendering is not None:
            for mapping in (*mappings, keys):
                if not isinstance(mapping, Mapping):
                    raise ConfigError("config takes keys and values: config(severity='warn')")
                rendering.config.update(mapping)
            config_of(rendering.config)  # validated here, so that the message has its line
        return ""

    # -- files ---------------------------------------------------------------------------------------

    def _test_folders(self) -> Iterator[Path]:
        for path in self.paths:
            folder = self.folder / path
            if folder.is_dir():
                yield folder
            elif self.must_exist:
                raise ConfigError(f"test_paths names {path!r} and there is no folder {display_path(folder)}")

    @cached_property
    def _library(self) -> _Library:
        folders = [self.folder / MACROS, *(folder / GENERIC for folder in self._test_folders())]
        known: dict[str, Any] = {
            "ref": self._ref,
            "source": self._ref,
            "config": self._take_config,
            "env_var": self.context.env_var,
            "var": self.context.var,
            "range": safe_range,
        }
        return _Library([path for folder in folders for path in _sql_files(folder)], known)


class _TestTag(Extension):
    """`{% test name(model) %} … {% endtest %}`: a macro named `test_name`, as in dbt."""

    tags = {"test", "data_test"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        """The block as a macro."""
        tag = next(parser.stream)
        macro = nodes.Macro(lineno=tag.lineno)
        macro.name = f"test_{parser.parse_assign_target(name_only=True).name}"
        parser.parse_signature(macro)
        macro.body = parser.parse_statements(("name:endtest", "name:enddata_test"), drop_needle=True)
        return macro


class _Library:
    """The macros and generic tests of all files; each may call all others by name."""

    def __init__(self, paths: Sequence[Path], known: Mapping[str, Any]) -> None:
        self.environment = sandbox(known, [_TestTag, "jinja2.ext.do"])
        self.environment.filters["sql_literal"] = sql_literal
        self.files: set[str] = set()
        self.generic: dict[str, Generic] = {}
        self._homes: dict[str, Template] = {}
        for path in paths:
            self._add(path, reserved=known)

    def template(self, source: str, file: str) -> Template:
        """A file's template; errors in it name its file and line."""
        self.files.add(file)
        return compiled(self.environment, source, file)

    def _add(self, path: Path, reserved: Mapping[str, Any]) -> None:
        file = display_path(path)
        source = read_text(path)
        try:
            macros = list(self.environment.parse(source, file, file).find_all(nodes.Macro))
            template = self.template(source, file)
        except TemplateSyntaxError as error:
            raise template_error(error, self.files, file, 1, _KNOWN) from None
        for macro in macros:
            where = f"{file}:{macro.lineno}"
            if macro.name in reserved:
                raise ConfigError(f"{where}: a macro cannot be named {macro.name!r}, which is a name of recon's own")
            if macro.name in self._homes:
                raise ConfigError(f"{where}: {macro.name!r} is also in {self._homes[macro.name].filename}; rename one")
            self._homes[macro.name] = template
            self.environment.globals[macro.name] = self.macro(macro.name)
            if macro.name.startswith("test_"):
                self._add_test(macro, file, where)

    def _add_test(self, macro: nodes.Macro, file: str, where: str) -> None:
        name = macro.name.removeprefix("test_")
        takes = [argument.name for argument in macro.args]
        if MODEL not in takes:
            raise ConfigError(f"{where}: test {name!r} must take the argument 'model', the tested rows")
        required = len(takes) - len(macro.defaults)
        arguments = {argument: at < required for at, argument in enumerate(takes) if argument != MODEL}
        self.generic[name] = Generic(name, file, macro.lineno, arguments)

    def macro(self, name: str) -> Callable[..., str]:
        """The macro, looked up when it is called: files may call each other in any order."""

        def call(*arguments: Any, **named: Any) -> str:
            return str(getattr(self._homes[name].module, name)(*arguments, **named))

        return call


def sql_literal(value: Any) -> str:
    r"""A value as a literal of Spark SQL: text quoted and escaped, a list in parentheses, None as NULL.

    >>> sql_literal("it's"), sql_literal(["a", 1, None]), sql_literal(True)
    ("'it\\'s'", "('a', 1, NULL)", 'true')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, Decimal)):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, Sequence) and value:
        return f"({', '.join(map(sql_literal, value))})"
    raise ConfigError(f"sql_literal knows no SQL for a value of type {type(value).__name__}, or for an empty list")


def _sql_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.sql") if path.is_file()) if folder.is_dir() else []
