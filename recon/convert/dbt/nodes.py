"""Reads values of dbt's YAML, and holds the tables that are made of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from recon.base.errors import ConfigError


class Comment(str):
    """A test that recon does not have, as the lines of a comment."""


@dataclass
class Table:
    """One model or source table with its tests as recon has them; tests without a counterpart are comments.

    `defaults` and `enabled` are what dbt_project.yml says of the tests of its folder.
    """

    name: str
    description: str | None = None
    target: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    enabled: tuple[Any, str] = (True, "")
    tests: list[Any] = field(default_factory=list)
    columns: list[tuple[str, str | None, list[Any]]] = field(default_factory=list)

    def count(self) -> int:
        """The number of tests, without comments."""
        items = (*self.tests, *(item for _, _, tests in self.columns for item in tests))
        return sum(not isinstance(item, Comment) for item in items)


def read_yaml(file: Path) -> Any:
    """A YAML file's content.

    Raises:
        ConfigError: it cannot be read, or is not YAML.
    """
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid YAML: {' '.join(str(error).split())[:200]}") from error


def tests_of(node: Mapping[str, Any]) -> list[Any]:
    """`data_tests`, which dbt used to call `tests`."""
    return as_list(node.get("data_tests")) or as_list(node.get("tests"))


def number_of_tests(node: Mapping[str, Any]) -> int:
    """How many tests a model or source table lists, those of its columns too."""
    return sum(len(tests_of(of)) for of in (node, *as_maps(node.get("columns"))))


def description_of(node: Mapping[str, Any]) -> str | None:
    """The node's description; None for an empty one."""
    text = node.get("description")
    return text if isinstance(text, str) and text.strip() else None


def recon_name(text: str) -> str:
    """A name with every character that recon.yml does not allow replaced by an underscore."""
    return re.sub(r"[^\w.-]+", "_", text)


def as_list(value: Any) -> list[Any]:
    """A list as it is, None as an empty list, any other value as a list of one."""
    return list(value) if isinstance(value, (list, tuple)) else [] if value is None else [value]


def as_map(value: Any) -> Mapping[str, Any]:
    """A mapping as it is, any other value as an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def as_maps(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a list."""
    return [item for item in as_list(value) if isinstance(item, Mapping)]
