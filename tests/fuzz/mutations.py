"""Damage done to files and values, seeded: bytes flipped, text cut, JSON values of another type, keys gone or twice."""

from __future__ import annotations

import json
from random import Random
from typing import Any

STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**31,
    2**63,
    -(2**70),
    10**400,
    1.5,
    "",
    "x",
    "\x00",
    "9" * 30,
    "2026-13-45T99:00:00",
    [],
    [[]],
    {},
    {"a": {"b": [1, None]}},
)


def damaged(content: bytes, random: Random) -> bytes:
    """The content, damaged once: one in three as bytes, the others as JSON where it has a line of it."""
    if random.random() < 0.35:
        return _bytes_damaged(content, random)
    lines = content.split(b"\n")
    places = [at for at, line in enumerate(lines) if line.strip().startswith((b"{", b"["))]
    if not places:
        return _bytes_damaged(content, random)
    at = random.choice(places)
    if random.random() < 0.1:  # a line twice, or gone
        lines[at : at + 1] = [] if random.random() < 0.5 else [lines[at]] * 2
        return b"\n".join(lines)
    lines[at] = _json_damaged(lines[at].decode(), random).encode()
    return b"\n".join(lines)


def _bytes_damaged(content: bytes, random: Random) -> bytes:
    kind = random.randrange(5)
    at = random.randrange(len(content)) if content else 0
    if kind == 0:
        return content[:at]
    if kind == 1:
        return b""
    if kind == 2:
        return content[:at] + bytes(random.randrange(256) for _ in range(random.randrange(1, 9))) + content[at:]
    if kind == 3:
        return content[:at] + content[at + random.randrange(1, 40) :]
    return content[:at] + bytes([content[at] ^ (1 << random.randrange(8))]) + content[at + 1 :] if content else b"\x00"


def _json_damaged(line: str, random: Random) -> str:
    document = json.loads(line)
    places = list(_places(document))
    if not places:
        return "7"
    owner, key = random.choice(places)
    value = owner[key]
    if isinstance(value, str) and value.startswith("{") and random.random() < 0.8:
        owner[key] = _json_damaged(value, random)  # a document in a document: a stamp, statistics
    elif random.random() < 0.25 and isinstance(owner, dict):
        if random.random() < 0.5:
            del owner[key]
        else:
            owner[_TWICE + key] = random.choice(STRANGE)
    elif type(value) is int and random.random() < 0.3:
        owner[key] = random.choice([-value - 1, value * 10**30, value + 2**63])
    else:
        owner[key] = random.choice([strange for strange in STRANGE if type(strange) is not type(value)])
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).replace(_TWICE, "")


_TWICE = "⁂"


def _places(value: Any) -> Any:
    """(owner, key) of every value inside a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)
