"""Signed notes and documents of heads, right and wrong: vectors, and random changes of what was right."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from random import Random
from typing import Any

from recon.write.ledger.heads.documents import Document
from recon.write.ledger.heads.keys import SigningKey, signing_key
from recon.write.ledger.heads.notes import Head, signed
from tests.support.heads import NOW, OTHER_SEED, SEED

ORIGIN = "example.org/lake"
KEY, OTHER = signing_key(ORIGIN, SEED, "the key"), signing_key(ORIGIN, OTHER_SEED, "the key")
AUDIT = ("0f0e2a3c-6a2e-4b7e-9d53-1f6a9d1a8f5e", "9f" * 32)
HEAD = signed(KEY, f"{ORIGIN}/orders/orders", 8640, bytes(range(32)), NOW, AUDIT)
COPY = signed(KEY, f"{ORIGIN}/orders/copy", 12, bytes(range(1, 33)), NOW)
_PROOFS = {HEAD.origin: (9, (bytes(32), bytes(range(32)))), COPY.origin: (12, ())}
DOCUMENT = Document(origin=ORIGIN, heads=(HEAD, COPY), consistency=_PROOFS, timestamp=b"stamp").dump().decode()


def note(text: str, key: SigningKey = KEY, name: str | None = None) -> str:
    """A note of any text, signed."""
    raw = base64.b64encode(key.public.id + key.sign(text.encode(errors="surrogatepass"))).decode()
    return f"{text}\n— {name or key.name} {raw}\n"


def text_of(head: Head) -> str:
    """What is signed of a head."""
    return head.note.rpartition("\n\n")[0] + "\n"


def _text(edit: Callable[[str], str]) -> str:
    """The note of a text that was edited and signed again."""
    return note(edit(text_of(HEAD)))


def _whole(edit: Callable[[dict[str, Any]], object]) -> str:
    """A document with other values."""
    values = json.loads(DOCUMENT)
    edit(values)
    return json.dumps(values)


def _proof(**fields: Any) -> str:
    return _whole(lambda values: values["consistency"][HEAD.origin].update(fields))


def _line(signature: bytes, name: str = "example.net/witness", *, text: str | None = None) -> str:
    return f"{HEAD.note}— {name} {text or base64.b64encode(signature).decode()}\n"


_THEIRS = OTHER.public.id + bytes(64)
_ROOT = base64.b64encode(HEAD.root).decode()

# What it is, the file, and whether it is right by docs/heads.md.
VECTORS: list[tuple[str, str | bytes, bool]] = [
    ("a note", HEAD.note, True),
    ("a note without results", COPY.note, True),
    ("a document", DOCUMENT, True),
    # Signed notes.
    ("lines that end with CRLF", HEAD.note.replace("\n", "\r\n"), False),
    ("CRLF in the text alone, signed", _text(lambda text: text.replace("\n", "\r\n")), False),
    ("a tab in the text, signed", _text(lambda text: f"{text}a\tb\n"), False),
    ("text behind the signatures", f"{HEAD.note}trailing\n", False),
    ("an empty line behind the signatures", f"{HEAD.note}\n", False),
    ("text behind an empty line behind the signatures", f"{HEAD.note}\ntrailing\n", False),
    ("no end of the last line", HEAD.note[:-1], False),
    ("no empty line", HEAD.note.replace("\n\n", "\n"), False),
    ("no signature", text_of(HEAD) + "\n", False),
    ("a hyphen before the signature", HEAD.note.replace("— ", "- "), False),
    ("no space before the name", HEAD.note.replace("— ", "—"), False),
    ("two spaces before the name", HEAD.note.replace("— ", "—  "), False),
    ("a space behind the signature", HEAD.note[:-1] + " \n", False),
    ("a no-break space in the text", _text(lambda text: f"{text}a\u00a0b\n"), True),
    ("the signature of a witness, too", _line(_THEIRS), True),
    ("the signature of our name by another key, too", _line(_THEIRS, ORIGIN), True),
    ("ours behind that of a witness", "\n".join([text_of(HEAD), *_line(_THEIRS).split("\n")[-2::-1][:2], ""]), True),
    ("a signature of one byte", _line(b"12345"), True),
    ("a signature of no byte", _line(b"1234"), False),
    ("a signature without padding", _line(b"", text="AAAAAAA"), False),
    ("a signature with bits behind its last byte", _line(b"", text="AAAAAAB="), False),
    ("a signature that is no base64", _line(b"", text="AAAA*AAA"), False),
    ("a signature in the alphabet of URLs", _line(b"", text="AAAA-_AA"), False),
    ("a plus in the name of a witness", _line(_THEIRS, "example.net+witness"), False),
    ("a no-break space in the name of a witness", _line(_THEIRS, "example.net\u00a0witness"), False),
    ("a wrong signature behind the right one", HEAD.note + HEAD.note.splitlines()[-1][:-8] + "AAAAAA==\n", False),
    ("the right signature twice", HEAD.note + HEAD.note.splitlines()[-1] + "\n", True),
    ("16 signatures", HEAD.note + HEAD.note.splitlines()[-1].join(["", "\n"]) * 15, True),
    ("17 signatures", HEAD.note + HEAD.note.splitlines()[-1].join(["", "\n"]) * 16, False),
    ("signed by another key", note(text_of(HEAD), OTHER), False),
    ("signed under another name", note(text_of(HEAD), KEY, "example.net/lake"), False),
    ("a text that was edited", HEAD.note.replace("8640", "8641"), False),
    # Heads.
    ("a further line", _text(lambda text: f"{text}witnessed by hand\n"), True),
    ("an empty line in the text", _text(lambda text: f"{text}\nmore\n"), False),
    ("an empty line at the end of the text", _text(lambda text: f"{text}\n"), False),
    ("no time", _text(lambda text: text.replace("at 2026", "on 2026")), False),
    ("two times", _text(lambda text: f"{text}at 2026-11-23T17:00:00Z\n"), False),
    ("a day that is none", _text(lambda text: text.replace("11-23", "02-30")), False),
    ("hour 24", _text(lambda text: text.replace("T17", "T24")), False),
    ("year 0", _text(lambda text: text.replace("2026", "0000")), False),
    ("a leap second", _text(lambda text: text.replace("00:00Z", "00:60Z")), False),
    ("a time zone", _text(lambda text: text.replace("00Z", "00+01:00")), False),
    ("digits of another script", _text(lambda text: text.replace("8640", "８６４０")), False),
    ("a size with a zero before it", _text(lambda text: text.replace("8640", "08640")), False),
    ("a size with a plus", _text(lambda text: text.replace("8640", "+8640")), False),
    ("a size below zero", _text(lambda text: text.replace("8640", "-1")), False),
    ("a size with a space", _text(lambda text: text.replace("8640", "8640 ")), False),
    ("a size of 18 digits", _text(lambda text: text.replace("8640", "9" * 18)), True),
    ("a size of 19 digits", _text(lambda text: text.replace("8640", "1" + "0" * 18)), False),
    ("a size of 5,000 digits", _text(lambda text: text.replace("8640", "9" * 5000)), False),
    ("a root of 31 bytes", _text(lambda text: text.replace(_ROOT, base64.b64encode(bytes(31)).decode())), False),
    ("a root without padding", _text(lambda text: text.replace(_ROOT, _ROOT[:-1])), False),
    ("a root with bits behind its last byte", _text(lambda text: text.replace("Hh8=", "Hh9=")), False),
    ("an origin of one part", _text(lambda text: text.replace(HEAD.origin, "lake")), False),
    ("an origin of three parts", _text(lambda text: text.replace(HEAD.origin, "lake/orders/orders")), True),
    ("an origin with an empty part", _text(lambda text: text.replace("orders/orders", "orders/")), False),
    ("an origin with a space", _text(lambda text: text.replace("orders/orders", "orders/or ders")), False),
    ("a line separator in the origin", _text(lambda text: text.replace("orders/orders", "or\u2028ders/o")), False),
    ("a next line in a further line", _text(lambda text: f"{text}a\u0085b\n"), True),
    ("results without a hash", _text(lambda text: text.replace(f" {AUDIT[1]}", "")), False),
    ("results with a short hash", _text(lambda text: text.replace(AUDIT[1], "9f" * 16)), False),
    ("results with a hash in capitals", _text(lambda text: text.replace(AUDIT[1], "9F" * 32)), False),
    ("results twice", _text(lambda text: f"{text}results {AUDIT[0]} {AUDIT[1]}\n"), False),
    ("text before the note", "\n" + HEAD.note, False),
    ("a byte order mark before the note", "\ufeff" + HEAD.note, False),
    ("bytes that are no UTF-8", HEAD.note.encode() + b"\xff", False),
    # Documents.
    ("no notes", _whole(lambda values: values.update(notes=[])), False),
    ("notes that are no list", _whole(lambda values: values.update(notes=values["notes"][0])), False),
    ("notes that are gone", _whole(lambda values: values.pop("notes")), False),
    ("a note that is a number", _whole(lambda values: values["notes"].append(7)), False),
    ("two notes of a chain", _whole(lambda values: values["notes"].append(HEAD.note)), False),
    ("one wrong note", _whole(lambda values: values["notes"].append(note(text_of(HEAD), OTHER))), False),
    ("half of a character in a note", _whole(lambda values: values["notes"].append("\ud800")), False),
    ("half of a character in another key", _whole(lambda values: values.update(more="\ud800")), True),
    ("another origin", _whole(lambda values: values.update(origin="example.org/other")), False),
    ("no origin", _whole(lambda values: values.pop("origin")), False),
    ("no proofs", _whole(lambda values: values.pop("consistency")), True),
    ("proofs that are null", _whole(lambda values: values.update(consistency=None)), False),
    ("proofs that are a list", _whole(lambda values: values.update(consistency=[])), False),
    ("a proof that is null", _whole(lambda values: values["consistency"].update({"a/b/c": None})), False),
    (
        "a proof of another chain",
        _whole(lambda values: values["consistency"].update({"a": {"from": 1, "hashes": []}})),
        True,
    ),
    ("a proof without from", _whole(lambda values: values["consistency"][HEAD.origin].pop("from")), False),
    ("a proof without hashes", _whole(lambda values: values["consistency"][HEAD.origin].pop("hashes")), False),
    ("a size that is infinite", DOCUMENT.replace('"from": 9,', '"from": Infinity,'), False),
    ("a size that is no number", DOCUMENT.replace('"from": 9,', '"from": NaN,'), False),
    ("a size with a point", _proof(**{"from": 9.0}), False),
    ("a size that is a text", _proof(**{"from": "9"}), False),
    ("a size that is true", _proof(**{"from": True}), False),
    ("a size before zero", _proof(**{"from": -1}), False),
    ("a proof from no entry", _proof(**{"from": 0}), True),
    ("a size of 64 bits", _proof(**{"from": 2**63}), False),
    ("a size of 63 bits", _proof(**{"from": 2**63 - 1}), True),
    ("a size of 40 digits", _proof(**{"from": 10**40 - 1}), False),
    ("a size of 5,000 digits in a proof", DOCUMENT.replace('"from": 9,', f'"from": {"9" * 5000},'), False),
    ("a hash of 31 bytes", _proof(hashes=[base64.b64encode(bytes(31)).decode()]), False),
    ("a hash with bits behind its last byte", _proof(hashes=[_ROOT.replace("Hh8=", "Hh9=")]), False),
    ("a hash with a line break", _proof(hashes=[_ROOT + "\n"]), False),
    ("a hash that is a number", _proof(hashes=[7]), False),
    ("hashes that are a text", _proof(hashes=_ROOT), False),
    ("128 hashes", _proof(hashes=[_ROOT] * 128), True),
    ("129 hashes", _proof(hashes=[_ROOT] * 129), False),
    ("no timestamp", _whole(lambda values: values.pop("timestamp")), True),
    ("a timestamp that is null", _whole(lambda values: values.update(timestamp=None)), True),
    ("a timestamp that is a number", _whole(lambda values: values.update(timestamp=7)), False),
    ("a timestamp that is no base64", _whole(lambda values: values.update(timestamp="*")), False),
    ("a further key", _whole(lambda values: values.update(more={"a": [1.5, None]})), True),
    ("keys of a proof", _whole(lambda values: values.update(entry_hash="x", old=7, note="x")), True),
    ("a key twice", DOCUMENT.replace('{\n "origin"', '{"notes": [], "origin"'), False),
    ("a key of a further key twice", DOCUMENT.replace('{\n "origin"', '{"a": {"b": 1, "b": 2}, "origin"'), False),
    ("a list", f"[{DOCUMENT}]", False),
    ("two documents", DOCUMENT * 2, False),
    ("space around it", f" \n{DOCUMENT}\n\n", True),
    ("a no-break space before it", f"\u00a0{DOCUMENT}", False),
    ("a byte order mark", "\ufeff" + DOCUMENT, False),
    ("half of it", DOCUMENT[: len(DOCUMENT) // 2], False),
    ("200,000 lists", DOCUMENT[:2] + '"a": ' + "[" * 200_000, False),
    ("nothing", "", False),
    ("more than 8 MiB", DOCUMENT + " " * (8 << 20), False),
]

_PIECES = (
    *(
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\t",
        "\0",
        "\x1f",
        "\x7f",
        "\x85",
        "\u00a0",
        "\u2028",
        "\u3000",
        " ",
        "  ",
        "+",
        "=",
        "==",
        "/",
    ),
    *(
        "—",
        "— ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"',
        '"a": 1,',
        "\\ud800",
        "\\n",
        "\\u0000",
        "\ufeff",
        "null",
        "true",
    ),
    *(
        "0",
        "00",
        "1e3",
        "-1",
        "9.0",
        "9" * 20,
        "9" * 40,
        "Infinity",
        "NaN",
        "at ",
        "results ",
        "at 2026-11-23T17:00:00Z\n",
        "a\n",
    ),
    *(_ROOT, AUDIT[1], "— example.net/w AAAAAAA=\n", HEAD.note.splitlines()[-1] + "\n", "８", "²"),
)
_VALUES = (
    None,
    True,
    0,
    1,
    -1,
    9,
    2**63,
    10**40,
    1.5,
    "",
    "x",
    [],
    {},
    ["x"],
    [_ROOT],
    {"from": 1, "hashes": []},
    HEAD.note,
    COPY.note,
)


def changed(random: Random) -> bytes:
    """A file that was right, with some random changes; its notes are often signed again after it."""
    kind = random.randrange(4)
    if kind == 0:
        given = _edited(HEAD.note, random)
    elif kind == 1:
        given = note(_edited(text_of(random.choice((HEAD, COPY))), random))
    elif kind == 2:
        given = _edited(DOCUMENT, random)
    else:
        values = json.loads(DOCUMENT)
        if random.random() < 0.5:
            values["notes"][0] = note(_edited(text_of(HEAD), random))
        if random.random() < 0.7:
            _revalue(values, random)
        given = json.dumps(values, ensure_ascii=random.random() < 0.5)
    content = bytearray(given.encode(errors="surrogatepass"))
    if random.random() < 0.05 and content:
        content[random.randrange(len(content))] = random.randrange(256)
    return bytes(content)


def _edited(text: str, random: Random) -> str:
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        at = random.randrange(len(text) + 1)
        if random.random() < 0.5:  # at the end or the beginning of a line, where separators are
            at = text.rfind("\n", 0, at) + random.randrange(2)
        length = random.choice((0, 0, 1, 1, 2, 8, 60))
        piece = random.choice(("", *_PIECES, text[at : at + random.randrange(60)]))
        text = text[:at] + piece + text[at + length :]
    return text


def _revalue(values: Any, random: Random) -> None:
    """Replaces, removes or adds a value somewhere in a document."""
    here = values
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return
        key = random.choice(keys)
        if isinstance(here[key], dict | list) and random.random() < 0.7:
            here = here[key]
            continue
        if random.random() < 0.2:
            del here[key]
        elif isinstance(here, dict) and random.random() < 0.2:
            here[random.choice(("a", "from", HEAD.origin, "timestamp"))] = random.choice(_VALUES)
        else:
            here[key] = random.choice(_VALUES)
        return
