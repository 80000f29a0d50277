"""Keys and signed notes, held against C2SP's own example and against openssl's keys."""

from __future__ import annotations

import base64
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from recon.base.errors import ConfigError, LedgerError
from recon.write.ledger.heads.documents import Document, parse
from recon.write.ledger.heads.keys import PublicKey, signing_key
from recon.write.ledger.heads.notes import signed, verified
from tests.support.heads import NOW, OTHER_SEED, SEED

KEY = signing_key("example.org/lake", SEED, "the key")
OTHER = signing_key("example.org/lake", OTHER_SEED, "the key")
HEAD = signed(KEY, "example.org/lake/orders/orders", 8640, bytes(range(32)), NOW)


def test_a_head_is_a_checkpoint_in_a_signed_note() -> None:
    lines = HEAD.note.split("\n")
    root = base64.b64encode(bytes(range(32))).decode()
    assert lines[:5] == ["example.org/lake/orders/orders", "8640", root, "at 2026-11-23T17:00:00Z", ""]
    assert lines[5].startswith("— example.org/lake ") and lines[6:] == [""]
    again = verified(HEAD.note, [OTHER.public, KEY.public], "the note")
    assert again == HEAD
    assert (again.chain, again.ledger) == (("orders", "orders"), "example.org/lake")
    assert PublicKey.parse(str(KEY.public)) == KEY.public


def test_the_example_of_go_sumdb_note_is_verified() -> None:
    """golang.org/x/mod/sumdb/note's example, from which C2SP's format comes."""
    key = PublicKey.parse("PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    text = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
    raw = base64.b64decode(
        "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
    )
    assert raw[:4] == key.id
    assert key.verifies(raw[4:], text.encode())
    assert not key.verifies(raw[4:], text.upper().encode())


@pytest.mark.parametrize(
    "edit",
    [
        lambda note: note[:40],
        lambda note: note[:-1],
        lambda note: note.replace("\n\n", "\n"),
        lambda note: note.replace("8640", "8641"),
        lambda note: note.replace("17:00", "18:00"),
        lambda note: note.replace("— example.org/lake ", "— example.org/lake  "),
        lambda note: "",
        lambda note: note + "\n",
    ],
)
def test_a_note_that_was_cut_off_or_edited_is_refused(edit) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LedgerError, match=r"cut off or edited|changed after"):
        verified(edit(HEAD.note), [KEY.public], "the note")


def test_a_note_of_a_key_that_is_not_known_is_refused() -> None:
    forged = signed(OTHER, HEAD.origin, 8640, bytes(range(32)), NOW)
    with pytest.raises(LedgerError, match="by none of the known keys"):
        verified(forged.note, [KEY.public], "the note")
    with pytest.raises(LedgerError, match="there is none"):
        verified(forged.note, [], "the note")
    # Both signatures on one note: a witness may add its own.
    both = HEAD.note + forged.note.rpartition("\n\n")[2]
    assert verified(both, [KEY.public], "the note").size == 8640


def test_a_signed_note_that_is_no_head_is_refused() -> None:
    for body in ("a/b/c\n1\nAAAA\nat 2026-11-23T17:00:00Z\n", "x\n1\n", "a/b/c\n-1\nAAAA\nat 2026-11-23T17:00:00Z\n"):
        signature = base64.b64encode(KEY.public.id + KEY.sign(body.encode())).decode()
        with pytest.raises(LedgerError, match="is signed, and"):
            verified(f"{body}\n— example.org/lake {signature}\n", [KEY.public], "the note")


@pytest.mark.parametrize("text", ["", "x", "a+b+c", str(KEY.public)[:-4], str(KEY.public).replace("lake", "like")])
def test_a_text_that_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no public key"):
        PublicKey.parse(text)


@pytest.mark.parametrize("text", ["", "x", "c2hvcnQ=", "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"])
def test_a_text_that_is_no_private_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match="heads: key is no private key") as raised:
        signing_key("lake", text, "heads: key")
    assert "MIIE" not in str(raised.value) and "c2hvcnQ" not in str(raised.value)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_keys_of_openssl(tmp_path: Path) -> None:
    def made(*arguments: str) -> str:
        file = tmp_path / "key.pem"
        subprocess.run(["openssl", "genpkey", *arguments, "-out", str(file)], check=True, capture_output=True)
        return file.read_text()

    key = signing_key("lake", made("-algorithm", "ed25519"), "the key")
    assert key.public.verifies(key.sign(b"text"), b"text")
    with pytest.raises(ConfigError, match="another kind than Ed25519"):
        signing_key("lake", made("-algorithm", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"), "the key")
    with pytest.raises(ConfigError, match="is an encrypted key"):
        signing_key("lake", made("-algorithm", "ed25519", "-aes256", "-pass", "pass:x"), "the key")


def test_a_document_comes_back_and_a_note_alone_is_one() -> None:
    document = Document(
        origin="example.org/lake", heads=(HEAD,), consistency={HEAD.origin: (3, (bytes(32),))}, timestamp=b"stamp"
    )
    assert parse(document.dump(), [KEY.public], "the document") == document
    assert document.name.startswith("20261123T170000Z-")
    alone = parse(HEAD.note.encode(), [KEY.public], "the note")
    assert (alone.origin, alone.heads) == ("example.org/lake", (HEAD,))
    assert HEAD.at == datetime(2026, 11, 23, 17, tzinfo=UTC)


@pytest.mark.parametrize("content", [b"{", b"{}", b'{"origin": "x", "notes": 1}', b"\xff\xfe", b'{"notes": []}', b"[]"])
def test_a_document_that_was_cut_off_is_refused(content: bytes) -> None:
    with pytest.raises(LedgerError, match="cut off or edited"):
        parse(content, [KEY.public], "the document")
