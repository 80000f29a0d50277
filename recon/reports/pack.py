"""Writes an auditor's pack: one HTML page that verifies itself in the browser, offline."""

from __future__ import annotations

import base64
import gzip
import json
import os
from pathlib import Path

from recon.model.pack import Pack
from recon.reports import pages
from recon.reports.run_results import write_text

# The figures are read from the page's own table: what the reader sees is what is verified.
_VERIFIED = ("pipeline", "sink", "texts", "hashes", "begin", "behind", "note", "reason")


def render(pack: Pack) -> str:
    """The page; its data are packed, and its script unpacks and verifies them."""
    data = {
        "keys": pack.keys,
        "chains": [
            {**{name: getattr(chain, name) for name in _VERIFIED}, "path": [_text(node) for node in chain.path]}
            for chain in pack.chains
        ],
    }
    packed = gzip.compress(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode(), 6, mtime=0)
    return pages.html("pack.html.j2", script="pack.js", pack=pack, data=_text(packed))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write(pack: Pack, path: str | os.PathLike[str]) -> Path:
    """Writes the page in one step."""
    return write_text(render(pack), path)
