"""recon ledger verify --heads, prove and key."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from recon.project import load
from recon.write.ledger import open_ledger
from tests.support.heads import NOW, OTHER_SEED, SEED, grow, linked, publish_heads, rewrite
from tests.unit.cli.test_cli import BASE, Ended, recon  # noqa: F401

HEADS = """\
heads:
  origin: example.org/lake
  key: "{{ env_var('SIGNING_KEY') }}"
  publish: [{folder: outside}]
"""
Recon = Callable[..., Ended]


@pytest.fixture
def signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Heads of 3 and 5 entries, and 6 entries."""
    monkeypatch.setenv("SIGNING_KEY", SEED)
    (tmp_path / "recon.yml").write_text(BASE + HEADS)
    project = load(tmp_path)
    for hour, count in enumerate((3, 2)):
        grow(project, count)
        publish_heads(project, NOW + timedelta(hours=hour))
    grow(project, 1)
    return tmp_path


def test_verify_with_heads(recon: Recon, signed: Path) -> None:  # noqa: F811
    ended = recon("ledger", "verify", "--heads", "outside")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "orders.orders: 2 heads, the newest of 5 entries, signed 2026-11-23 18:00:00Z; 1 entry of the ledger behind it",
        "The ledger is intact: every hash and link is right.",
    ]
    (signed / "outside" / "package.json").write_text("{}")  # of a git repository, say
    assert recon("ledger", "verify", "--heads", "outside").code == 0
    (signed / "outside" / "package.json").unlink()
    for head in (signed / "outside").iterdir():
        assert recon("ledger", "verify", "--heads", str(head)).code == 0
        assert recon("ledger", "verify", "--heads", f"outside/{head.name}").code == 0


def test_verify_names_what_is_no_document_and_compares_the_others(recon: Recon, signed: Path) -> None:  # noqa: F811
    junk = signed / "outside/29991231T235959Z-000000000000.json"
    for content in (
        b"x",
        min((signed / "outside").iterdir()).read_bytes(),
        b'{"consistency": {"a": {"from": Infinity}}}',
    ):
        junk.write_bytes(content)
        ended = recon("ledger", "verify", "--heads", "outside")
        assert (ended.code, ended.err) == (0, "")
        first, second, third = ended.out.splitlines()
        assert first.startswith(f"UNUSUAL  outside/{junk.name} ") and first.endswith("it was left out")
        assert "2 heads, the newest of 5 entries" in second and third.startswith("The ledger is intact")
        assert recon("ledger", "prove", "--entry", "4").code == 0
        assert recon("compliance", "--from", "2026-11-20", "--to", "2026-11-20").code == 0
        ended = recon("ledger", "verify", "--heads", str(junk))
        if b"notes" in content:  # a name that somebody gives says nothing
            assert ended.code == 0
        else:
            assert (ended.code, ended.err.count("\n")) == (2, 1) and junk.name in ended.err
    (signed / "copy").mkdir()
    (signed / "copy" / junk.name).write_bytes(b"x")
    ended = recon("ledger", "verify", "--heads", "outside", "--heads", "copy")
    assert ended.code == 1 and "INCONCLUSIVE  the heads at copy cannot be compared" in ended.out
    assert ended.out.endswith("Not everything could be compared.\n")
    rewrite(load(signed), open_ledger(load(signed)).entries("orders", "orders")[:3])
    ended = recon("ledger", "verify", "--heads", "outside", "--heads", "copy")
    assert ended.code == 1 and ended.out.endswith("The ledger was changed or is damaged.\n")
    assert "the ledger has 3 entries of orders.orders, and the head of 5 entries" in ended.out


def test_verify_finds_who_wrote_the_ledger_anew(recon: Recon, signed: Path) -> None:  # noqa: F811
    project = load(signed)
    entries = open_ledger(project).entries("orders", "orders")
    rewrite(project, linked(entries[1:]))
    ended = recon("ledger", "verify", "--heads", "outside", "--output", "json")
    assert ended.code == 1
    assert "of its entries 1 to 3 one was edited" in json.loads(ended.out)[0]["message"]


