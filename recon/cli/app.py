"""The `recon` command: its subcommands, and the options that may be given before one."""

from __future__ import annotations

from typing import Annotated

import typer

from recon._version import __version__
from recon.cli.commands import Group, new_app
from recon.cli.shared import Session, with_session

_KAFKA = Group(
    "Start or stop a single-node Kafka broker, without Docker.",
    {"start": "start:start_kafka", "stop": "start:stop_kafka"},
)
app = new_app(
    Group(
        "Prove, micro-batch by micro-batch, that streamed data arrived: from Kafka's offsets to the sink's commits.",
        {
            "audit": "audit:audit",
            "retry": "audit:retry",
            "list": "audit:list_checks",
            "report": "audit:report",
            "compliance": Group(
                "Write the compliance report of a period, from the ledger and the stored results of audits.",
                {"pack": "audit:pack", "sample": "sample:sample", "verify": "verify_report:verify"},
                alone="audit:compliance",
            ),
            "observe": "observe:observe",
            "findings": "findings:findings",
            "accept": "findings:accept",
            "repair": Group(
                "Repair what audits refuted: read missing offsets again, remove doubled rows.",
                {"plan": "repair:plan", "apply": "repair:apply"},
            ),
            "alerts": Group("Try the channels that are told of problems.", {"test": "alerts:test"}),
            "advise": "advise:advise",
            "compare": "compare:compare",
            "offsets": "ledger:offsets",
            "try": "start:try_recording",
            "init": "start:init",
            "demo": "start:demo",
            "explain": "explain:explain",
            "trace": "trace:trace",
            "account": "account:account",
            "runbook": "runbook:runbook",
            "sinks": "sinks:sinks",
            "debug": "debug:debug",
            "import": Group(
                "Make a recon.yml from another tool's files.",
                {"dbt": "convert:import_dbt", "odcs": "convert:import_odcs"},
            ),
            "export": Group(
                "Write checks in another tool's format.", {"gx": "convert:export_gx", "odcs": "convert:export_odcs"}
            ),
            "ledger": Group(
                "Show, verify, prove, rebuild or compact the ledger.",
                {
                    "show": "ledger:show",
                    "verify": "ledger:verify",
                    "prove": "ledger:prove",
                    "key": "ledger:print_key",
                    "rebuild": "ledger:rebuild",
                    "compact": "ledger:compact",
                },
            ),
            "forget": "forget:forget",
            "failures": Group("Show failing rows of checks with store_failures.", {"show": "failures:show"}),
            "quarantine": Group(
                "Show the rows in quarantine, or release them into their sink.",
                {"show": "quarantine:show", "release": "quarantine:release"},
            ),
            "local": Group("Run what recon needs on this machine, to try it.", {"kafka": _KAFKA}),
        },
    )
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"recon {__version__}")
        raise typer.Exit


@app.callback()
@with_session
def _options_before_a_command(
    session: Session,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
