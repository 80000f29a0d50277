"""Test that your package is found: its entry points, and the checks that it registers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from recon.checks import registry
from recon.project.sinks import kinds


@contextmanager
def only_built_in() -> Iterator[None]:
    """Within it, recon knows built-in checks and sinks, and what a test registers or installs meanwhile.

    recon asks the installed packages once per process; here it asks again, and forgets at the end what the test added.
    """
    with registry.only_built_in():
        kinds.forget_installed()
        try:
            yield
        finally:
            kinds.forget_installed()
