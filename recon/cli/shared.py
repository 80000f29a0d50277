"""What all commands share: options, the project, and the one place that turns errors into messages and exit codes."""

from __future__ import annotations

import functools
import inspect
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO, cast, get_type_hints

import typer

from recon.base.clock import utc_now
from recon.base.credentials import without_credentials
from recon.base.errors import ConfigError, ReconError
from recon.base.instants import instant
from recon.base.text import did_you_mean, first_line, inert, inert_json, short_path

if TYPE_CHECKING:
    from rich.console import Console

    from recon.checks.bound import Bound
    from recon.project import Project

INTERRUPTED = 130
_WIDE: ContextVar[bool] = ContextVar("wide", default=False)  # --wide, for the tables of this command
_MASK: ContextVar[Callable[[str], str]] = ContextVar("mask", default=without_credentials)  # of this command's project

SelectOption = Annotated[
    list[str] | None,
    typer.Option("--select", "-s", help="Checks to run: name, tag:x, sink:x, test_name:x, result:fail; repeatable."),
]
ExcludeOption = Annotated[list[str] | None, typer.Option("--exclude", help="Checks to leave out; repeatable.")]
FromOption = Annotated[
    str | None, typer.Option("--from", help="Start: a date or time (UTC without an offset), or how long ago: 24h, 7d.")
]
ToOption = Annotated[
    str | None, typer.Option("--to", help="End, like --from; a bare date includes that day. Default: now.")
]
PeriodFromOption = Annotated[
    str | None, typer.Option("--from", help="Start of the period: a date or time, or 30d ago.")
]
PeriodToOption = Annotated[str | None, typer.Option("--to", help="End of the period; a bare date includes that day.")]
PipelineOption = Annotated[str | None, typer.Option("--pipeline", help="Only this pipeline.")]
SinkOption = Annotated[str | None, typer.Option("--sink", help="Only this sink.")]
ByOption = Annotated[str | None, typer.Option("--by", help="Who does it; by default the user of the operating system.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Why, for the ledger and the compliance report.")]
TargetPathOption = Annotated[
    Path | None, typer.Option("--target-path", help="Folder for results; by default target_path of recon.yml.")
]
OutputFormat = Literal["text", "json"]
OutputOption = Annotated[OutputFormat, typer.Option("--output", help="text for people, json for programs.")]


@dataclass(frozen=True)
class SharedOptions:
    """The options of every command, which may also be given before its name."""

    project_dir: Annotated[
        Path | None,
        typer.Option(
            "--project-dir", help="Folder of recon.yml; by default the nearest, from the current folder upwards."
        ),
    ] = None
    variables: Annotated[
        str | None, typer.Option("--vars", help="Values of var('name') in recon.yml and SQL tests: '{name: value}'.")
    ] = None
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False
    no_color: Annotated[bool, typer.Option("--no-color", help="Print no colours; NO_COLOR does the same.")] = False
    wide: Annotated[
        bool, typer.Option("--wide", help="Wrap no cell of a table: a line per row, however narrow the terminal.")
    ] = False


def called(command: str) -> str:
    """A command of this environment as a shell takes it: its name, or its path where the name leads elsewhere.

    So after `make try`, whose environment nobody activates.
    """
    here, found = Path(sys.executable).with_name(command), shutil.which(command)
    return command if not here.exists() or (found and here.samefile(found)) else short_path(here)


