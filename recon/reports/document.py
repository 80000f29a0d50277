"""A compliance report as data: JSON with a hash over its content, in every form of the report, and read back.

The hash is the SHA-256 of the content's canonical JSON: keys sorted, no spaces, UTF-8, times as ISO 8601 text. It shows
that a document was edited after it was written. Whoever edits the document can compute the hash anew, so `recon
compliance verify` derives every number again, too.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import io
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from recon.base.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from recon.model.compliance import ComplianceReport

FORMAT, VERSION = "recon-compliance", 1
_EMBEDDED = re.compile(r'<script type="application/json" id="document">([A-Za-z0-9+/=\s]*)</script>')
_KEYS = {"format", "version", "sha256", "report"}
_ASK = "ask for the original"
_MOST_BYTES = 512 * 1024 * 1024  # of an embedded document, unpacked


def content_of(report: ComplianceReport) -> dict[str, Any]:
    """The report's fields as plain values of JSON."""
    content: dict[str, Any] = _adapter().dump_python(report, mode="json", warnings=False)
    return content


def hash_of(content: Any) -> str:
    """The SHA-256 of some content's canonical JSON, in hexadecimal.

    >>> hash_of({"b": 1, "a": "é"}) == hashlib.sha256('{"a":"é","b":1}'.encode()).hexdigest()
    True
    """
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def document_hash(report: ComplianceReport) -> str:
    """The hash that every form of the report shows."""
    return hash_of(content_of(report))


def dump(report: ComplianceReport, *, indent: int | None = None) -> str:
    """The report as a JSON document with its hash."""
    content = content_of(report)
    document = {"format": FORMAT, "version": VERSION, "sha256": hash_of(content), "report": content}
    return json.dumps(document, indent=indent, ensure_ascii=False)


def packed(report: ComplianceReport) -> str:
    """The same for an HTML page: gzipped, in base64."""
    return base64.b64encode(gzip.compress(dump(report).encode("utf-8", "surrogatepass"), 6, mtime=0)).decode()


def unpacked(page: str, name: str) -> str:
    """The JSON document in an HTML page; `name` is the page's, for errors.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    found = _EMBEDDED.search(page)
    if found is None:
        raise ConfigError(
            f"{name} holds no numbers of a compliance report: it is none, is truncated, or is older than the embedded "
            "document; give a report that `recon compliance` wrote"
        )
    try:
        with gzip.open(io.BytesIO(base64.b64decode(found[1], validate=True))) as stream:
            content = stream.read(_MOST_BYTES)
        return content.decode("utf-8", "surrogatepass")
    except (OSError, EOFError, ValueError, binascii.Error) as error:
        raise ConfigError(f"{name} was damaged or edited: its embedded document cannot be read ({error})") from error


def parse(text: str, name: str) -> ComplianceReport:
    """The report that a JSON document holds; `name` is the file's, for errors.

    Raises:
        ConfigError: it is none, is truncated or edited, or of a newer version of recon.
    """
    from pydantic import ValidationError

    try:
        document = json.loads(text, object_pairs_hook=_each_key_once)
    except _KeyTwice as error:
        raise ConfigError(
            f"{name} was edited: it has the key {error} twice, of which readers see one or the other; {_ASK}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is truncated or no compliance report: it is no JSON ({error})") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(f"{name} is no compliance report: it has no format {FORMAT!r}")
    if document.get("version") != VERSION:
        raise ConfigError(
            f"{name} has version {document.get('version')!r} of the format, and this recon reads version {VERSION}; "
            "verify it with the recon that wrote it"
        )
    if document.keys() != _KEYS:
        more = ", ".join(sorted(repr(key) for key in document.keys() ^ _KEYS))
        raise ConfigError(f"{name} was edited: keys of it are missing, or are none that recon writes: {more}; {_ASK}")
    content = document["report"]
    if hash_of(content) != document.get("sha256"):
        raise ConfigError(
            f"{name} was edited: its content has the SHA-256 {hash_of(content)}, and the document says "
            f"{document['sha256']}; {_ASK}"
        )
    try:
        report = _adapter().validate_python(content, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"{name} cannot be read by this version of recon: {'.'.join(map(str, first['loc']))}: {first['msg']}; "
            "verify it with the recon that wrote it"
        ) from error
    if hash_of(content_of(report)) != document["sha256"]:  # true is 1, and 1.0 is, to Python, and not to a reader
        raise ConfigError(
            f"{name} holds what this version of recon would not write: it was edited, or another version wrote it; "
            "verify it with the recon that wrote it"
        )
    return report


class _KeyTwice(Exception):
    """A key that an object of JSON has twice."""


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _KeyTwice(next(repr(name) for name in names if names.count(name) > 1))
    return found


@cache
def _adapter() -> TypeAdapter[ComplianceReport]:
    from pydantic import TypeAdapter

    from recon.model.compliance import ComplianceReport

    return TypeAdapter(ComplianceReport)
