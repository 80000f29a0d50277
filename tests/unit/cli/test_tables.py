"""Tables of the console: no column is lost and no cell is cut, at 60, 80 and 160 columns of a real terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.console import Console

from recon.cli.tables import table
from tests.unit.cli.test_cli import project  # noqa: F401

ROOT = Path(__file__).parents[3]
HEADERS = ("name", "check", "sink", "failures", "message")
ROWS = [
    ("unique_combination_orders_order_id_line", "unique_combination", "orders", 12, "two keys"),
    ("not_null_orders_status", "not_null", "orders", None, "a message with words to wrap"),
]
GOLDEN = {
    40: """\
name      unique_combination_orders_orde
          r_id_line
check     unique_combination
sink      orders
failures  12
message   two keys

name      not_null_orders_status
check     not_null
sink      orders
failures  -
message   a message with words to wrap
""",
    60: """\
name          check         sink    failures  message
unique_combi  unique_combi  orders        12  two keys
nation_order  nation
s_order_id_l
ine
not_null_ord  not_null      orders         -  a message with
ers_status                                    words to wrap
""",
    80: """\
name                 check               sink    failures  message
unique_combination_  unique_combination  orders        12  two keys
orders_order_id_lin
e
not_null_orders_sta  not_null            orders         -  a message with words
tus                                                        to wrap
""",
    160: """\
name                                     check               sink    failures  message
unique_combination_orders_order_id_line  unique_combination  orders        12  two keys
not_null_orders_status                   not_null            orders         -  a message with words to wrap
""",
}


@pytest.mark.parametrize("width", GOLDEN)
def test_a_table_at_a_width(width: int) -> None:
    out = io.StringIO()
    Console(file=out, width=width).print(table(HEADERS, ROWS, width))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert "\n".join(lines) + "\n" == GOLDEN[width]
    assert max(map(len, lines)) <= width


def test_rows_that_fit_are_a_line_each() -> None:
    out = io.StringIO()
    Console(file=out, width=20).print(table(("a", "b"), [("x", 1), ("y", 22)], 20))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == ["a   b", "x   1", "y  22"]


def on_a_terminal(folder: Path, width: int, *arguments: str) -> str:
    """What `recon` prints on a pseudo-terminal of a width, without colours."""
    main, sub = pty.openpty()
    fcntl.ioctl(sub, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    left_out = ("COLUMNS", "LINES", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    command = [sys.executable, "-m", "recon.cli", *arguments]
    env |= {"TERM": "xterm", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=folder, stdout=sub, stderr=sub, stdin=sub, env=env)
    os.close(sub)
    printed = b""
    try:
        while part := os.read(main, 65536):
            printed += part
    except OSError:  # the other end is closed: the process has ended
        pass
    os.close(main)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.decode()).replace("\r\n", "\n")


@pytest.mark.parametrize("width", [60, 80, 160])
def test_no_column_and_no_name_is_lost_on_a_terminal(project: Path, width: int) -> None:  # noqa: F811
    checks = json.loads(on_a_terminal(project, width, "list", "--output", "json"))
    printed = on_a_terminal(project, width, "list")
    assert "…" not in printed
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= width
    for header in ("name", "check", "kind", "pipeline", "sink", "column", "severity", "tags"):
        assert header in printed
    together = re.sub(r"\s", "", printed)
    if width == 60:  # a block per row
        assert all(f"name{check['name']}check{check['check']}" in together for check in checks)
    wide = on_a_terminal(project, width, "list", "--wide").splitlines()
    assert len(wide) == 1 + len(checks), "a line per row"
    assert all(check["name"] in line for check, line in zip(checks, wide[1:], strict=True))
