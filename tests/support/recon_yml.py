"""A recon.yml on disk, as a test changes it."""

from __future__ import annotations

from pathlib import Path

from recon.project import Project, load


def loaded(folder: Path, text: str, old: str = "", new: str = "") -> Project:
    """The project of a recon.yml whose first `old` is `new`."""
    assert old in text
    (folder / "recon.yml").write_text(text.replace(old, new, 1))
    return load(folder)
