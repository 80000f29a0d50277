"""The commands as typer has them, each built when it is looked up.

An audit does not wait until the modules of all other commands are imported and their options are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typing_extensions import override

from recon.cli.shared import with_session

Function = str | Callable[..., None]


class Group(NamedTuple):
    """A command with subcommands, by name: each is another group, or a function `f(session, …)`.

    A function is given itself or as `module:name` of this room, to be imported when it is needed. `alone` is run where
    no subcommand is named; without it, help is shown.
    """

    help: str
    commands: Mapping[str, Function | Group]
    alone: Function | None = None


def new_app(group: Group) -> typer.Typer:
    """The typer application of a group, with plain help; `Session.guarded` handles its errors."""
    app = _plain(group.help, cls=_group_of(group.commands), no_args_is_help=group.alone is None)
    if group.alone is not None:
        app.callback(invoke_without_command=True, help=group.help)(with_session(_imported(group.alone)))
    else:
        app.callback(help=group.help)(_nothing)
    return app


class _Commands(Mapping[str, Any]):
    """The commands of a group; one is built when it is first looked up."""

    def __init__(self, entries: Mapping[str, Function | Group]) -> None:
        self._entries = entries
        self._built: dict[str, Any] = {}

    @override
    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            entry = self._entries[name]
            self._built[name] = typer.main.get_command(new_app(entry) if isinstance(entry, Group) else _single(entry))
            self._built[name].name = name
        return self._built[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    @override
    def __len__(self) -> int:
        return len(self._entries)


def _group_of(entries: Mapping[str, Function | Group]) -> type[TyperGroup]:
    """A class of which typer makes the group itself."""

    class OfTable(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**{**settings, "commands": _Commands(entries)})

    return OfTable


def _single(function: Function) -> typer.Typer:
    """An application of one command, which typer turns into that command."""
    app = _plain()
    app.command()(with_session(_imported(function)))
    return app


def _plain(help: str | None = None, **settings: Any) -> typer.Typer:
    return typer.Typer(
        help=help, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **settings
    )


def _imported(function: Function) -> Callable[..., None]:
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    found: Callable[..., None] = getattr(import_module(f"recon.cli.{module}"), name)
    return found


def _nothing() -> None:
    """A group without a command of its own."""
