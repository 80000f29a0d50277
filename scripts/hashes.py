"""Write requirements-hashes.txt: the pins of constraints.txt with the SHA-256 of every file that the index has of them.

`make hashes` runs it. `uv` reads the hashes from the index and downloads no package.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PINS = ROOT / "constraints.txt"
HASHES = ROOT / "requirements-hashes.txt"
HEADER = """\
# The pins of constraints.txt with the hashes of all their files, for every platform; made by `make hashes`:
#   pip install --require-hashes --no-deps -r requirements-hashes.txt
"""
_PIN = re.compile(r"([\w.-]+)==([\w.+!-]+)(?: \\)?")
_HASH = re.compile(r"    --hash=sha256:([0-9a-f]{64})(?: \\)?")


def pins(text: str) -> dict[str, str]:
    """Version by normalised name, of a file of pins with or without hashes.

    Raises:
        ValueError: a line is neither a pin nor a hash, such as an option with the address of an index.
    """
    return {name: version for name, version, _ in _read(text)}


def without_hash(text: str) -> list[str]:
    """The names that have no hash."""
    return [name for name, _, hashes in _read(text) if not hashes]


def _read(text: str) -> list[tuple[str, str, list[str]]]:
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        if pin := _PIN.fullmatch(line):
            found.append((canonicalize_name(pin[1]), pin[2], []))
        elif (sha256 := _HASH.fullmatch(line)) and found:
            found[-1][2].append(sha256[1])
        elif line and not line.startswith("#"):
            raise ValueError(f"{line.strip()!r} is neither a pin (name==version) nor a hash (--hash=sha256:…)")
    return found


def checked(resolved: str, constraints: str) -> str:
    """The file's text from what `uv` resolved.

    Raises:
        ValueError: it has other pins than the constraints, a pin without a hash, or another kind of line.
    """
    wanted, got = pins(constraints), pins(resolved)
    if wanted != got:
        different = sorted(name for name in wanted | got if wanted.get(name) != got.get(name))
        raise ValueError(f"the index gave other versions than constraints.txt of {', '.join(different)}")
    if missing := without_hash(resolved):
        raise ValueError(f"the index gives no hashes for {', '.join(missing)}; use one that does, by UV_DEFAULT_INDEX")
    return HEADER + resolved


def main() -> None:
    """Resolve into a scratch file and replace the old one when all is well."""
    with tempfile.TemporaryDirectory() as scratch:
        resolved = Path(scratch) / "resolved.txt"
        command = [str(ROOT / ".venv" / "tools" / "bin" / "uv"), "pip", "compile", str(PINS), "--no-deps"]
        command += ["--generate-hashes", "--no-header", "--no-annotate", "--python", sys.executable]
        done = subprocess.run([*command, "--quiet", "--output-file", str(resolved)], check=False)
        if done.returncode != 0:
            sys.exit(f"hashes: uv ended with exit code {done.returncode}; {HASHES.name} is as it was")
        try:
            text = checked(resolved.read_text(encoding="utf-8"), PINS.read_text(encoding="utf-8"))
        except ValueError as error:
            sys.exit(f"hashes: {error}; {HASHES.name} is as it was")
    HASHES.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
