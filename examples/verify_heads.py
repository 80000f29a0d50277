"""Verifies what recon signed and published, without recon: signatures, inclusion and consistency proofs.

    python verify_heads.py --key KEY FILE …

KEY is a public key (name+id+base64); give --key once for each. Each FILE is a published document of heads, a signed
note, or a proof of `recon ledger prove`. Consistency proofs must lead from every head of a chain to its largest one.
Exit 0: all is right; 1: something is wrong, or was not compared; 2: usage. Needs `cryptography`. Timestamps, and the
results of audits that heads name, are not verified here. docs/heads.md has the grammar; the formats are RFC 6962, and
C2SP's signed-note and tlog-checkpoint.
"""

import argparse
import base64
import hashlib
import json
import re
import sys
from collections import defaultdict
from datetime import date
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MOST_BYTES, MOST_HASHES, MOST_SIGNATURES = 1 << 23, 128, 16
NAME, ORIGIN = re.compile(r"[^\s+]+"), re.compile(r"[^\s+]+/[^\s+/]+/[^\s+/]+")
NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
AT = re.compile(r"at ([0-9]{4})-([0-9]{2})-([0-9]{2})T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z")
RESULTS = re.compile(r"results \S+ [0-9a-f]{64}")


class Wrong(Exception):
    """Something is not right."""


def need(condition, sentence):
    if not condition:
        raise Wrong(sentence)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def decoded(text, length=None):
    """The bytes of a text in base64, which is the only one that stands for them."""
    need(type(text) is str and text.isascii(), "a text in base64 is none")
    raw = base64.b64decode(text, validate=True)
    need(base64.b64encode(raw).decode() == text and length in (None, len(raw)), "a text in base64 is another one")
    return raw


def read_key(text):
    """((name, id), 32 bytes) of a public key."""
    name, key_id, raw = text.strip().split("+", 2)
    raw = decoded(raw, 33)
    of = sha256(name.encode(), b"\n", raw)[:4]
    need(NAME.fullmatch(name) and raw[0] == 1 and of.hex() == key_id, "the parts of the key do not belong together")
    return (name, of), raw[1:]


def open_note(note, keys):
    """(origin, size, root, extension lines) of a head that one of the keys signed."""
    need(type(note) is str and not re.search(r"[\x00-\x09\x0b-\x1f]", note), "a note is no text of plain lines")
    text, empty, below = note.rpartition("\n\n")
    text, lines, signed = text + "\n", below.split("\n"), 0
    need(empty and not lines.pop() and 0 < len(lines) <= MOST_SIGNATURES, "the signed note is not whole")
    for line in lines:
        parts = line.split(" ")
        need(len(parts) == 3 and parts[0] == "—" and NAME.fullmatch(parts[1]), "a line is no signature")
        raw = decoded(parts[2])
        need(len(raw) > 4, "a signature is too short")
        key = keys.get((parts[1], raw[:4]))
        if key is not None:
            Ed25519PublicKey.from_public_bytes(key).verify(raw[4:], text.encode())
            signed += 1
    need(signed, "none of the keys signed this note")
    origin, size, root, *more = text.split("\n")[:-1]
    need(ORIGIN.fullmatch(origin) and NUMBER.fullmatch(size) and all(more), "the note is no head of a ledger")
    at, results = ([line for line in more if line.startswith(word)] for word in ("at ", "results "))
    need(len(at) == 1 and (when := AT.fullmatch(at[0])), "the head has no time of signing")
    date(*map(int, when.groups()[:3]))
    need(len(results) < 2 and all(map(RESULTS.fullmatch, results)), "the results are not those of one audit")
    return origin, int(size), decoded(root, 32), more


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


def verify_entry(proof, keys):
    origin, size, root, _ = head = open_note(proof["note"], keys)
    need(origin.rsplit("/", 2)[1:] == [proof["pipeline"], proof["sink"]], "the head is of another pipeline or sink")
    need(type(proof["index"]) is int and 0 <= proof["index"] < size, "the entry is behind the head")
    need(re.fullmatch("[0-9a-f]{64}", proof["entry_hash"]), "the hash of the entry is none")
    leaf = sha256(b"\x00", proof["entry_hash"].encode())
    need(root_of_leaf(leaf, proof["index"], size, read_hashes(proof)) == root, "the inclusion proof is wrong")
    print(f"{origin}: the entry {proof['entry_hash']} is number {proof['index'] + 1} of {size}")
    return head


