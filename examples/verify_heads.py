"""Verifies what recon signed and published, without recon: signatures, inclusion and consistency proofs.

    python verify_heads.py --key KEY FILE …

KEY is the public key (name+id+base64). Each FILE is a published document of heads, a signed note, or a proof of
`recon ledger prove`. All heads of one origin are compared with each other, as far as consistency proofs lead.
Exit 0: all is right; 1: something is not; 2: usage. Needs `cryptography`. Formats: RFC 6962, C2SP signed-note and
tlog-checkpoint.
"""

import argparse
import base64
import hashlib
import json
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MOST_BYTES = 1 << 23


class Wrong(Exception):
    """Something is not right."""


def need(condition, sentence):
    if not condition:
        raise Wrong(sentence)


def no_number(text):
    raise Wrong(f"{text} is no number")


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def open_note(note, key):
    """(origin, size, root, extension lines) of a note that the key signed."""
    name, key_id, raw = key.split("+", 2)
    raw = base64.b64decode(raw)
    need(
        raw[0] == 1 and sha256(name.encode(), b"\n", raw)[:4].hex() == key_id, "the key's parts do not belong together"
    )
    text, _, signatures = note.rpartition("\n\n")
    text += "\n"
    for line in signatures.splitlines():
        _, signer, signature = line.split(" ")
        signature = base64.b64decode(signature)
        if signer == name and signature[:4].hex() == key_id:
            Ed25519PublicKey.from_public_bytes(raw[1:]).verify(signature[4:], text.encode())
            origin, size, root, *more = text.splitlines()
            return origin, int(size), base64.b64decode(root), more
    raise Wrong(f"{name} did not sign this note")


def root_of_leaf(leaf, index, size, path):
    """The root that an inclusion proof leads to."""
    if size == 1:
        need(index == 0 and not path, "the inclusion proof has a wrong length")
        return leaf
    need(path, "the inclusion proof is too short")
    middle = 1 << (size - 1).bit_length() - 1
    if index < middle:
        return sha256(b"\x01", root_of_leaf(leaf, index, middle, path[:-1]), path[-1])
    return sha256(b"\x01", path[-1], root_of_leaf(leaf, index - middle, size - middle, path[:-1]))


def roots_of_growth(old, size, path, old_root, whole=True):
    """The roots of both trees that a consistency proof leads to."""
    if old == size:
        if whole:
            need(not path, "the consistency proof has a wrong length")
            return old_root, old_root
        need(len(path) == 1, "the consistency proof has a wrong length")
        return path[0], path[0]
    need(path, "the consistency proof is too short")
    middle = 1 << (size - 1).bit_length() - 1
    if old <= middle:
        before, after = roots_of_growth(old, middle, path[:-1], old_root, whole)
        return before, sha256(b"\x01", after, path[-1])
    before, after = roots_of_growth(old - middle, size - middle, path[:-1], old_root, False)
    return sha256(b"\x01", path[-1], before), sha256(b"\x01", path[-1], after)


def verify_growth(old, new, hashes):
    (_, size, root, _), (_, larger, larger_root, _) = old, new
    need(old[0] == new[0] and 0 < size <= larger, "the heads are not of one tree, or in the wrong order")
    need(roots_of_growth(size, larger, hashes, root) == (root, larger_root), "the consistency proof is wrong")


def verify_entry(proof, key):
    origin, size, root, _ = head = open_note(proof["note"], key)
    need(origin.endswith(f"/{proof['pipeline']}/{proof['sink']}"), "the head is of another pipeline or sink")
    need(0 <= proof["index"] < size, "the entry is behind the head")
    leaf = sha256(b"\x00", proof["entry_hash"].encode())
    path = [base64.b64decode(node) for node in proof["hashes"]]
    need(root_of_leaf(leaf, proof["index"], size, path) == root, "the inclusion proof is wrong")
    return head


def verify_file(content, key):
    """The heads of a file, and the consistency proofs of a document: (size before, head, hashes)."""
    if not content.lstrip().startswith("{"):
        return [open_note(content, key)], []
    values = json.loads(content, parse_constant=no_number)
    if "entry_hash" in values:
        return [verify_entry(values, key)], []
    if "old" in values:
        old, new = open_note(values["old"], key), open_note(values["note"], key)
        verify_growth(old, new, [base64.b64decode(node) for node in values["hashes"]])
        return [old, new], []
    heads = [open_note(note, key) for note in values["notes"]]
    proofs = {
        origin: (p["from"], list(map(base64.b64decode, p["hashes"]))) for origin, p in values["consistency"].items()
    }
    need(all(type(size) is int for size, _ in proofs.values()), "a size is no whole number")
    return heads, [(proofs[head[0]][0], head, proofs[head[0]][1]) for head in heads if head[0] in proofs]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key", required=True)
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    of_origin, growth, wrong = defaultdict(list), [], 0
    for file in options.files:
        try:
            with file.open("rb") as opened:
                content = opened.read(MOST_BYTES + 1)
            need(len(content) <= MOST_BYTES, "it is larger than any document of heads")
            heads, proofs = verify_file(content.decode(), options.key)
            growth += proofs
            for head in heads:
                of_origin[head[0]].append(head)
        except InvalidSignature:
            wrong += 1
            print(f"{file}: the signature is wrong")
        except Exception as error:  # whatever an edited file leads to: the others are compared all the same
            wrong += 1
            print(f"{file}: {error if isinstance(error, Wrong) else repr(error)[:200]}")
    for before, head, hashes in growth:
        for old in {old[2]: old for old in of_origin[head[0]] if old[1] == before}.values():
            try:
                verify_growth(old, head, hashes)
            except Wrong as error:
                wrong += 1
                print(f"{head[0]}: from {before} to {head[1]} entries: {error}")
    for origin, heads in sorted(of_origin.items()):
        for one, other in combinations({(head[1], head[2]): head for head in heads}.values(), 2):
            if one[1] == other[1]:
                wrong += 1
                print(f"{origin}: two heads of {one[1]} entries have different roots: a fork")
        print(f"{origin}: {len(heads)} heads, the newest of {max(head[1] for head in heads)} entries")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
