"""Jinja in recon.yml and in SQL tests: the sandbox, `env_var` and `var`, and errors with file and line."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from jinja2 import Template, TemplateSyntaxError, UndefinedError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from recon.base.errors import ConfigError
from recon.project.secrets import secret_parts

MOST_TEXT = 5_000_000  # characters of a file, as it is written and as it is rendered
MOST_NUMBERS = 1_000_000  # of all ranges of one rendering


class TemplateContext:
    """`env_var` and `var` for templates, as in dbt.

    `secrets` are the values that env_var returned, `named_secrets` those of variables with the name of a credential.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        """`variables` are the values of `var`."""
        self.variables = variables
        self.secrets: set[str] = set()
        self.named_secrets: set[str] = set()

    def env_var(self, name: str, default: Any = None) -> Any:
        """An environment variable, or the default; raises ConfigError where there is neither."""
        value = os.environ.get(name)
        if value is not None:
            self.secrets.add(value)
            self.named_secrets.update(secret_parts(name, value))
            return value
        if default is None:
            raise ConfigError(
                f"environment variable {name} is not set; export it, or give a default: env_var('{name}', 'default')"
            )
        return default

    def var(self, name: str, default: Any = None) -> Any:
        """A variable of --vars, or the default; raises ConfigError where there is neither."""
        value = self.variables.get(name, default)
        if value is None:
            raise ConfigError(
                f"variable {name} is not given; pass --vars '{{{name}: …}}', or give a default: "
                f"var('{name}', 'default')"
            )
        return value


def bounded_range() -> Callable[..., range]:
    """`range` for one rendering: all of them together give a million numbers at most."""
    given = 0

    def numbers(*arguments: int) -> range:
        nonlocal given
        made = range(*arguments)
        given += len(made)
        if given > MOST_NUMBERS:
            raise too_large("a range, or ranges within loops,")
        return made

    return numbers


def rendered(template: Template, **values: Any) -> str:
    """The template's text, with these variables.

    Raises:
        SecurityError: it is longer than a file may be.
    """
    parts, length = [], 0
    if (begin := getattr(template.environment, "begin", None)) is not None:
        begin()
    for part in template.generate(**values):
        parts.append(part)
        length += len(part)
        if length > MOST_TEXT:
            raise too_large("the rendered text")
    return "".join(parts)


def too_large(what: str, why: str = "") -> SecurityError:
    """What is refused, and the bound."""
    bounds = f"a file has at most {MOST_TEXT:,} characters, ranges {MOST_NUMBERS:,} numbers"
    return SecurityError(f"{what} is too large: {why or bounds}")


def compiled(environment: ImmutableSandboxedEnvironment, source: str, file: str) -> Template:
    """A file's template; the file's name is in the traceback of an error."""
    code = environment.compile(source, name=file, filename=file)
    return Template.from_code(environment, code, environment.globals)


def template_error(error: Exception, files: Container[str], file: str, line: int, known: str) -> ConfigError:
    """A template's error, with the file and line of the innermost template in its traceback.

    Another library's text may quote a secret, so of its errors only the type is named.

    Args:
        error: what Jinja or a called function raised.
        files: the names of the templates.
        file: the place of an error whose traceback has no template; `line` is its line.
        line: see `file`.
        known: the end of a message about an unknown name.
    """
    if isinstance(error, TemplateSyntaxError):
        return ConfigError(f"{error.filename or file}:{error.lineno}: not valid Jinja: {error.message}")
    trace = error.__traceback__
    while isinstance(trace, TracebackType):  # Jinja's tracebacks have the template's own file and line
        if trace.tb_frame.f_code.co_filename in files:
            file, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, ConfigError):
        message = str(error)
    elif isinstance(error, UndefinedError):
        message = f"{error.message}; {known}"
    elif isinstance(error, SecurityError):
        message = str(error).rstrip(".")
    else:
        message = f"a Jinja expression fails with {type(error).__name__}; check its filters and arguments"
    return ConfigError(f"{file}:{line}: {message}")


def reference(*names: str) -> str:
    """`ref('orders')`, the way dbt's YAML refers to another table; it stays text until the table is opened."""
    return f"ref({', '.join(repr(str(name)) for name in names)})"


def display_path(file: Path) -> str:
    """The path relative to the working directory where it is inside, else absolute."""
    absolute = file.absolute()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


def read_text(file: Path) -> str:
    """A file's text.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        size = file.stat().st_size
        if size > MOST_TEXT:
            raise ConfigError(f"{display_path(file)} has {size:,} bytes; recon reads files of at most {MOST_TEXT:,}")
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{display_path(file)} cannot be read as UTF-8 text: {error}") from error
