"""Reads auditor's packs of this version of recon and of earlier ones, and finds whether their pages were edited."""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

from recon.base.errors import ConfigError
from recon.base.text import some
from recon.model.pack import FIGURES, Pack, PackedChain, figures_of
from recon.reports import pack as pages
from recon.reports.words import day, number, sink_name

# Pages of earlier versions of this format, without their slots, by hash: add that of docs/heads.md when it changes.
EARLIER: tuple[str, ...] = ()
_MOST_BYTES = 512 * 1024 * 1024  # of a page, and of its data, unpacked
_HEAD_BYTES = 4 * 1024 * 1024  # of a page, before its data
_MOST_TIMES = 200  # that data are larger unpacked: hashes, which are in every entry, cannot be packed
_ASK = "ask for the original"
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
_END = 253_402_300_800_000_000  # of the year 9999, in microseconds

# The first format: the page has the numbers itself, and no entry beside those of the period.
_SHELL_1 = "97590cdac15a23b400909505858b0e84dc2a6af9c453fcbe78ace803c8638bc4"
_SLOTS_1 = re.compile(
    r"(?<=<title>Auditor's pack · )[^<]*(?=</title>)"
    r"|(?<=<h1>Auditor's pack of )[^<]*(?=</h1>)"
    r"|(?<=<p>Ledger entries from )[^<]*(?=\. This page verifies)"
    r'|(?<=<tbody>\n)(?:<tr id="chain-[^\n]*\n)+'
    r'|(?<=<tbody>\n)(?:<tr id="figures-[^\n]*\n)+'
    r'|(?<=placeholder="name\+id\+base64"></p>\n)(?:<p>[^\n]*\n)+'
    r'|(?<=id="data">)[A-Za-z0-9+/=]*(?=</script>)'
)
_HEADER_1 = re.compile(r"(.{19}) UTC to (.{19}) UTC, made by recon (.*) on (.{19}) UTC")
_CHECKS_1 = "".join(
    f'<td data-check="{check}" data-state="unproved">not verified</td>'
    for check in ("signature", "hashes", "inclusion", "numbers")
)


@dataclass(frozen=True, kw_only=True)
class PackFile:
    """A pack as it was read.

    `beside` is whether its format has the entries beside those of the period. `edits` are sentences: what the page
    shows where its data give something else.
    """

    pack: Pack
    beside: bool
    edits: tuple[str, ...]


def is_pack(file: Path) -> bool:
    """Whether a file is an auditor's pack, or was one."""
    try:
        with file.open("rb") as opened:
            return b'<script type="application/octet-stream" id="data">' in opened.read(_HEAD_BYTES)
    except OSError:
        return False


def read(file: Path) -> PackFile:
    """The pack of a file.

    Raises:
        ConfigError: it is none, or its page was edited outside of its data.
    """
    name = str(file)
    with file.open("rb") as opened:
        content = opened.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{name} is larger than any pack of recon: it was edited; {_ASK}")
    page = content.decode("utf-8", "replace").replace("\r\n", "\n")
    if _is_of(_SLOTS_1.sub("", page), _SHELL_1):
        return _read_1(page, name)
    parts = pages.parts(page)
    if parts is None or not _is_of(parts[0], pages.shell_hash(), *EARLIER):
        found = f", and has the SHA-256 {_hash(parts[0])} outside of its data" if parts is not None else ""
        raise ConfigError(
            f"{name} was edited, or another version of recon wrote it: its page is not the one of this version"
            f"{found}; {_ASK}, or verify it with the recon that wrote it"
        )
    shell, given, packed = parts
    data = _unpacked(packed, name)
    pack = _pack(data, name)
    edits = _given(pack, given) if _is_of(shell, pages.shell_hash()) else ()
    return PackFile(pack=pack, beside=True, edits=tuple(edits))


def unedited(found: PackFile, name: str) -> None:
    """Refuses a pack whose page shows what its data do not give.

    Raises:
        ConfigError: it does.
    """
    if found.edits:
        raise ConfigError(f"{name} was edited after recon wrote it: {some(found.edits)}; {_ASK}")


def _hash(shell: str) -> str:
    return hashlib.sha256(shell.encode()).hexdigest()


def _is_of(shell: str, *known: str) -> bool:
    return _hash(shell) in known


def _given(pack: Pack, given: str) -> Iterator[str]:
    """Whether the text for readers without JavaScript is what the data give."""
    try:
        expected = pages.given(pack)
    except ValueError:  # an entry is none, which its check says
        return
    mine, theirs = given.split("\n"), expected.split("\n")
    pairs = [*zip(mine, theirs, strict=False), *((line, "nothing") for line in mine[len(theirs) :])]
    pairs += [("nothing", line) for line in theirs[len(mine) :]]
    yield from (
        f"it shows {line.strip()!r} where its data give {other.strip()!r}" for line, other in pairs if line != other
    )


# -- the data ----------------------------------------------------------------------------------------------------------


def _unpacked(packed: str, name: str) -> Mapping[str, Any]:
    def none(text: str) -> None:
        raise ValueError(f"{text} is no number")

    try:
        with gzip.open(io.BytesIO(base64.b64decode(packed, validate=True))) as stream:
            most = min(_MOST_BYTES, 2**20 + _MOST_TIMES * len(packed))
            data = json.loads(stream.read(most), parse_constant=none)
    except (OSError, EOFError, ValueError, RecursionError, binascii.Error) as error:
        raise ConfigError(f"{name} was damaged or edited: its data cannot be read ({error}); {_ASK}") from error
    if not isinstance(data, dict):
        raise _not_written(name)
    return data