class Session:
    """One run of a command: its shared options, and the project, read when first needed."""

    def __init__(self, options: SharedOptions, before: Session | None = None) -> None:
        """Options given after the command's name override those given `before` it."""
        self.project_dir: Path | None = options.project_dir or (before.project_dir if before else None)
        self.debug: bool = options.debug or (before is not None and before.debug)
        self.variables: dict[str, Any] = dict(before.variables) if before else {}
        self._project: Project | None = None
        self.wide: bool = options.wide or (before is not None and before.wide)
        _WIDE.set(self.wide)
        _MASK.set(self.mask)
        if options.no_color:
            os.environ["NO_COLOR"] = "1"  # read by rich and by the processes that we start
        with self.guarded():
            self.variables |= _mapping(options.variables)

    def folder(self) -> Path:
        """The folder of recon.yml.

        Raises:
            ConfigError: no recon.yml was found.
        """
        from recon.project import find

        return self.project_dir if self.project_dir is not None else find(Path.cwd())

    def project(self) -> Project:
        """The project; recon.yml is read once.

        Raises:
            ConfigError: recon.yml is missing or cannot be used.
        """
        from recon.project import load

        if self._project is None:
            self._project = load(self.folder(), self.variables)
        return self._project

    def with_variables(self, variables: Mapping[str, Any]) -> None:
        """Adds variables; those of --vars override them. The project is read again."""
        self.variables = {**variables, **self.variables}
        self._project = None

    @property
    def has_project(self) -> bool:
        """Whether recon.yml was read."""
        return self._project is not None

    def target(self, chosen: Path | None) -> Path:
        """The folder for results: an option is relative to the current folder, recon.yml's path to its own.

        Raises:
            ConfigError: it is not on this machine, or the name of a catalog table.
        """
        from recon.project import locations

        if chosen is not None:
            here, text = Path.cwd(), str(chosen)
            problem = locations.misplaced(text, here, local=True, instead="this is a folder: write its path")
            if problem:
                raise ConfigError(f"--target-path {problem}")
            return locations.on_this_machine(text, here)
        return self.project().local_path(self.project().target_path)

    def check_names(self, pipeline: str | None, sink: str | None) -> None:
        """Checks that recon.yml has this pipeline and this sink.

        Raises:
            ConfigError: it does not; the message names the nearest.
        """
        project = self.project()
        if pipeline is not None and sink is not None:
            project.find_sink(pipeline, sink)
        elif pipeline is not None:
            project.find_pipeline(pipeline)
        elif sink is not None:
            sinks = dict.fromkeys(s.name for p in project.pipelines for s in p.sinks)
            if sink not in sinks:
                raise ConfigError(f"recon.yml has no sink {sink!r}{did_you_mean(sink, sinks, 'it has')}")

    def mask(self, text: str) -> str:
        """The text with the project's secrets masked."""
        return without_credentials(text) if self._project is None else self._project.mask(text)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turns every error into one line on stderr and an exit code; the only place that does.

        What is printed meanwhile has no secret of the project in it.
        """
        streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (cast(TextIO, _Masked(stream, self)) for stream in streams)
        try:
            yield
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            self._complain("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reading end of the pipe was closed (`recon list | head`): no error, and nobody would read one.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except ReconError as error:
            self._complain(str(error))
            raise typer.Exit(2) from None
        except Exception as error:
            hint = "" if self.debug else "; run it again with --debug for the traceback"
            message = first_line(error) if str(error).strip() else ""
            self._complain(f"unexpected {type(error).__name__}{f': {message}' if message else ''}{hint}")
            raise typer.Exit(2) from None
        finally:
            sys.stdout, sys.stderr = streams

    def _complain(self, sentence: str) -> None:
        if self.debug:
            typer.echo(self.mask(traceback.format_exc()), err=True)
        typer.echo(self.mask(f"Error: {' '.join(self.mask(sentence).split())}"), err=True)


class _Masked:
    """A text stream that masks what is written to it, and in which nothing from data acts."""

    def __init__(self, stream: TextIO, session: Session) -> None:
        self._stream, self._session = stream, session

    def write(self, text: str) -> int:
        """Writes the text, masked and inert."""
        return self._stream.write(inert(self._session.mask(text), styled=self._stream.isatty()))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def with_session(function: Callable[..., None]) -> Callable[..., None]:
    """`function(session, …)` for typer: with the shared options, run inside `Session.guarded`.

    A parameter whose type is a dataclass of options becomes these options. The function's own options come first in
    the help, the shared ones last.
    """
    hints = get_type_hints(function, include_extras=True) | {"shared": SharedOptions}
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    def run(context: typer.Context, **values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{option.name: values.pop(option.name) for option in fields(group)})
        # Also for the commands below this one, which get it as `before`.
        session = context.obj = Session(values.pop("shared"), context.obj)
        if context.invoked_subcommand is not None:
            return
        with session.guarded():
            function(session, **values)

    _, *own = _parameters(function)
    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for parameter in (*own, *_parameters(SharedOptions)):
        parameters += _parameters(groups[parameter.name]) if parameter.name in groups else [parameter]
    functools.update_wrapper(run, function, assigned=("__name__", "__doc__", "__module__"))
    del run.__dict__["__wrapped__"]
    # typer reads these.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function, or of a dataclass, with their types resolved."""
    hints = get_type_hints(function, include_extras=True)
    return [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(function).parameters.items()
    ]


