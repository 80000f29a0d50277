"""Publishing: folders, git, commands; a place that fails says why, and the others get the document all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recon.project import Project
from recon.write.ledger.heads import places
from recon.write.ledger.heads.documents import Document, parse
from recon.write.ledger.heads.places import publish
from recon.write.ledger.heads.signing import public_keys
from tests.support.heads import NOW, files, grow, publish_heads, signing_project


def _document(folder: Path, **heads: Any) -> tuple[Project, Document]:
    project = signing_project(folder, **heads)
    grow(project, 3)
    from recon.write.ledger import open_ledger
    from recon.write.ledger.heads.signing import sign

    done = sign(project, open_ledger(project), NOW)
    assert done.document is not None
    return project, done.document


def _git(*arguments: str, cwd: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True, text=True).stdout


def test_a_folder_gets_one_file_for_each_audit_and_never_loses_one(tmp_path: Path) -> None:
    project = signing_project(tmp_path)
    grow(project, 3)
    document = publish_heads(project)
    before = files(tmp_path / "outside")
    assert list(before) == [document.name]
    assert parse(before[document.name], public_keys(project), "the file") == document
    (tmp_path / "outside" / document.name).write_bytes(b"first")
    assert publish(project, document) == ([str(tmp_path / "outside")], [])
    assert files(tmp_path / "outside") == {document.name: b"first"}


def test_a_git_repository_gets_a_commit_that_is_pushed(tmp_path: Path) -> None:
    bare, clone = tmp_path / "bare.git", tmp_path / "clone"
    _git("init", "-q", "--bare", "-b", "main", str(bare), cwd=tmp_path)
    _git("clone", "-q", str(bare), str(clone), cwd=tmp_path)
    _git("checkout", "-q", "-b", "main", cwd=clone)
    _git("config", "push.autoSetupRemote", "true", cwd=clone)
    project, document = _document(tmp_path, publish=[{"git": str(clone)}])
    assert publish(project, document) == ([f"git {clone}"], [])
    assert publish(project, document) == ([f"git {clone}"], [])  # nothing new to commit
    assert _git("log", "--format=%s", "main", cwd=bare) == "Heads of example.org/lake\n"
    assert json.loads(_git("show", f"main:{document.name}", cwd=bare)) == json.loads(document.dump())


def test_a_git_repository_that_does_not_take_the_push_says_so(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    _git("init", "-q", "-b", "main", str(clone), cwd=tmp_path)
    _git("remote", "add", "origin", str(tmp_path / "nowhere"), cwd=clone)
    _, document = _document(tmp_path)
    project = signing_project(tmp_path, publish=[{"git": str(clone)}, {"git": str(tmp_path / "none")}])
    published, failed = publish(project, document)
    assert not published
    assert failed[0].startswith(f"git {clone}: it ended with exit code")
    assert "there is no clone of a git repository at" in failed[1]
    assert _git("log", "--format=%s", cwd=clone) == "Heads of example.org/lake\n"  # the next push has it


def test_a_command_reads_the_document_from_its_standard_input(tmp_path: Path) -> None:
    copy = "import sys; open('copy.json', 'wb').write(sys.stdin.buffer.read())"
    project, document = _document(tmp_path, publish=[{"command": [sys.executable, "-c", copy]}])
    assert publish(project, document) == ([f"command {sys.executable}"], [])
    assert (tmp_path / "copy.json").read_bytes() == document.dump()


def test_places_that_fail_say_why_and_the_others_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_COMMAND_S", 0.5)
    monkeypatch.setattr(places, "_KAFKA_S", 0.5)
    (tmp_path / "file").write_text("")
    fails = "import sys; print('no room', file=sys.stderr); sys.exit(3)"
    _, document = _document(tmp_path)
    project = signing_project(
        tmp_path,
        publish=[
            {"folder": str(tmp_path / "file" / "below")},
            {"folder": "nosuch://bucket/heads"},
            {"command": ["no-such-program"]},
            {"command": [sys.executable, "-c", fails]},
            {"command": [sys.executable, "-c", "import time; time.sleep(9)"]},
            {"topic": "heads", "kafka": {"bootstrap.servers": "localhost:1"}},
            {"topic": "heads", "kafka": {"bootstrap.servers": "localhost:1", "no.such": "setting"}},
            {"folder": str(tmp_path / "outside")},
        ],
    )
    published, failed = publish(project, document)
    assert published == [str(tmp_path / "outside")]
    assert len(failed) == 7
    for said, of in zip(
        failed,
        ("NotADirectoryError", "cannot be opened", "is not installed", "exit code 3: no room", "longer than 0.5 s",
         "the broker did not take the document", "no.such"),
        strict=True,
    ):  # fmt: skip
        assert of in said
        assert "\n" not in said


def test_secrets_of_a_place_are_masked_in_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recon.project import load
    from tests.support.heads import SEED

    monkeypatch.setenv("SIGNING_KEY", SEED)
    monkeypatch.setenv("TOKEN", "hunter2-hunter2")
    monkeypatch.setenv("TOKEN_OF_TSA", "correct-horse")
    fails = "import sys; sys.exit(' '.join(sys.argv))"
    (tmp_path / "recon.yml").write_text(
        f"""
version: 2
name: lake
ledger: _recon
heads:
  key: "{{{{ env_var('SIGNING_KEY') }}}}"
  timestamp: {{url: "https://tsa.example.org/{{{{ env_var('TOKEN_OF_TSA') }}}}"}}
  publish:
    - command: ["{sys.executable}", -c, "{fails}", "{{{{ env_var('TOKEN') }}}}", "{SEED}"]
pipelines:
  - {{name: orders, checkpoint: cp, sinks: [{{name: orders, target: orders}}]}}
"""
    )
    project = load(tmp_path)
    document = Document(origin="lake", heads=())
    _, (said,) = publish(project, document)
    assert said.endswith("exit code 1: -c *** ***")
    assert project.mask("https://tsa.example.org/correct-horse") == "https://tsa.example.org/***"
    assert SEED not in repr(project) and "hunter2" not in repr(project)


def test_a_long_line_of_a_command_is_cut_behind_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recon.project import load

    monkeypatch.setenv("TOKEN", "hunter2-hunter2")
    fails = "import sys; sys.exit('-' * int(sys.argv[1]) + ' ' + sys.argv[2])"
    places = "".join(
        f"""    - command: ["{sys.executable}", -c, "{fails}", "{before}", "{{{{ env_var('TOKEN') }}}}"]\n"""
        for before in (185, 192, 2000)
    )
    (tmp_path / "recon.yml").write_text(
        f"version: 2\nname: lake\nledger: _recon\nheads:\n  publish:\n{places}"
        "pipelines:\n  - {name: orders, checkpoint: cp, sinks: [{name: orders, target: orders}]}\n"
    )
    _, said = publish(load(tmp_path), Document(origin="lake", heads=()))
    assert [sentence.endswith("- ***") for sentence in said] == [True, True, False]
    assert not any("hunter" in sentence for sentence in said) and max(map(len, said)) == 500


def test_a_topic_takes_the_document(tmp_path: Path) -> None:
    """librdkafka's own mock broker; recon's settings override what would lose the document."""
    conf = {"test.mock.num.brokers": "1", "acks": "0", "group.id": "readers", "auto.offset.reset": "earliest"}
    project, document = _document(tmp_path, publish=[{"topic": "heads", "kafka": conf}])
    assert publish(project, document) == (["topic heads"], [])
