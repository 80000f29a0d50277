"""Messages as they were last agreed: tests assert codes and evidence, and the wording stands in one golden file.

`tests/golden/messages.json` holds the messages of each test in the order in which it compares them. A test only
compares; `make messages` runs tests and then takes over what they saw, for the diff to be read. What differs from run
to run (folders, ports, made-up names) stands there as `<tmp>`, `<port>`, `<hex>`, and what Spark says as `<words>`.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden" / "messages.json"
# Where `make messages` wants what the tests saw; unset in every other run.
SEEN = os.environ.get("RECON_MESSAGES_SEEN")

_NORMALISED = (
    # A test's own folder: pytest numbers it by how many of that name came before in this process.
    (re.compile(r"[^\s'\",;:(`]*/pytest-of-[^/\s]+/pytest-\d+/(popen-\w+/)?[^/\s'\",;:)`]+"), "<tmp>"),
    (re.compile(r"(/private)?/tmp/[^\s'\",;:)]*?/(?=[\w.]+[\s'\",;:)/]|$)"), "<tmp>/"),
    (re.compile(r"/tmp/[^\s'\",;:)]+"), "<tmp>"),
    (re.compile(r"(localhost|127\.0\.0\.1):\d+"), r"\1:<port>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b0x[0-9a-f]+\b"), "<address>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<hex>"),
    (re.compile(r"(?<=_recon_attempt=)a[0-9a-f]{8}\b"), "<attempt>"),
    # Spark's and Delta's own sentence behind its error class, which versions put in other words.
    (re.compile(r"(\[[A-Z][A-Z0-9]*_[A-Z0-9_.]*\]) .*?(?=; [a-z]|$)"), r"\1 <words>"),
    # Topics and tables of one test: `topic` of tests/conftest.py.
    (re.compile(r"(?<=[a-z])([-_])[0-9a-f]{8}\b"), r"\1<hex>"),
)
_compared: Counter[str] = Counter()
# The words of Spark and Delta in messages are those of the pinned versions: others say the same in other words.
_PINNED = f"pyspark=={version('pyspark')}" in (GOLDEN.parents[2] / "constraints.txt").read_text().splitlines()


def same_message(text: str) -> bool:
    """Compare a message with the golden one of this test; True, or an AssertionError that shows both."""
    test = _key(os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0])
    for pattern, stands_for in _NORMALISED:
        text = pattern.sub(stands_for, text)
    at = _compared[test]
    _compared[test] += 1
    if SEEN:
        _write_seen(test, at, text)
        return True
    if not _PINNED:
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


def not_run(nodeids: Iterable[str]) -> None:
    """Tell `make messages` of tests that are there and were not selected: they keep their messages."""
    if SEEN:
        for nodeid in nodeids:
            _write_seen(_key(nodeid), 0, None)


def take_over(seen: Path, *, every_test: bool) -> None:
    """Put what the tests saw into the golden file.

    Args:
        seen: what the run wrote.
        every_test: every test ran or was `not_run`, so that messages of no test go; otherwise tests that did not run
            keep theirs.
    """
    golden: dict[str, list[str]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    messages: dict[str, list[str]] = {}
    kept: set[str] = set()
    for line in seen.read_text(encoding="utf-8").splitlines():
        test, at, text = json.loads(line)
        if text is None:
            kept.add(test)
        else:
            messages.setdefault(test, [])[at:] = [text]
    if every_test:
        golden = {test: texts for test, texts in golden.items() if test in kept}
    GOLDEN.write_text(
        json.dumps({**golden, **messages}, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def _key(nodeid: str) -> str:
    """A test's name in the golden file: from its folder on, since two folders have a file of the same name."""
    return nodeid.removeprefix("tests/")


def _write_seen(test: str, at: int, text: str | None) -> None:
    assert SEEN
    with Path(SEEN).open("a", encoding="utf-8") as out:
        out.write(json.dumps([test, at, text]) + "\n")