def period(from_: str | None, to: str | None) -> tuple[datetime | None, datetime | None]:
    """--from and --to as UTC times; None where an option was not given.

    Raises:
        ConfigError: one of them is not a time, or the end does not come after the start.
    """
    now = utc_now()
    start, end = instant("--from", from_, now=now), instant("--to", to, ends=True, now=now)
    if start is not None and (end or now) <= start:
        raise ConfigError(f"the period is empty: --from {from_} is not before {f'--to {to}' if to else 'now'}")
    return start, end


def required_period(from_: str | None, to: str | None) -> tuple[datetime, datetime]:
    """--from and --to as UTC times, both of which are required.

    Raises:
        ConfigError: one was not given, is not a time, or the end does not come after the start.
    """
    if from_ is None or to is None:
        raise ConfigError(f"give the {'begin' if from_ is None else 'end'} of the period: --from … --to …")
    start, end = period(from_, to)
    assert start is not None and end is not None
    return start, end


def print_json(value: Any) -> None:
    """Prints a value as JSON, and nothing else, on stdout."""
    from recon.model import plain

    typer.echo(inert_json(json.dumps(plain(value), indent=2, ensure_ascii=False)))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints rows as a table, numbers aligned to the right.

    No cell is cut: on a terminal that is too narrow cells are wrapped, or each row becomes lines of header and cell.
    With --wide, and into a file or a pipe, each row is one line.
    """
    from recon.cli.tables import natural_width, table

    # A wrapped cell would be masked line by line.
    body = [[_MASK.get()(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    out = console(piped_width=1000)
    if _WIDE.get() or not out.is_terminal:
        texts = [["-" if cell is None else str(cell) for cell in row] for row in body]
        out = console(piped_width=1000, width=max(natural_width(headers, texts) + 1, out.width))
    out.print(table(headers, body, out.width), soft_wrap=_WIDE.get())


def console(piped_width: int, width: int | None = None) -> Console:
    """Rich's console; `piped_width` columns wide into a file or a pipe, or as wide as `width` says."""
    from rich.console import Console

    return Console(highlight=False, width=width or (None if Console().is_terminal else piped_width))


def chosen_checks(
    session: Session,
    select: Sequence[str] | None,
    exclude: Sequence[str] | None = None,
    last_statuses: Mapping[str, str] | None = None,
) -> list[Bound]:
    """The project's checks that the options choose; prints a warning for each selector that matches no check.

    Args:
        session: has the project.
        select: selectors; all checks when None.
        exclude: selectors of checks to leave out.
        last_statuses: each check's status in the last run, for `result:` selectors.
    """
    from recon.checks.binding import bind
    from recon.checks.select import select as choose
    from recon.checks.select import unmatched

    selected, excluded, checks = select or [], exclude or [], bind(session.project())
    chosen = choose(checks, selected, excluded, last_statuses)
    for sentence in unmatched(checks, [*selected, *excluded], last_statuses):
        typer.echo(f"Warning: {sentence}", err=True)
    return chosen


def assignments(option: str, texts: Sequence[str] | None, form: str) -> dict[str, str]:
    """An option of the form name=value, given any number of times.

    Raises:
        ConfigError: one is not of this form; `form` shows it.
    """
    values: dict[str, str] = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip() or not value.strip():
            raise ConfigError(f"{option} '{text}' is not of the form {form}")
        values[name.strip()] = value.strip()
    return values


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turns a failed write into an error that names the file or folder."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{place} cannot be written: {error.strerror or error}; choose another folder") from error


def _mapping(text: str | None) -> dict[str, Any]:
    """--vars as a mapping."""
    if text is None:
        return {}
    from recon.project.yaml import mapping

    try:
        variables = mapping(text)
    except ConfigError as error:
        raise ConfigError(f"--vars: {error}") from None
    if variables is None:
        raise ConfigError("--vars must be a mapping in YAML or JSON, such as '{day: 2026-11-01, team: payments}'")
    return variables
