"""examples/verify_heads.py, which knows nothing of recon, agrees with recon on every vector, right and wrong."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.base.errors import LedgerError
from recon.project import Project
from recon.write.ledger import open_ledger
from recon.write.ledger.heads import merkle, proving
from recon.write.ledger.heads.documents import Document, parse
from recon.write.ledger.heads.notes import signed, verified
from recon.write.ledger.heads.signing import key_of, public_keys
from tests.support.heads import NOW, OTHER_SEED, grow, publish_heads, signing_project
from tests.unit.ledger.heads.test_merkle import INPUTS, PATHS, PROOFS, ROOTS
from tests.unit.ledger.heads.test_notes import HEAD, KEY

FILE = Path(__file__).parents[4] / "examples" / "verify_heads.py"


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify_heads", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


THEIRS = _loaded()


def _includes(root: bytes, size: int, index: int, leaf: bytes, path: list[bytes]) -> bool:
    try:
        return bool(0 <= index < size and THEIRS.root_of_leaf(leaf, index, size, path) == root)
    except THEIRS.Wrong:
        return False


def _is_consistent(old_root: bytes, old: int, root: bytes, size: int, path: list[bytes]) -> bool:
    try:
        THEIRS.verify_growth(("o", old, old_root, []), ("o", size, root, []), path)
    except THEIRS.Wrong:
        return False
    return True


def test_it_is_short_and_without_recon() -> None:
    source = FILE.read_text()
    assert "import recon" not in source and "from recon" not in source
    assert len([line for line in source.splitlines() if line.strip()]) < 210


def test_the_vectors_of_certificate_transparency() -> None:
    leaves = [merkle.leaf_hash(data) for data in INPUTS]
    roots = [bytes.fromhex(root) for root in ROOTS]
    for (index, size), path in PATHS.items():
        assert _includes(roots[size - 1], size, index, leaves[index], [bytes.fromhex(node) for node in path])
    for (old, size), path in PROOFS.items():
        assert _is_consistent(roots[old - 1], old, roots[size - 1], size, [bytes.fromhex(node) for node in path])


@given(st.integers(1, 90), st.data())
def test_both_say_the_same_of_proofs_that_are_right_and_of_those_that_were_changed(
    size: int, data: st.DataObject
) -> None:
    tree = merkle.Leaves([merkle.leaf_hash(bytes([n])) for n in range(size)])
    index, old = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size))
    root, old_root = tree.root(0, size), tree.root(0, old)

    def changed(path: list[bytes]) -> list[bytes]:
        what = data.draw(st.sampled_from(["nothing", "drop", "add", "swap"]))
        place = data.draw(st.integers(0, max(len(path) - 1, 0)))
        if what == "drop":
            return path[:place] + path[place + 1 :]
        if what == "add":
            return [*path[:place], root, *path[place:]]
        return path[::-1] if what == "swap" else path

    path = changed(merkle.inclusion(tree, index, size))
    index += data.draw(st.sampled_from([0, 0, 1, -1]))
    leaf = tree.hashes[min(max(index, 0), size - 1)]
    assert merkle.includes(root, size, index, leaf, path) == _includes(root, size, index, leaf, path)
    path = changed(merkle.consistency(tree, old, size))
    old += data.draw(st.sampled_from([0, 0, 1, -1]))
    assert merkle.is_consistent(old_root, old, root, size, path) == _is_consistent(old_root, old, root, size, path)


def test_signatures() -> None:
    keys = dict([THEIRS.read_key(str(KEY.public))])
    assert THEIRS.open_note(HEAD.note, keys) == (
        HEAD.origin,
        HEAD.size,
        HEAD.root,
        ["at 2026-11-23T17:00:00Z"],
    )
    for edited in (HEAD.note.replace("8640", "8641"), HEAD.note[:60], HEAD.note.replace("example.org", "example.net")):
        with pytest.raises(Exception):  # noqa: B017 - whatever it raises, `main` says it in words
            THEIRS.open_note(edited, keys)
        with pytest.raises(LedgerError):
            verified(edited, [KEY.public], "the note")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = signing_project(tmp_path, "orders", "copy")
    for hour in range(3):
        grow(project, 4 + hour)
        grow(project, 2, "copy")
        publish_heads(project, NOW + timedelta(hours=hour))
    return project


def _proofs(project: Project) -> list[Path]:
    """A proof of each kind, and all published documents."""
    ledger, keys, folder = open_ledger(project), public_keys(project), project.project_dir
    (folder / "entry.json").write_bytes(proving.dump(proving.prove(project, ledger, keys, ("orders", "orders"), "5")))
    documents = sorted((folder / "outside").iterdir())
    old = verified(json.loads(documents[0].read_text())["notes"][0], keys, "the note")
    grown = proving.prove_growth(project, ledger, keys, old.chain, old)
    (folder / "grown.json").write_bytes(proving.dump(grown))
    return [folder / "entry.json", folder / "grown.json", *documents]


def _run(project: Project, *files: Path) -> int:
    key = key_of(project)
    assert key is not None
    return int(THEIRS.main(["--key", str(key.public), *map(str, files)]))


def test_what_recon_publishes_and_proves(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(project, *_proofs(project)) == 0
    entry = open_ledger(project).entries("orders", "orders")[4].entry_hash
    assert capsys.readouterr().out.splitlines() == [
        f"example.org/lake/orders/orders: the entry {entry} is number 5 of 15",
        "example.org/lake/orders/copy: 3 heads, the largest of 6 entries",
        "example.org/lake/orders/orders: 3 heads, the largest of 15 entries",
    ]


def _other_hash(values: dict) -> None:  # type: ignore[type-arg]
    values["entry_hash"] = "0" * 64


def _other_index(values: dict) -> None:  # type: ignore[type-arg]
    values["index"] += 1


def _other_index_by_a_fraction(values: dict) -> None:  # type: ignore[type-arg]
    values["index"] += 0.0


def _other_pipeline(values: dict) -> None:  # type: ignore[type-arg]
    values["pipeline"] = "lake/orders"


def _other_path(values: dict) -> None:  # type: ignore[type-arg]
    values["hashes"] = values["hashes"][::-1]


def _other_sink(values: dict) -> None:  # type: ignore[type-arg]
    values["sink"] = "copy"


def _no_note(values: dict) -> None:  # type: ignore[type-arg]
    values["note"] = values["note"][:50]


@pytest.mark.parametrize(
    "said", ["x", '{"notes": ' + "[" * 200_000, " " * 9_000_000, '{"notes": ["\\ud800"]}', '{"notes": []}', "{}", "[]"]
)
def test_a_file_that_is_none_is_named_and_the_others_are_compared(
    project: Project, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, right = project.project_dir / "junk", _proofs(project)
    file.write_text(said)
    assert _run(project, file, *right) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{file}: ") and len(lines[0]) < 400 and len(lines) == 4
    assert _run(project, file) == 1


def test_a_size_that_is_no_number_is_named(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    newest = _proofs(project)[-1]
    right = newest.read_text()
    for size in ("Infinity", "9.5", '"9"'):
        newest.write_text(re.sub('"from": [0-9]+', f'"from": {size}', right))
        assert _run(project, newest) == 1
        assert "is no" in capsys.readouterr().out


def _without_proof(values: dict) -> None:  # type: ignore[type-arg]
    values["consistency"] = {}


def _from_no_head(values: dict) -> None:  # type: ignore[type-arg]
    for proof in values["consistency"].values():
        proof["from"] += 1


def _from_nothing(values: dict) -> None:  # type: ignore[type-arg]
    for proof in values["consistency"].values():
        proof["from"] = 0


@pytest.mark.parametrize("change", [_without_proof, _from_no_head, _from_nothing])
def test_heads_that_no_proof_joins_are_counted_and_not_right(
    project: Project,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[dict], None],  # type: ignore[type-arg]
) -> None:
    first, second, third = sorted((project.project_dir / "outside").iterdir())
    values = json.loads(second.read_text())
    change(values)
    second.write_text(json.dumps(values))
    assert _run(project, first, second, third) == 1
    assert [line for line in capsys.readouterr().out.splitlines() if "NOT" in line] == [
        f"example.org/lake/orders/{sink}: 1 NOT compared with the largest head, of {size} entries: no consistency proof"
        for sink, size in (("copy", 2), ("orders", 4))
    ]
    # What `recon ledger prove --since` writes joins the first again; one file alone has nothing to be compared with.
    ledger, keys = open_ledger(project), public_keys(project)
    proofs = []
    for old in parse(first.read_bytes(), keys, "the file").heads:
        proofs.append(project.project_dir / f"{old.chain[1]}.json")
        proofs[-1].write_bytes(proving.dump(proving.prove_growth(project, ledger, keys, old.chain, old)))
    assert _run(project, first, second, third, *proofs) == 0
    assert _run(project, second) == 0


def test_two_heads_that_continue_one_are_not_compared_with_each_other(project: Project) -> None:
    """Both begin with the first head; that says nothing of the two."""
    key, (first, second, _) = key_of(project), sorted((project.project_dir / "outside").iterdir())
    assert key is not None
    (old,) = [head for head in parse(first.read_bytes(), [key.public], "the file").heads if head.chain[1] == "orders"]
    leaves = [merkle.leaf_hash(entry.entry_hash.encode()) for entry in open_ledger(project).entries("orders", "orders")]
    fork = merkle.Leaves([*leaves[:4], *[bytes(32)] * 7])
    document = Document(
        origin=old.ledger,
        heads=(signed(key, old.origin, 11, fork.root(0, 11), NOW),),
        consistency={old.origin: (4, tuple(merkle.consistency(fork, 4, 11)))},
    )
    file = project.project_dir / document.name
    file.write_bytes(document.dump())
    assert _run(project, first, file) == 0
    assert _run(project, first, second, file) == 1


def test_a_key_that_is_none_is_a_fault_of_usage(project: Project) -> None:
    with pytest.raises(SystemExit, match="2"):
        THEIRS.main(["--key", "x", str(project.project_dir / "outside")])


def test_heads_of_an_earlier_key_are_verified_with_both(project: Project, tmp_path: Path) -> None:
    key, other = key_of(project), key_of(signing_project(tmp_path, key=OTHER_SEED))
    assert key is not None and other is not None
    later = signing_project(tmp_path, "orders", "copy", key=OTHER_SEED, public_keys=[str(key.public)])
    grow(later, 1)
    publish_heads(later, NOW + timedelta(hours=9))
    files = [str(file) for file in (tmp_path / "outside").iterdir()]
    assert THEIRS.main(["--key", str(key.public), *files]) == 1
    assert THEIRS.main(["--key", str(key.public), "--key", str(other.public), *files]) == 0


@pytest.mark.parametrize(
    "change",
    [
        _other_hash,
        _other_index,
        _other_index_by_a_fraction,
        _other_pipeline,
        _other_path,
        _other_sink,
        _no_note,
    ],
)
def test_a_proof_that_was_changed(project: Project, change: Callable[[dict], None]) -> None:  # type: ignore[type-arg]
    file = _proofs(project)[0]
    values = json.loads(file.read_text())
    change(values)
    file.write_text(json.dumps(values))
    assert _run(project, file) == 1


def test_a_fork_and_a_history_that_does_not_continue(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    key, documents = key_of(project), sorted((project.project_dir / "outside").iterdir())
    assert key is not None
    values = json.loads(documents[0].read_text())
    old = verified(values["notes"][0], [key.public], "the note")
    fork = project.project_dir / "fork.note"
    fork.write_text(signed(key, old.origin, old.size, bytes(32), old.at).note)
    assert _run(project, documents[0], fork) == 1
    assert "a fork" in capsys.readouterr().out
    assert _run(project, documents[1], fork) == 1
    assert "the consistency proof is wrong" in capsys.readouterr().out
    values = json.loads(documents[1].read_text())
    proof = values["consistency"][old.origin]
    proof["hashes"] = [base64.b64encode(bytes(32)).decode()] * len(proof["hashes"])
    documents[1].write_text(json.dumps(values))
    assert _run(project, *documents[:2]) == 1
