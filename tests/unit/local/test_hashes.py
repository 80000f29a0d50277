"""requirements-hashes.txt: the pins of constraints.txt with the hashes of their files, and nothing of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts.hashes import HASHES, HEADER, PINS, ROOT, checked, pins, without_hash

A, B = "a" * 64, "b" * 64
RESOLVED = (
    f"jinja2==3.1.6 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\nx==1!2.0.post0+cpu \\\n    --hash=sha256:{B}\n"
)
CONSTRAINTS = "Jinja2==3.1.6\nx==1!2.0.post0+cpu\n"


def test_the_file_has_the_pins_of_the_constraints_each_with_hashes() -> None:
    text = HASHES.read_text(encoding="utf-8")
    assert pins(text) == pins(PINS.read_text(encoding="utf-8")), "constraints.txt changed: run `make hashes`"
    assert without_hash(text) == []
    assert text.startswith(HEADER)


def test_what_uv_resolved_becomes_the_file() -> None:
    assert checked(RESOLVED, CONSTRAINTS) == HEADER + RESOLVED


@pytest.mark.parametrize(
    ("resolved", "said"),
    [
        (f"--index-url https://mirror/simple\n{RESOLVED}", "'--index-url https://mirror/simple' is neither a pin"),
        (f"{RESOLVED}y @ file:///tmp/y.whl\n", "neither a pin"),
        (RESOLVED.replace("3.1.6", "3.1.7"), r"other versions than constraints\.txt of jinja2$"),
        (f"{RESOLVED}y==1 \\\n    --hash=sha256:{A}\n", r"other versions than constraints\.txt of y$"),
        (RESOLVED[: RESOLVED.index("x==")], r"other versions than constraints\.txt of x$"),
        (
            RESOLVED.replace(f" \\\n    --hash=sha256:{B}\nx", "\nx").replace(f" \\\n    --hash=sha256:{A}", ""),
            "for jinja2;",
        ),
    ],
)
def test_anything_else_is_refused(resolved: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked(resolved, CONSTRAINTS)


FAKE_PYTHON = """\
#!/bin/sh
case "$*" in
  "-m venv .venv") mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
  "-m pip "*) echo "$*" >> called; case "$*" in *"$FAILS"*) exit 1 ;; esac ;;
esac
"""


def setup_python(folder: Path, hashed: str | None, fails: str = "nothing") -> subprocess.CompletedProcess[str]:
    (folder / "scripts").mkdir(exist_ok=True)
    for name in ("scripts/setup.sh", "pyproject.toml", "constraints.txt", "requirements-hashes.txt"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    python = folder / "fake_python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(python), "FAILS": fails}
    environment.pop("RECON_REQUIRE_HASHES", None)
    environment |= {} if hashed is None else {"RECON_REQUIRE_HASHES": hashed}
    command = ["bash", "scripts/setup.sh", "python"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_setup_requires_hashes_where_it_is_asked_to(tmp_path: Path) -> None:
    assert setup_python(tmp_path, None).returncode == 0
    assert "--require-hashes" not in (tmp_path / "called").read_text()
    # An environment that was made without hashes does not pass for one with them.
    (tmp_path / ".venv" / "unknown").touch()
    (tmp_path / "called").unlink()
    assert setup_python(tmp_path, "1").returncode == 0
    packages, recon = (tmp_path / "called").read_text().splitlines()
    assert packages.endswith("--require-hashes --no-deps -r requirements-hashes.txt")
    assert recon.endswith("--no-deps -e .")
    assert not (tmp_path / ".venv" / "unknown").exists()
    # Nothing to do the second time.
    (tmp_path / "called").unlink()
    assert setup_python(tmp_path, "1").returncode == 0
    assert not (tmp_path / "called").exists()


def test_another_hash_ends_the_setup_with_what_to_do(tmp_path: Path) -> None:
    ended = setup_python(tmp_path, "1", fails="--require-hashes")
    assert ended.returncode == 1
    assert "if a hash differs, the index gives another file than PyPI's" in ended.stderr
    assert not (tmp_path / ".venv" / ".installed").exists()
