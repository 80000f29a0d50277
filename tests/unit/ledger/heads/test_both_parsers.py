"""recon and examples/verify_heads.py take the same files and read the same in them: the grammar of docs/heads.md."""

from __future__ import annotations

from random import Random

import pytest

from recon.audits.verify_pack import verify
from recon.base.errors import ConfigError, LedgerError
from recon.model.pack import Pack, PackedChain
from recon.write.ledger.heads.documents import parse
from recon.write.ledger.heads.keys import PublicKey
from tests.support.heads import NOW
from tests.support.signed_documents import COPY, KEY, VECTORS, changed
from tests.unit.ledger.heads.test_independent_verifier import THEIRS

Read = tuple[list[tuple[str, int, bytes]], dict[str, tuple[int, list[bytes]]]] | None
_KEYS = dict([THEIRS.read_key(str(KEY.public))])


def _ours(content: bytes) -> Read:
    """The heads, and the consistency proofs by their origin; None where the file is refused."""
    try:
        document = parse(content, [KEY.public], "the file")
    except LedgerError:
        return None
    origins = {head.origin for head in document.heads}
    proofs = {of: (size, list(path)) for of, (size, path) in document.consistency.items() if of in origins}
    return [(head.origin, head.size, head.root) for head in document.heads], proofs


def _theirs(content: bytes) -> Read:
    try:
        heads, proofs = THEIRS.verify_file(content, _KEYS)
    except Exception:  # whatever it raises, `main` says it in words
        return None
    return [head[:3] for head in heads], {head[0]: (size, path) for size, head, path in proofs}


@pytest.mark.parametrize(
    ("content", "right"), [vector[1:] for vector in VECTORS], ids=[vector[0] for vector in VECTORS]
)
def test_both_take_what_the_grammar_has_and_nothing_else(content: str | bytes, right: bool) -> None:
    given = content if isinstance(content, bytes) else content.encode(errors="surrogatepass")
    assert (_ours(given) is not None, _theirs(given) is not None) == (right, right)


_NOTES = [vector for vector in VECTORS if isinstance(vector[1], str) and not vector[1].lstrip().startswith(("{", "["))]


@pytest.mark.parametrize(("note", "right"), [vector[1:] for vector in _NOTES], ids=[vector[0] for vector in _NOTES])
def test_a_pack_takes_the_notes_of_the_grammar_and_nothing_else(note: str, right: bool) -> None:
    sink = "copy" if note == COPY.note else "orders"
    chain = PackedChain(
        pipeline="orders",
        sink=sink,
        before=None,
        texts=(),
        after=None,
        begin=0,
        path=(),
        note=note,
        reason="",
        answer="",
    )
    given = Pack(
        project="lake", recon_version="1", generated_at=NOW, period_from=NOW, period_to=NOW, keys=(), chains=(chain,)
    )
    state = verify(given, [KEY.public], given=True).chains[0].checks["signature"].state
    assert (state == "right") is right


@pytest.mark.parametrize(
    "inputs", [pytest.param(10_000, id="quick"), pytest.param(300_000, marks=pytest.mark.long, id="long")]
)
def test_both_say_the_same_of_files_that_were_changed_at_random(inputs: int) -> None:
    taken = 0
    for seed in range(inputs):
        content = changed(Random(seed))
        ours = _ours(content)
        assert ours == _theirs(content), f"of seed {seed}"
        taken += ours is not None
    assert inputs // 10 < taken < inputs // 2  # enough of both kinds


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text,
        lambda text: f" {text}\n",
        lambda text: text.replace("example.org", "example org"),
        lambda text: text.replace("example.org", "example.net"),
        lambda text: text.replace("=", ""),
        lambda text: text.upper(),
        lambda text: f"{text}=",
        lambda text: text.split("+")[0],
        lambda text: "",
        lambda text: f"\ud800{text}",
    ],
)
def test_both_take_the_same_keys(edit) -> None:  # type: ignore[no-untyped-def]
    text = edit(str(KEY.public))
    try:
        key = PublicKey.parse(text)
    except ConfigError:
        with pytest.raises((THEIRS.Wrong, ValueError)):
            THEIRS.read_key(text)
    else:
        assert THEIRS.read_key(text) == ((key.name, key.id), key.raw)
