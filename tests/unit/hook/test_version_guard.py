"""The hook on its way to a Spark Connect server."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from recon.base.errors import ConfigError
from recon.write.hook import ForeachBatch, foreach_batch, version_guard
from tests.support.messages import raises


def made(tmp_path: Path) -> ForeachBatch:
    hook = foreach_batch(pipeline="p", checkpoint=str(tmp_path / "c"), target=str(tmp_path / "t"), ledger=str(tmp_path))
    assert isinstance(hook, ForeachBatch)
    return hook


def test_it_arrives_as_it_was_made(tmp_path: Path) -> None:
    arrived = pickle.loads(pickle.dumps(made(tmp_path)))
    assert arrived.pipeline.name == "p" and arrived.project == made(tmp_path).project


def test_another_recon_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_guard, "__version__", "0.0.7")
    pickled = pickle.dumps(made(tmp_path))
    monkeypatch.setattr(version_guard, "__version__", "0.0.8")
    with raises(ConfigError):
        pickle.loads(pickled)
