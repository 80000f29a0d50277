"""The command line: it parses, calls the doors of the house, and prints. `main` is the entry point."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `recon` with these arguments (the process's own when None) and exit.

    Raises:
        SystemExit: 0, 1 or 2 as in dbt; 130 after Ctrl-C.
    """
    import gc

    from recon.cli.app import app

    # A command is short and makes a few large things that live to its end: looking through them again and again
    # finds nothing and costs a tenth of an audit.
    gc.set_threshold(100_000, 50, 50)
    app(args=None if arguments is None else list(arguments), prog_name="recon")
