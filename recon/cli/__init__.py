"""The command line: each command parses its options, calls one function of another room, and prints the result.

`main` is the entry point, and `app` has the table of all commands. `shared` has what they all use: options, the
project, printing, the one place that turns errors into exit codes. Then one module per group of commands. To add a
command, write its function `f(session, …)` and add a line to the table in `app`. No rule or verdict is computed here.

This room may import every other one, and no other room imports it. It imports other rooms inside functions, so
that `recon --help` loads no heavy library.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `recon` with these arguments (by default those of the process) and exits.

    Raises:
        SystemExit: 0, 1 or 2 as in dbt; 130 after Ctrl-C.
    """
    import atexit
    import gc

    # A command runs briefly and keeps its few large objects to the end: with the default thresholds the garbage
    # collector would take a tenth of an audit and free nothing. Nor is all looked through when the process ends.
    gc.set_threshold(1_000_000, 50, 50)
    atexit.register(gc.freeze)

    from recon.cli.app import app

    app(args=None if arguments is None else list(arguments), prog_name="recon")
