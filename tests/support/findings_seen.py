"""A plugin of pytest that writes the messages of all findings that each test made: `-p tests.support.findings_seen`.

RECON_FINDINGS_SEEN names the file: JSON, a list of [test, code, message].
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recon.model import Finding

_seen: dict[tuple[str, str, str], None] = {}
_running = ""
_made = Finding.__init__


def _recording(self: Finding, *positional: Any, **values: Any) -> None:
    _made(self, *positional, **values)
    _seen[_running, str(self.code), self.message] = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    global _running
    _running = item.nodeid.partition("[")[0]
    return (yield)


def pytest_configure() -> None:
    Finding.__init__ = _recording  # type: ignore[method-assign]


def pytest_unconfigure() -> None:
    Finding.__init__ = _made  # type: ignore[method-assign]
    Path(os.environ["RECON_FINDINGS_SEEN"]).write_text(json.dumps(list(_seen)))
