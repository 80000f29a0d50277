"""recon advise: what would make a stream run better, with the arithmetic."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from recon.cli.shared import OutputOption, PipelineOption, Session, command, print_json
from recon.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recon.streams.facts import Advice

_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_UNITS = {"ms": "milliseconds", "s": "seconds", None: "seconds", "m": "minutes", "h": "hours"}
_MARKS = {"change": ("CHANGE", "yellow"), "keep": ("KEEP", "green"), "unknown": ("UNKNOWN", "dim")}


def add_to(app: typer.Typer) -> None:
    """Registers this module's command."""
    command(app, "advise")(advise)


def advise(
    session: Session,
    pipeline: PipelineOption = None,
    target_batch_time: Annotated[
        str, typer.Option("--target-batch-time", help="What a micro-batch may take: 10s, 500ms, 2m.")
    ] = "10s",
    cores: Annotated[
        int | None,
        typer.Option("--cores", min=1, help="Cores that run the query's tasks; by default as recorded."),
    ] = None,
    output: OutputOption = "text",
) -> None:
    """Recommend settings, with the arithmetic.

    From a week's recorded progress, recon.yml and what Kafka says now. Nothing is changed.
    """
    target = _length(target_batch_time)
    session.check_names(pipeline, None)

    from recon.streams.advise import advise as advised

    found = advised(session.project(), pipeline, target=target, cores=cores)
    if output == "json":
        print_json(found)
    else:
        _print(found)


def _print(found: Sequence[Advice]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120)
    told = None
    for advice in found:
        if advice.pipeline != told:
            told = advice.pipeline
            console.print(Text(f"pipeline {told}", style="bold"))
        mark, style = _MARKS[advice.says]
        console.print(Text.assemble((f"  {mark:<8}", style), (advice.rule, "bold")))
        console.print(Padding(Text(advice.recommendation), (0, 0, 0, 10), expand=False))
        console.print(Padding(Text(advice.because, style="dim"), (0, 0, 0, 10), expand=False))


def _length(text: str) -> timedelta:
    found = _LENGTH.fullmatch(text.strip())
    length = timedelta(**{_UNITS[found[2]]: float(found[1])}) if found else timedelta()
    if length <= timedelta():
        raise ConfigError(f"--target-batch-time '{text}' is not a length of time; write 10s, 500ms or 2m")
    return length
