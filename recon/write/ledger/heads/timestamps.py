"""Timestamps of documents by an authority (RFC 3161), through `rfc3161-client`."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any

from recon.base.errors import ConfigError, LedgerError
from recon.base.requirements import how_to_install
from recon.base.text import first_line

_ANSWER_S = 20.0
_MOST_BYTES = 1 << 20


def request(url: str, content: bytes) -> bytes:
    """An authority's response about a content, as it answered (DER).

    Raises:
        ConfigError: the URL is none of HTTP, or rfc3161-client is not installed.
        LedgerError: the authority did not answer, refused, or spoke of another content.
    """
    from urllib.request import Request, urlopen

    client = _client()
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"the timestamp authority {url} is no http:// or https:// URL")
    asked = client.TimestampRequestBuilder().data(content).hash_algorithm(client.HashAlgorithm.SHA256).build()
    headers = {"Content-Type": "application/timestamp-query"}
    try:
        with urlopen(Request(url, data=asked.as_bytes(), headers=headers), timeout=_ANSWER_S) as answer:
            response: bytes = answer.read(_MOST_BYTES)
    except OSError as error:
        raise LedgerError(f"the timestamp authority {url} did not answer: {first_line(error)}") from error
    decoded = _decoded(response, f"the answer of {url}")
    if decoded.tst_info.message_imprint.message != hashlib.sha256(content).digest():
        raise LedgerError(f"the timestamp authority {url} spoke of another content")
    if decoded.tst_info.nonce != asked.nonce:
        raise LedgerError(f"the timestamp authority {url} answered another request")
    return response


def verified(response: bytes, content: bytes, roots: Path, where: str) -> datetime:
    """When an authority saw a content.

    Args:
        response: as it was published (DER).
        content: the bytes that it must be made over.
        roots: a PEM file with the authority's root certificates.
        where: the timestamp comes from, for messages.

    Raises:
        ConfigError: the certificates cannot be read, or rfc3161-client is not installed.
        LedgerError: the timestamp is of another content, or no root certificate leads to it.
    """
    client = _client()
    from cryptography import x509

    try:
        certificates = x509.load_pem_x509_certificates(roots.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"the root certificates {roots} cannot be read: {first_line(error)}") from error
    builder = client.VerifierBuilder(roots=certificates)
    decoded = _decoded(response, f"the timestamp of {where}")
    try:
        builder.build().verify_message(decoded, content)
    except Exception as error:  # rfc3161-client and its Rust part raise several kinds
        raise LedgerError(f"the timestamp of {where} is not right: {first_line(error)}") from error
    at: datetime = decoded.tst_info.gen_time
    return at


def _decoded(response: bytes, where: str) -> Any:
    client = _client()
    try:
        decoded = client.decode_timestamp_response(response)
        granted = decoded.status == client.PKIStatus.GRANTED
    except Exception as error:  # ValueError, and what its Rust part raises
        raise LedgerError(f"{where} is no timestamp: {first_line(error)}") from error
    if not granted:
        raise LedgerError(f"{where} is a refusal: status {decoded.status}")
    return decoded


def _client() -> Any:
    try:
        import rfc3161_client
    except ImportError as error:
        raise ConfigError(
            f"timestamps need rfc3161-client, which is not installed; {how_to_install('heads')}"
        ) from error
    return rfc3161_client
