"""Finding Java, on real files: stand-in `java` scripts that answer `-version` as old and new ones do."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon.base.errors import ConfigError
from recon.local.java import find_java, java_home, major_version
from tests.support.messages import raises


def java_at(home: Path, version: str) -> Path:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    binary.chmod(0o755)
    return binary


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_the_major_version_is_read_from_old_and_new_forms(tmp_path: Path, version: str, major: int) -> None:
    assert major_version(java_at(tmp_path / "jdk", version)) == major


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    named = java_at(tmp_path / "named", "21.0.1")
    on_path = java_at(tmp_path / "path", "17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "named"), "PATH": str(on_path.parent)}) == named
    assert find_java({"PATH": str(on_path.parent)}) == on_path


def test_a_java_home_that_is_too_old_gives_way_to_path(tmp_path: Path) -> None:
    java_at(tmp_path / "old", "11.0.2")
    on_path = java_at(tmp_path / "path", "17.0.1")
    env = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(on_path.parent)}
    assert find_java(env) == on_path
    assert java_home(env) == tmp_path / "path"


def test_links_are_resolved_so_that_java_home_is_the_real_one(tmp_path: Path) -> None:
    real = java_at(tmp_path / "jdk", "17.0.1")
    link = tmp_path / "bin" / "java"
    link.parent.mkdir()
    link.symlink_to(real)
    assert java_home({"PATH": str(link.parent)}) == tmp_path / "jdk"


def test_only_an_old_java_is_an_error_that_names_what_was_found(tmp_path: Path) -> None:
    java_at(tmp_path / "old", "11.0.2")
    with raises(ConfigError):
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""})


def test_no_java_at_all_is_an_error_that_says_what_to_install() -> None:
    with raises(ConfigError):
        find_java({"PATH": ""})


def test_a_java_home_without_a_java_is_named(tmp_path: Path) -> None:
    with raises(ConfigError):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": ""})
