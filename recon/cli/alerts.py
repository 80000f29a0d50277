"""recon alerts test: sends a test message to each channel."""

from __future__ import annotations

from typing import Annotated

import typer

from recon.base.errors import ConfigError, ReconError
from recon.base.text import did_you_mean
from recon.cli.shared import Session


def test(
    session: Session,
    channel: Annotated[
        list[str] | None, typer.Option("--channel", help="Only this channel; repeatable. All by default.")
    ] = None,
) -> None:
    """Send a test message to each channel of alerts, and say what happened.

    Exit 0 when every channel took it, 2 when one did not.
    """
    project = session.project()
    channels = {known.name: known for known in project.alerts.channels}
    if not channels:
        raise ConfigError("recon.yml has no channel of alerts; add one under alerts: channels:")
    for name in channel or ():
        if name not in channels:
            raise ConfigError(f"alerts have no channel {name!r}{did_you_mean(name, channels, 'there is')}")

    from recon.events.alerts import Sender, trial_message

    failed = 0
    for name in channel or channels:
        try:
            Sender(project, channels[name]).send(trial_message(project))
            typer.echo(f"{name}: sent")
        except ReconError as error:
            failed += 1
            typer.echo(f"{name}: not sent: {project.mask(str(error))}")
    if failed:
        raise typer.Exit(2)
