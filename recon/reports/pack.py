"""Writes an auditor's pack: one HTML page that verifies itself in the browser, offline.

Outside of its two slots, the page is the same for every pack of a version of recon (`shell_hash`). The slots hold no
markup: `data` what the script verifies, `given` what the file says, as text, for who has no JavaScript.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from html import unescape
from pathlib import Path

from recon.model.pack import FIGURES, Pack, figures_of
from recon.reports import pages, words
from recon.reports.run_results import write_text

FORMAT = 2
NAMES = {
    "batches": "micro-batches",
    "offsets": "offsets",
    "rows_written": "rows written",
    "rows_filtered": "rows filtered",
    "rows_quarantined": "rows quarantined",
}
_DATA = re.compile(r'^(<script type="application/octet-stream" id="data">)([A-Za-z0-9+/=]*)(</script>)$', re.MULTILINE)
_GIVEN = re.compile(r'^(<pre id="given">)([^<]*)(</pre>)$', re.MULTILINE)
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


def render(pack: Pack) -> str:
    """The page; its data are packed, and its script unpacks and verifies them."""
    data = {
        "format": FORMAT,
        "project": pack.project,
        "recon_version": pack.recon_version,
        "made": _micros(pack.generated_at),
        "period": [_micros(pack.period_from), _micros(pack.period_to)],
        "keys": pack.keys,
        "chains": [{**vars(chain), "path": [_text(node) for node in chain.path]} for chain in pack.chains],
    }
    packed = gzip.compress(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode(), 6, mtime=0)
    return _page(given=given(pack), data=_text(packed))


def given(pack: Pack) -> str:
    """What the file says, as text: read from it without verifying anything."""
    lines = [
        f"Project {pack.project}, {words.period(pack.period_from, pack.period_to)}",
        f"Made by recon {pack.recon_version} on {words.when(pack.generated_at)}",
    ]
    for chain in pack.chains:
        figures = figures_of(chain.texts)
        numbers = [f"{NAMES[name]} {_number(figures[name].value)}" for name in FIGURES]
        lines += ["", words.sink_name(chain.pipeline, chain.sink), *(f"  {text}" for text in numbers)]
        lines += [f"  audits said: {chain.answer}", f"  {'signed' if chain.note else f'not signed: {chain.reason}'}"]
    return "\n".join(map(words.one_line, [*lines, "", *(f"Key: {key}" for key in pack.keys)]))


def parts(page: str) -> tuple[str, str, str] | None:
    """The page without what its slots hold, then `given` and the packed data; None where it has not one of each."""
    found = [slot.findall(page) for slot in (_GIVEN, _DATA)]
    if [len(of) for of in found] != [1, 1]:
        return None
    shell = _DATA.sub(r"\1\3", _GIVEN.sub(r"\1\3", page))
    return shell, unescape(found[0][0][1]), found[1][0][1]


@cache
def shell_hash() -> str:
    """The SHA-256 of the page without what its slots hold."""
    return hashlib.sha256(_page(given="", data="").encode()).hexdigest()


def write(pack: Pack, path: str | os.PathLike[str]) -> Path:
    """Writes the page in one step."""
    return write_text(render(pack), path)


def _page(given: str, data: str) -> str:
    from markupsafe import Markup

    lines = Markup("&#10;").join(given.split("\n"))
    return pages.html("pack.html.j2", script="pack.js", sealed_style="pack.css", given=lines, data=data)


def _number(value: int | None) -> str:
    return "not known" if value is None else words.number(value)


def _micros(at: datetime) -> int:
    return (at - _BEGIN) // timedelta(microseconds=1)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
