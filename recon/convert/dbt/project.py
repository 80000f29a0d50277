"""A dbt project besides its schema.yml files: dbt_project.yml, its models' files, and the tests that it overrides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from recon.convert.dbt.jinja import Variables
from recon.convert.dbt.nodes import as_list, as_map, read_yaml
from recon.project.templates import read_text

_KINDS = {
    "models": ("model-paths", "models", (".sql", ".py")),
    "seeds": ("seed-paths", "seeds", (".csv",)),
    "snapshots": ("snapshot-paths", "snapshots", (".sql",)),
}
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_MACRO = re.compile(r"\{%-?\s*(test|data_test|macro)\s+(\w+)\s*\(")
_TEST_MACRO = re.compile(r"(\w+__)?test_(\w+)")
_SNAPSHOT = re.compile(r"\{%-?\s*snapshot\s+(\w+)")


@dataclass(frozen=True)
class Node:
    """A model, seed or snapshot of the project: its file, and the names by which dbt_project.yml configures it."""

    kind: str
    file: Path
    fqn: tuple[str, ...]


@dataclass(frozen=True)
class Level:
    """The config of one level of a tree of dbt_project.yml; `place` is its key, such as `models: shop: staging`."""

    place: str
    config: Mapping[str, Any]


class DbtProject:
    """dbt_project.yml and the files of its folder; without one, a project of which nothing is known."""

    def __init__(self, folder: Path, variables: Mapping[str, Any]) -> None:
        """`folder` is the project's, or a file; `variables` go before the project's own, as dbt's --vars do."""
        self.folder = folder
        file = folder / "dbt_project.yml"
        self.content = as_map(read_yaml(file) if file.is_file() else None)
        self.name = str(self.content.get("name") or "")
        self.variables = Variables({**self._vars(), **variables})

    def __bool__(self) -> bool:
        return bool(self.content)

    def paths(self, key: str, default: str) -> list[Path]:
        """The folders of `model-paths` and the like."""
        return [self.folder / str(name) for name in as_list(self.content.get(key, [default]))]

    def _vars(self) -> Mapping[str, Any]:
        """`vars`, those of the project's own name over those of all; dbt 1.12 also reads them from vars.yml."""
        file = self.folder / "vars.yml"
        of_file = as_map(as_map(read_yaml(file)).get("vars") if self.content and file.is_file() else None)
        listed = as_map(self.content.get("vars")) or of_file
        own = as_map(listed.get(self.name))
        return {**{name: value for name, value in listed.items() if value is not own or not own}, **own}

    # -- trees of config ----------------------------------------------------------------------------------------

    def levels(self, kind: str, fqn: Sequence[str]) -> Iterator[Level]:
        """The levels of a tree (`models`, `data_tests`, …) that hold for a name, from the outermost on."""
        key = "tests" if kind == "data_tests" and "data_tests" not in self.content else kind
        tree, place = self.content.get(key), key
        for name in (None, *fqn):
            tree = tree if name is None else as_map(tree).get(name)
            if not isinstance(tree, Mapping):
                return
            place = place if name is None else f"{place}: {name}"
            yield Level(place, _own_keys(tree))

    def places(self, kind: str) -> Iterator[Level]:
        """All levels of a tree that configure something."""
        key = "tests" if kind == "data_tests" and "data_tests" not in self.content else kind

        def below(tree: Mapping[str, Any], place: str) -> Iterator[Level]:
            if own := _own_keys(tree):
                yield Level(place, own)
            for name, inner in tree.items():
                if isinstance(inner, Mapping) and not str(name).startswith("+"):
                    yield from below(inner, f"{place}: {name}")

        yield from below(as_map(self.content.get(key)), key)

    def enabled(self, kind: str, fqn: Sequence[str]) -> tuple[Any, str]:
        """The nearest `+enabled` of a tree, and its place; True for none, None for one that only dbt knows."""
        return self.configured(kind, fqn, "enabled", default=True)

    def configured(self, kind: str, fqn: Sequence[str], key: str, default: Any) -> tuple[Any, str]:
        """A key's nearest value in a tree, and its place; None for one that only dbt knows."""
        value, place = default, ""
        for level in self.levels(kind, fqn):
            if key in level.config:
                value, place = self.variables.evaluated(level.config[key]), level.place
        return value, place

    # -- files --------------------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """The models, seeds and snapshots that have a file, by name."""
        found: dict[str, Node] = {}
        if not self:
            return found
        for kind, (key, default, suffixes) in _KINDS.items():
            for folder in self.paths(key, default):
                for file in sorted(f for f in folder.rglob("*") if f.suffix in suffixes and f.is_file()):
                    prefix = self.prefix(file, folder)
                    for name in _names(kind, file):
                        fqn = (*prefix, file.stem, name) if name != file.stem else (*prefix, name)
                        found.setdefault(name, Node(kind, file, fqn))
        return found

    def prefix(self, file: Path, folder: Path | None = None) -> tuple[str, ...]:
        """How dbt_project.yml names what is in a file: by the project and the folders below its path."""
        paths = [path for key, default, _ in _KINDS.values() for path in self.paths(key, default)]
        below = folder or next((path for path in paths if file.is_relative_to(path)), None)
        folders = file.parent.relative_to(below).parts if below is not None else ()
        return (self.name, *folders)

    def set_in_file(self, node: Node, key: str) -> tuple[bool, Any]:
        """Whether a model's SQL sets a key in `config(…)`, and its value; None for one that is not known here."""
        if node.file.suffix != ".sql":
            return False, None
        return self.variables.configured(read_text(node.file), key)

    # -- macros -------------------------------------------------------------------------------------------------

    @cached_property
    def tests(self) -> Mapping[str, str]:
        """The project's own generic tests by name, and the file of each."""
        return {name: file for kind, name, file in self._macros() if kind == "test"}

    @cached_property
    def dispatched(self) -> Mapping[str, str]:
        """The tests that a macro such as `default__test_unique` of the project takes the place of, and its file."""
        return {name: file for kind, name, file in self._macros() if kind == "dispatched"}

    def _macros(self) -> Iterator[tuple[str, str, str]]:
        if not self:
            return
        folders = [*self.paths("macro-paths", "macros"), *(p / "generic" for p in self.paths("test-paths", "tests"))]
        for file in sorted(f for folder in folders for f in folder.rglob("*.sql") if f.is_file()):
            for tag, name in _MACRO.findall(_COMMENT.sub("", read_text(file))):
                place = str(file.relative_to(self.folder))
                if tag != "macro":
                    yield "test", name, place
                elif match := _TEST_MACRO.fullmatch(name):
                    yield "dispatched" if match[1] else "test", match[2], place


def _own_keys(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The config of one level: keys with a plus, and those that hold no level of their own."""
    return {
        str(key).removeprefix("+").strip(): value
        for key, value in tree.items()
        if str(key).startswith("+") or not isinstance(value, Mapping)
    }


def _names(kind: str, file: Path) -> Sequence[str]:
    """What a file defines: a snapshot's file says it in a block, any other file's name is it."""
    return _SNAPSHOT.findall(read_text(file)) or [file.stem] if kind == "snapshots" else [file.stem]