def test_prove_and_key(recon: Recon, signed: Path) -> None:  # noqa: F811
    ended = recon("ledger", "prove", "--entry", "4")
    assert ended == Ended(0, "Proof: target/proof-orders-orders-4.json\n", "")
    file = signed / "target/proof-orders-orders-4.json"
    assert file.stat().st_size < 2048
    assert json.loads(file.read_text())["sequence"] == 4
    oldest = min((signed / "outside").iterdir())
    assert recon("ledger", "prove", "--since", str(oldest), "--output", "grown.json").code == 0
    assert "\n3\n" in json.loads((signed / "grown.json").read_text())["old"]
    key = recon("ledger", "key")
    assert key.out.startswith("example.org/lake+cf89c3db+")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "--heads", "nowhere"], "there are no heads at nowhere"),
        (["verify", "--heads", "outside", "--key", "x"], "'x' is no public key"),
        (["prove"], "give --entry, for the proof"),
        (["prove", "--entry", "1", "--since", "outside"], "give --entry, for the proof"),
        (["prove", "--entry", "x"], "--entry 'x' is no entry"),
        (["prove", "--entry", "6"], "is behind the head of 5 entries"),
        (["prove", "--entry", "7"], "has no entry 7"),
        (["prove", "--entry", "1", "--pipeline", "nope"], "recon.yml has no pipeline 'nope'"),
    ],
)
def test_bad_input_is_one_sentence(recon: Recon, signed: Path, arguments: list[str], message: str) -> None:  # noqa: F811
    ended = recon("ledger", *arguments)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert message in ended.err


def test_keys_are_masked_and_refused_in_the_file(
    recon: Recon,  # noqa: F811
    signed: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SIGNING_KEY", OTHER_SEED)
    ended = recon("ledger", "verify", "--heads", "outside")
    assert ended.code == 2 and "by none of the known keys" in ended.err
    assert OTHER_SEED not in ended.err
    (signed / "recon.yml").write_text(BASE + HEADS.replace("{{ env_var('SIGNING_KEY') }}", SEED))
    ended = recon("ledger", "key")
    assert (ended.code, SEED in ended.err) == (2, False)
    assert "the key of heads is written into the file" in ended.err
    monkeypatch.setenv("SIGNING_KEY", "not-a-key-but-secret")
    (signed / "recon.yml").write_text(BASE + HEADS)
    ended = recon("ledger", "key", "--debug")
    assert ended.code == 2 and "not-a-key-but-secret" not in ended.err
    (signed / "recon.yml").write_text(BASE + HEADS.replace("outside", "outside, topic: heads"))
    assert "needs one of folder, topic, git, command, and has folder and topic" in recon("ledger", "key").err


def test_no_line_of_a_key_is_shown(signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    monkeypatch.setenv("SIGNING_KEY", pem)
    project = load(signed)
    line = pem.splitlines()[1]
    for said in (pem, " ".join(pem.split()), repr(project), f"no key: {line}"):
        assert line not in project.mask(said)


def test_without_cryptography(recon: Recon, signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    import sys

    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    for arguments in (("ledger", "key"), ("ledger", "verify", "--heads", "outside"), ("audit", "--no-spark")):
        ended = recon(*arguments)
        assert ended.code == 2
        assert "signed heads need cryptography, which is not installed; pip install 'cryptography>=" in ended.err


def test_an_auditors_pack(recon: Recon, signed: Path) -> None:  # noqa: F811
    period = ("--from", "2026-11-20", "--to", "2026-11-20")
    assert recon("compliance", "pack", *period) == Ended(0, "Auditor's pack: target/pack.html\n", "")
    assert (signed / "target/pack.html").read_text().startswith("<!doctype html>")
    ended = recon("compliance", "pack", *period, "--format", "pdf")
    assert ended.code == 2 and "No such option" in ended.err
    assert recon("compliance", *period).out.startswith("Compliance report: ")
