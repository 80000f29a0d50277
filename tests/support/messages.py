"""Messages as they were last agreed: tests assert codes and evidence, and the wording stands in one golden file.

`tests/golden/messages.json` holds the messages of each test in the order in which it compares them. A test only
compares; `make messages` runs the tests without a JVM and then takes over what they saw, for the diff to be read.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden" / "messages.json"
# Where `make messages` wants what the tests saw; unset in every other run.
SEEN = os.environ.get("RECON_MESSAGES_SEEN")

_NORMALISED = (
    (re.compile(r"(/private)?/tmp/[^\s'\",;:)]*?/(?=[\w.]+[\s'\",;:)/]|$)"), "<tmp>/"),
    (re.compile(r"/tmp/[^\s'\",;:)]+"), "<tmp>"),
    (re.compile(r"(localhost|127\.0\.0\.1):\d+"), r"\1:<port>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b0x[0-9a-f]+\b"), "<address>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<hex>"),
)
_compared: Counter[str] = Counter()


def same_message(text: str) -> bool:
    """Compare a message with the golden one of this test; True, or an AssertionError that shows both."""
    path, _, name = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0].partition("::")
    test = f"{Path(path).name}::{name}"
    for pattern, stands_for in _NORMALISED:
        text = pattern.sub(stands_for, text)
    at = _compared[test]
    _compared[test] += 1
    if SEEN:
        with Path(SEEN).open("a", encoding="utf-8") as out:
            out.write(json.dumps([test, at, text]) + "\n")
        return True
    golden = json.loads(GOLDEN.read_text(encoding="utf-8")).get(test, [])
    assert at < len(golden), f"{GOLDEN.name} has no message {at} of {test}; run `make messages`, and read its diff"
    assert text == golden[at], f"message {at} of {test} differs; if it is better now, run `make messages`"
    return True


@contextmanager
def raises(error: type[BaseException]) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """`pytest.raises`, and the message is the golden one."""
    with pytest.raises(error) as caught:
        yield caught
    same_message(str(caught.value))


def take_over(seen: Path, *, every_test: bool) -> None:
    """Put what the tests saw into the golden file.

    Args:
        seen: what the run wrote.
        every_test: every test ran, so that messages of no test go; otherwise tests that did not run keep theirs.
    """
    golden = {} if every_test else json.loads(GOLDEN.read_text(encoding="utf-8"))
    messages: dict[str, list[str]] = {}
    for line in seen.read_text(encoding="utf-8").splitlines():
        test, at, text = json.loads(line)
        messages.setdefault(test, [])[at:] = [text]
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(
        json.dumps({**golden, **messages}, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
