"""The golden file of messages: what stands for things that differ from run to run, and which messages stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import messages


@pytest.mark.parametrize(
    ("text", "golden"),
    [
        ("no /tmp/pytest-of-me/pytest-7/test_a_torn_file_is_na13/offsets/0; restore", "no <tmp>/offsets/0; restore"),
        ("at file:/tmp/pytest-of-me/pytest-7/popen-gw1/test_a_b0", "at file:<tmp>"),
        ("delta.`/private/tmp/pytest-of-me/pytest-7/test_a0/t`", "delta.`<tmp>/t`"),
        ("copy them to /tmp/tmpx1y2", "copy them to <tmp>"),
        ("127.0.0.1:40123 has orders-0a1b2c3d, not t_deadbeef", "127.0.0.1:<port> has orders-<hex>, not t_<hex>"),
        (
            "no: [NO_X.IN_Y] No x in `y`. SQLSTATE: 1; line 1 pos 0; correct it",
            "no: [NO_X.IN_Y] <words>; line 1 pos 0; correct it",
        ),
        # Facts that tests are about.
        ("orders-0 offsets [12345678, 20260101) of 2026-01-01", "orders-0 offsets [12345678, 20260101) of 2026-01-01"),
    ],
)
def test_what_differs_from_run_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, golden: str) -> None:
    seen = tmp_path / "seen"
    monkeypatch.setattr(messages, "SEEN", str(seen))
    assert messages.same_message(text)
    assert json.loads(seen.read_text())[2] == golden


def test_which_messages_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, golden = tmp_path / "seen", tmp_path / "messages.json"
    monkeypatch.setattr(messages, "SEEN", str(seen))
    monkeypatch.setattr(messages, "GOLDEN", golden)
    before = {"spark/test_a.py::test_it": ["kept"], "unit/test_a.py::test_it": ["old", "older"], "unit/gone": ["gone"]}
    golden.write_text(json.dumps(before))
    messages.not_run(["tests/spark/test_a.py::test_it"])
    with seen.open("a") as out:
        out.write('["unit/test_a.py::test_it", 0, "new"]\n')
    messages.take_over(seen, every_test=False)
    after = {**before, "unit/test_a.py::test_it": ["new"]}
    assert json.loads(golden.read_text()) == after
    messages.take_over(seen, every_test=True)
    assert json.loads(golden.read_text()) == {test: texts for test, texts in after.items() if test != "unit/gone"}
