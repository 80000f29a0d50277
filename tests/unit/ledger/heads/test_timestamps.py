"""RFC 3161 timestamps, by an authority that openssl makes here."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from recon.base.errors import ConfigError, LedgerError
from recon.model import Code
from recon.write.ledger import open_ledger
from recon.write.ledger.heads import signing, timestamps, verifying
from tests.support.heads import NOW, grow, signing_project

pytest.importorskip("rfc3161_client")
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")

_CONFIG = """
[tsa]
default_tsa = one
[one]
serial = serial
crypto_device = builtin
signer_cert = tsa.pem
signer_key = tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1
[ca]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = critical,timeStamping
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
[req]
distinguished_name = dn
[dn]
"""


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


class _Authority:
    """Answers as an authority does, or with `instead`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.instead = folder, b""
        folder.mkdir()
        (folder / "openssl.cnf").write_text(_CONFIG)
        (folder / "serial").write_text("01\n")
        new = ("req", "-config", "openssl.cnf", "-newkey", "rsa:2048", "-nodes")
        _openssl(folder, *new, "-x509", "-subj", "/CN=root", "-keyout", "root.key", "-out", "root.pem",
                 "-extensions", "ca", "-days", "30")  # fmt: skip
        _openssl(folder, *new, "-subj", "/CN=authority", "-keyout", "tsa.key", "-out", "tsa.csr")
        _openssl(folder, "x509", "-req", "-in", "tsa.csr", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial",
                 "-extfile", "openssl.cnf", "-extensions", "leaf", "-days", "30", "-out", "tsa.pem")  # fmt: skip
        authority = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = authority.instead or authority.answer(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, query: bytes) -> bytes:
        (self.folder / "query").write_bytes(query)
        _openssl(self.folder, "ts", "-reply", "-config", "openssl.cnf", "-section", "one", "-queryfile", "query",
                 "-out", "reply")  # fmt: skip
        return (self.folder / "reply").read_bytes()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Authority]:
    one = _Authority(tmp_path_factory.mktemp("authority") / "one")
    yield one
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture
def authority(made: _Authority) -> _Authority:
    made.instead = b""
    return made


def test_heads_get_a_timestamp_that_is_verified(authority: _Authority, tmp_path: Path) -> None:
    roots = str(authority.folder / "root.pem")
    project = signing_project(tmp_path, timestamp={"url": authority.url, "roots": roots})
    grow(project, 3)
    done = signing.sign(project, open_ledger(project), NOW - timedelta(days=30))
    assert done.document is not None and not done.notes
    response = done.document.timestamp
    assert response is not None
    at = timestamps.verified(response, done.document.stamped, Path(roots), "the document")
    assert at.tzinfo is not None
    with pytest.raises(LedgerError, match="the timestamp of the document is not right"):
        timestamps.verified(response, b"something else", Path(roots), "the document")
    with pytest.raises(LedgerError, match="the timestamp of the document is no timestamp"):
        timestamps.verified(b"x", b"", Path(roots), "the document")
    with pytest.raises(ConfigError, match="root certificates"):
        timestamps.verified(response, b"", tmp_path / "none.pem", "the document")
    # The clock of this test is far from the authority's.
    (finding,) = verifying.compare(project, open_ledger(project), [done.document]).findings
    assert finding.code is Code.UNUSUAL and "has a timestamp of" in finding.message


def test_an_authority_that_nobody_vouches_for_is_found(authority: _Authority, tmp_path: Path) -> None:
    another = _Authority(tmp_path / "another")
    another.server.shutdown()
    another.server.server_close()
    roots = str(another.folder / "root.pem")
    project = signing_project(tmp_path, timestamp={"url": authority.url, "roots": roots})
    grow(project, 3)
    document = signing.sign(project, open_ledger(project), NOW).document
    assert document is not None
    (finding,) = verifying.compare(project, open_ledger(project), [document]).findings
    assert finding.code is Code.TAMPERED and "is not right" in finding.message


@pytest.mark.parametrize("instead", [b"no timestamp", None])
def test_without_an_answer_heads_are_signed_all_the_same(
    authority: _Authority, tmp_path: Path, instead: bytes | None
) -> None:
    url = authority.url if instead else "http://127.0.0.1:1"
    authority.instead = instead or b""
    project = signing_project(tmp_path, timestamp={"url": url})
    grow(project, 3)
    done = signing.sign(project, open_ledger(project), NOW)
    assert done.document is not None and done.document.timestamp is None
    assert done.notes[0].startswith("the heads have no timestamp: ")


def test_a_document_without_a_timestamp_is_named_where_an_authority_is(authority: _Authority, tmp_path: Path) -> None:
    """One that was not stamped, and one whose timestamp was removed from one of two copies."""
    roots = str(authority.folder / "root.pem")
    project = signing_project(tmp_path, timestamp={"url": authority.url, "roots": roots})
    plain = signing_project(tmp_path)
    ledger = grow(project, 3)
    first, second = signing.sign(plain, ledger, NOW).document, signing.sign(project, ledger, datetime.now(UTC)).document
    assert first is not None and second is not None
    assert not verifying.compare(project, ledger, [second]).findings
    (finding,) = verifying.compare(project, ledger, [first, second]).findings
    assert finding.code is Code.UNUSUAL and f"1 document of heads has no timestamp ({first.name})" in finding.message
    removed = replace(second, timestamp=None)
    (finding,) = verifying.compare(project, ledger, [removed]).findings
    assert finding.code is Code.UNUSUAL and removed.name in finding.message
    (finding,) = verifying.compare(project, ledger, [second, removed]).findings
    assert finding.code is Code.TAMPERED and "somebody removed it" in finding.message
    (finding,) = verifying.compare(project, ledger, [replace(second, timestamp=b"x"), second]).findings
    assert finding.code is Code.TAMPERED and "is no timestamp" in finding.message
    # Without certificates it is said that none was verified; without an authority a missing one is nothing.
    unsure = signing_project(tmp_path, timestamp={"url": authority.url})
    assert "1 timestamp not verified" in verifying.compare(unsure, ledger, [second]).sentences[-1]
    assert "1 timestamp not verified" in verifying.compare(plain, ledger, [second]).sentences[-1]
    assert not verifying.compare(plain, ledger, [first]).findings


def test_an_answer_to_another_request_is_refused(authority: _Authority) -> None:
    authority.instead = b""
    first = timestamps.request(authority.url, b"one")
    authority.instead = first
    with pytest.raises(LedgerError, match="spoke of another content"):
        timestamps.request(authority.url, b"two")
    with pytest.raises(LedgerError, match="answered another request"):
        timestamps.request(authority.url, b"one")
    with pytest.raises(ConfigError, match="no http://"):
        timestamps.request("file:///etc/passwd", b"one")