def _not_written(name: str) -> ConfigError:
    return ConfigError(f"{name} was edited: its data are not as recon writes them; {_ASK}")


def _pack(data: Mapping[str, Any], name: str) -> Pack:
    times = [data.get("made"), *(data["period"] if isinstance(data.get("period"), list) else [])]
    whole = data.get("format") == pages.FORMAT and len(times) == 3 and all(_is_whole(at, _END) for at in times)
    if not whole or not _are_texts(data.get("project"), data.get("recon_version"), *_listed(data.get("keys"))):
        raise _not_written(name)
    made, begin, end = (_BEGIN + timedelta(microseconds=at) for at in times)
    chains = [_chain(chain, name) for chain in _listed(data.get("chains"))]
    if len({(chain.pipeline, chain.sink) for chain in chains}) < len(chains):
        raise ConfigError(f"{name} was edited: its data have a sink twice; {_ASK}")
    return Pack(
        project=data["project"],
        recon_version=data["recon_version"],
        generated_at=made,
        period_from=begin,
        period_to=end,
        keys=tuple(data["keys"]),
        chains=tuple(chains),
    )


_TEXTS = ("pipeline", "sink", "note", "reason", "answer")
_NOT_IN_1 = {"answer": "", "before": None, "after": None}


def _chain(chain: Any, name: str) -> PackedChain:
    """A chain of this format."""
    if not isinstance(chain, dict) or not _is_whole(chain.get("begin")) or not chain.keys() >= _NOT_IN_1.keys():
        raise _not_written(name)
    texts = [chain.get(key) for key in _TEXTS]
    texts += [chain[key] for key in ("before", "after") if chain[key] is not None]
    if not _are_texts(*texts, *_listed(chain.get("texts")), *_listed(chain.get("path"))):
        raise _not_written(name)
    return PackedChain(
        **{key: chain[key] for key in (*_TEXTS, "begin", "before", "after")},
        texts=tuple(chain["texts"]),
        path=tuple(map(_decoded, chain["path"])),
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


def _are_texts(*values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_whole(value: Any, below: int = 2**53) -> bool:
    return type(value) is int and 0 <= value < below


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""


# -- the first format --------------------------------------------------------------------------------------------------


def _read_1(page: str, name: str) -> PackFile:
    """A pack of the first format, whose page is as recon wrote it apart from its slots."""
    slots = _SLOTS_1.findall(page)
    header = _HEADER_1.fullmatch(slots[2]) if len(slots) == 7 else None
    if header is None:
        raise _not_written(name)
    try:
        begin, end, made = (datetime.fromisoformat(f"{header[i]}Z") for i in (1, 2, 4))
    except ValueError:
        raise _not_written(name) from None
    data, project = _unpacked(slots[6], name), unescape(slots[1])
    if not _are_texts(*_listed(data.get("keys"))):
        raise _not_written(name)
    raw = [chain if isinstance(chain, dict) else {} for chain in _listed(data.get("chains"))]
    chains = [_chain({**chain, **_NOT_IN_1}, name) for chain in raw]
    pack = Pack(
        project=project,
        recon_version=unescape(header[3]),
        generated_at=made,
        period_from=begin,
        period_to=end,
        keys=tuple(data["keys"]),
        chains=tuple(chains),
    )
    edits = [
        *_shown_1("title", unescape(slots[0]), f"{project} · {day(begin)}"),
        *_shown_1("keys", _without_markup(slots[5]), _keys_1(pack)),
        *_hashes_1(data, pack),
        *_rows_1(slots[3].splitlines(), slots[4].splitlines(), pack),
    ]
    return PackFile(pack=pack, beside=False, edits=tuple(edits))


def _shown_1(what: str, shown: str, expected: str) -> Iterator[str]:
    if shown != expected:
        yield f"it shows {shown.strip()!r} as {what} where its data give {expected.strip()!r}"


def _without_markup(lines: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", lines))


def _keys_1(pack: Pack) -> str:
    return "".join(f"In this file: {key}\n" for key in pack.keys) or "This file has no key: nothing was signed.\n"


def _hashes_1(data: Mapping[str, Any], pack: Pack) -> Iterator[str]:
    for raw, chain in zip(data["chains"], pack.chains, strict=True):
        hashes = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in chain.texts]
        if raw.get("hashes") != hashes:
            yield f"its hashes are not those of the {len(hashes)} entries of {sink_name(chain.pipeline, chain.sink)}"


def _rows_1(checks: list[str], figures: list[str], pack: Pack) -> Iterator[str]:
    """The rows of the two tables: names, and numbers, but for what audits said."""
    if not len(checks) == len(figures) == len(pack.chains):
        yield f"its tables have {len(checks)} and {len(figures)} rows, and its data {len(pack.chains)} sinks"
        return
    for at, chain in enumerate(pack.chains):
        name = sink_name(chain.pipeline, chain.sink)
        try:
            given = [number(figures_of(chain.texts)[figure].value) for figure in FIGURES]
        except ValueError:  # an entry is none, which its check says
            return
        cells = [f'<td class="num right" data-figure="{figure}">{given[i]}</td>' for i, figure in enumerate(FIGURES)]
        row = re.fullmatch(rf'<tr id="figures-{at}"><th scope="row">([^<]*)</th>(.*)<td>([^<]*)</td></tr>', figures[at])
        yield from _shown_1("name", unescape(row[1]) if row else figures[at], name)
        yield from _shown_1(f"numbers of {name}", row[2] if row else "", "".join(cells))
        label = re.fullmatch(rf'<tr id="chain-{at}"><th scope="row">([^<]*)</th>{_CHECKS_1}</tr>', checks[at])
        yield from _shown_1("name", unescape(label[1]) if label else checks[at], name)