def read_hashes(proof):
    hashes = proof["hashes"]
    need(type(hashes) is list and len(hashes) <= MOST_HASHES, "the hashes of a proof are no list, or too many")
    return [decoded(node, 32) for node in hashes]


def read_document(values, keys):
    """The heads of a document, and the consistency proofs of these: (size before, head, hashes)."""
    need(type(values["notes"]) is list and values["notes"], "the document has no notes")
    heads, proofs = [open_note(note, keys) for note in values["notes"]], {}
    chains = {head[0] for head in heads}
    need(len(chains) == len(heads), "the document has two notes of one chain")
    need({origin.rsplit("/", 2)[0] for origin in chains} == {values["origin"]}, "a note is of another origin")
    for origin, proof in values.get("consistency", {}).items():
        need(type(proof["from"]) is int and 0 <= proof["from"] < 2**63, "a size is no whole number")
        proofs[origin] = proof["from"], read_hashes(proof)
    decoded("" if values.get("timestamp") is None else values["timestamp"])
    return heads, [(proofs[head[0]][0], head, proofs[head[0]][1]) for head in heads if head[0] in proofs]


def once(pairs):
    need(len(dict(pairs)) == len(pairs), "a key stands there twice")
    return dict(pairs)


def no_number(text):
    raise Wrong(f"{text} is no number")


def verify_file(content, keys):
    """The heads of a file, and consistency proofs between them and those of other files."""
    need(len(content) <= MOST_BYTES, "it is larger than any document of heads")
    text = content.decode()
    if not text.lstrip().startswith("{"):
        return [open_note(text, keys)], []
    values = json.loads(text, object_pairs_hook=once, parse_constant=no_number)
    if "notes" not in values and "entry_hash" in values:
        return [verify_entry(values, keys)], []
    if "notes" not in values and "old" in values:
        old, new = open_note(values["old"], keys), open_note(values["note"], keys)
        verify_growth(old, new, read_hashes(values))
        return [old, new], [(old[1], new, read_hashes(values))]
    return read_document(values, keys)


def compare(origin, heads, growth):
    """What is wrong with the heads of a chain, and the sizes of those from which no proof leads to the largest one."""
    wrong, edges, of_size = [], [], defaultdict(list)
    for head in heads:
        of_size[head[0]].append(head)
    for size, alike in of_size.items():
        if len(alike) > 1:
            wrong.append(f"{len(alike)} heads of {size} entries have different roots: a fork")
    for before, (_, size, root, _), hashes in growth:
        for old in of_size.get(before, ()) if before else ():
            try:
                verify_growth((origin, *old, []), (origin, size, root, []), hashes)
                edges.append((old, (size, root)))
            except Wrong as error:
                wrong.append(f"from {before} to {size} entries: {error}")
    reached = {max(heads), (0, sha256())}  # the empty tree is the beginning of each
    for old, new in sorted(edges, key=lambda edge: edge[1], reverse=True):
        reached |= {old} if new in reached else set()
    return wrong, sorted(size for size, _ in heads - reached)


def sentence_of(error):
    if isinstance(error, InvalidSignature):
        return "the signature is wrong"
    return str(error) if isinstance(error, Wrong) else f"it is no such file ({repr(error)[:200]})"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key", required=True, action="append")
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    try:
        keys = dict(map(read_key, options.key))
    except (Wrong, ValueError):
        parser.error("--key is no public key of a signed note (name+id+base64); `recon ledger key` prints it")
    heads, growth, faults = defaultdict(set), defaultdict(list), 0
    for file in options.files:
        try:
            with file.open("rb") as opened:
                found, proofs = verify_file(opened.read(MOST_BYTES + 1), keys)
        except Exception as error:  # whatever an edited file leads to: the others are compared all the same
            print(f"{file}: {sentence_of(error)}")
            faults += 1
            continue
        for origin, size, root, _ in found:
            heads[origin].add((size, root))
        for proof in proofs:
            growth[proof[1][0]].append(proof)
    for origin, of_chain in sorted(heads.items()):
        wrong, apart = compare(origin, of_chain, growth[origin])
        for sentence in wrong:
            print(f"{origin}: {sentence}")
        if apart:
            sizes = ", ".join(map(str, apart[:5])) + ", …" * (len(apart) > 5)
            print(
                f"{origin}: {len(apart)} NOT compared with the largest head, of {sizes} entries: no consistency proof"
            )
            print("  leads to it; whoever has the ledger writes one by `recon ledger prove --since FILE`")
        print(f"{origin}: {len(of_chain)} heads, the largest of {max(of_chain)[0]} entries")
        faults += len(wrong) + len(apart)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main())
