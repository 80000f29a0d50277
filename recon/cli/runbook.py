"""recon runbook: what to do about a finding."""

from __future__ import annotations

from typing import Annotated

import typer

from recon.cli.shared import Session, console, print_table


def runbook(
    session: Session,
    code: Annotated[
        str | None, typer.Argument(help="A finding's code, such as LOSS_RETENTION; without one, all are listed.")
    ] = None,
) -> None:
    """Show what a finding's code means and what to do about it.

    What recon saw, what to look at first, what can still be saved, how to repair or accept it, what not to do, and how
    it ends. Reads no recon.yml and needs no network. Into a file or a pipe it writes Markdown.
    """
    from recon.model import Code
    from recon.reports import runbook as runbooks
    from recon.reports.codes import MEANINGS

    if code is None:
        rows = [(str(listed), str(listed.level), MEANINGS[listed]) for listed in runbooks.worst_first(Code)]
        print_table(("code", "level", "meaning"), rows)
        return
    page = runbooks.page_of(runbooks.code_named(code))
    if console(piped_width=1000).is_terminal:
        _print_rendered(page)
    else:
        typer.echo(page, nl=False)


def _print_rendered(page: str) -> None:
    """Prints Markdown for people. Commands are not wrapped, so that they can be copied."""
    from rich.markdown import Markdown
    from rich.text import Text

    out = console(piped_width=1000)
    for n, part in enumerate(page.split("```")):
        if n % 2 == 0:
            out.print(Markdown(part, hyperlinks=False))
            continue
        out.print()
        for line in part.splitlines()[1:]:  # the first one is the fence's language
            out.print(Text(f"  {line}", style="bold"), soft_wrap=True)
        out.print()
