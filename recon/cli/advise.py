"""recon advise: recommends settings for a stream, with the arithmetic."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from recon.base.errors import ConfigError
from recon.cli.shared import OutputOption, PipelineOption, Session, console, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recon.write.streams.facts import Advice

_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_UNITS = {"ms": "milliseconds", "s": "seconds", None: "seconds", "m": "minutes", "h": "hours"}
_MARKS = {"change": ("CHANGE", "yellow"), "keep": ("KEEP", "green"), "unknown": ("UNKNOWN", "dim")}


def advise(
    session: Session,
    pipeline: PipelineOption = None,
    target_batch_time: Annotated[
        str, typer.Option("--target-batch-time", help="Longest time a micro-batch should take: 10s, 500ms, 2m.")
    ] = "10s",
    cores: Annotated[
        int | None,
        typer.Option("--cores", min=1, help="Cores that run the query's tasks; by default those recorded."),
    ] = None,
    output: OutputOption = "text",
) -> None:
    """Recommend settings, with the arithmetic.

    Reads a week of recorded progress, recon.yml, and Kafka's offsets and retention now. Changes nothing.
    """
    target = _length(target_batch_time)
    session.check_names(pipeline, None)

    from recon.write.streams.advise import advise as advised

    advices = advised(session.project(), pipeline, target=target, cores=cores)
    if output == "json":
        print_json([advice.as_dict() for advice in advices])
    else:
        _print(advices)


def _print(advices: Sequence[Advice]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    out = console(piped_width=120)
    pipeline = None
    for advice in advices:
        if advice.pipeline != pipeline:
            pipeline = advice.pipeline
            out.print(Text(f"pipeline {pipeline}", style="bold"))
        mark, style = _MARKS[advice.decision]
        out.print(Text.assemble((f"  {mark:<8}", style), (advice.rule, "bold")))
        out.print(Padding(Text(advice.recommendation), (0, 0, 0, 10), expand=False))
        out.print(Padding(Text(advice.because, style="dim"), (0, 0, 0, 10), expand=False))


def _length(text: str) -> timedelta:
    match = _LENGTH.fullmatch(text.strip())
    length = timedelta(**{_UNITS[match[2]]: float(match[1])}) if match else timedelta()
    if length <= timedelta():
        raise ConfigError(f"--target-batch-time '{text}' is not a length of time; write 10s, 500ms or 2m")
    return length
