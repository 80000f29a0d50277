"""Heads that are published in a bucket of an object store, and compared with the ledger from there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recon.base.storage import Storage
from recon.model import Code
from recon.write.ledger import open_ledger
from recon.write.ledger.heads import verifying
from recon.write.ledger.heads.places import publish
from recon.write.ledger.heads.signing import public_keys, sign
from tests.support.heads import NOW, grow, linked, publish_heads, rewrite, signing_project
from tests.support.s3 import bucket


def test_heads_in_a_bucket_are_published_once_and_find_an_edited_ledger(tmp_path: Path) -> None:
    with bucket("heads") as options:
        place = {"folder": "s3://heads/lake", "storage_options": options}
        project = signing_project(tmp_path, publish=[place])
        there = Storage("s3://heads/lake", options)

        grow(project, 3)
        first = publish_heads(project)
        grow(project, 2)
        second = publish_heads(project)
        assert sorted(there.files()) == sorted([first.name, second.name])
        assert publish(project, second) == (["s3://heads/lake"], [])  # it is there already
        assert there.read(second.name) == second.dump()

        keys = public_keys(project)
        ledger = open_ledger(project)
        published = verifying.read(["s3://heads/lake"], keys, project)
        assert {document.name for document in published} == {first.name, second.name}
        assert not verifying.compare(project, ledger, published).findings
        alone = verifying.read([f"s3://heads/lake/{first.name}"], keys, project)
        assert alone == [first]

        rewrite(project, linked([replace(one, rows_written=19) for one in ledger.entries("orders", "orders")]))
        found = verifying.compare(project, open_ledger(project), published).findings
        assert {finding.code for finding in found} == {Code.TAMPERED}


def test_a_bucket_that_is_not_there_is_said_with_its_name(tmp_path: Path) -> None:
    with bucket("heads") as options:
        project = signing_project(tmp_path, publish=[{"folder": "s3://other/lake", "storage_options": options}])
        grow(project, 3)
        done = sign(project, open_ledger(project), NOW)
        assert done.document is not None
        published, (said,) = publish(project, done.document)
        assert not published
        assert said.startswith("s3://other/lake: ") and "bucket" in said.lower()
        assert "a-secret-key" not in said
