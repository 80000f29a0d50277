"""The Merkle tree: RFC 6962's own vectors, another implementation's answers, and properties."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.write.ledger.heads import merkle

# Certificate Transparency's reference vectors (google/certificate-transparency, merkle_tree_test.cc).
INPUTS = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
PATHS = {  # (index, size)
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (1, 5): [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
PROOFS = {  # (old, size)
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
VECTORS = merkle.Leaves([merkle.leaf_hash(data) for data in INPUTS])


def _tree(size: int) -> merkle.Leaves:
    return merkle.Leaves([merkle.leaf_hash(n.to_bytes(4, "big")) for n in range(size)])


def test_the_roots_of_certificate_transparency() -> None:
    assert merkle.folded([]) == merkle.EMPTY == sha256(b"").digest()
    assert [VECTORS.root(0, size).hex() for size in range(1, 9)] == ROOTS


@pytest.mark.parametrize(("index", "size"), PATHS)
def test_the_inclusion_proofs_of_certificate_transparency(index: int, size: int) -> None:
    path = merkle.inclusion(VECTORS, index, size)
    assert [node.hex() for node in path] == PATHS[index, size]
    assert merkle.includes(bytes.fromhex(ROOTS[size - 1]), size, index, VECTORS.hashes[index], path)


@pytest.mark.parametrize(("old", "size"), PROOFS)
def test_the_consistency_proofs_of_certificate_transparency(old: int, size: int) -> None:
    path = merkle.consistency(VECTORS, old, size)
    assert [node.hex() for node in path] == PROOFS[old, size]
    old_root, root = (bytes.fromhex(ROOTS[n - 1]) for n in (old, size))
    assert merkle.is_consistent(old_root, old, root, size, path)


@given(st.integers(1, 300), st.data())
def test_what_a_tree_proves_is_verified_and_nothing_else(size: int, data: st.DataObject) -> None:
    tree = _tree(size)
    root, index = tree.root(0, size), data.draw(st.integers(0, size - 1))
    path = merkle.inclusion(tree, index, size)
    assert merkle.includes(root, size, index, tree.hashes[index], path)
    other = data.draw(st.integers(0, size - 1))
    assert merkle.includes(root, size, other, tree.hashes[index], path) == (other == index)
    assert not merkle.includes(root, size, index, merkle.leaf_hash(b"another"), path)
    assert not merkle.includes(root, size, size, tree.hashes[index], path)
    assert not merkle.includes(root, size, index, tree.hashes[index], [*path, root])
    for place in range(len(path)):
        assert not merkle.includes(root, size, index, tree.hashes[index], path[:place] + path[place + 1 :])


@given(st.integers(1, 300), st.data())
def test_only_a_tree_that_begins_with_the_old_one_is_consistent_with_it(size: int, data: st.DataObject) -> None:
    tree, old = _tree(size), data.draw(st.integers(1, size))
    root, old_root = tree.root(0, size), tree.root(0, old)
    path = merkle.consistency(tree, old, size)
    assert merkle.is_consistent(old_root, old, root, size, path)
    edited = list(tree.hashes)
    edited[data.draw(st.integers(0, old - 1))] = merkle.leaf_hash(b"edited")
    forged = merkle.Leaves(edited)
    proof = merkle.consistency(forged, old, size)
    assert not merkle.is_consistent(old_root, old, forged.root(0, size), size, proof)
    assert not merkle.is_consistent(old_root, old, forged.root(0, size), size, path)
    assert not merkle.is_consistent(old_root, old, root, size, [*path, root])
    for place in range(len(path)):
        assert not merkle.is_consistent(old_root, old, root, size, path[:place] + path[place + 1 :])


def test_proofs_of_what_is_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="no leaf 3"):
        merkle.inclusion(_tree(3), 3, 3)
    for old in (0, 4):
        with pytest.raises(ValueError, match=f"of {old} leaves"):
            merkle.consistency(_tree(3), old, 3)
        assert not merkle.is_consistent(merkle.EMPTY, old, _tree(3).root(0, 3), 3, [])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 33])
def test_another_implementation_gives_the_same_answers(size: int) -> None:
    pymerkle = pytest.importorskip("pymerkle")
    other, tree = pymerkle.InmemoryTree(algorithm="sha256"), _tree(size)
    for n in range(size):
        other.append_entry(n.to_bytes(4, "big"))
    assert other.get_state(size) == tree.root(0, size)
    for index in range(size):
        path = other.prove_inclusion(index + 1, size).serialize()["path"][1:]  # it has the leaf first
        assert path == [node.hex() for node in merkle.inclusion(tree, index, size)]
        pymerkle.verify_inclusion(tree.hashes[index], tree.root(0, size), other.prove_inclusion(index + 1, size))
