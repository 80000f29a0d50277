"""Turns each of pydantic's errors into one sentence: file, line, the value there, and the nearest known word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from recon.base.credentials import HIDDEN
from recon.base.text import did_you_mean, nearest
from recon.project.secrets import mask
from recon.project.yaml import Document, LocatedValue


class BadValue(ValueError):
    """A value of recon.yml that one of recon's own validators refuses.

    Args:
        message: what is wrong; it continues "<place> …", unless `whole` is True.
        path: the keys from the validated value to the place.
        show_value: end the sentence with the value, masked where it may be a secret.
        whole: the message is a whole sentence, which names its place itself.
        owner: the message is about the validated value; the path only gives the line.
    """

    def __init__(
        self, message: str, *path: str | int, show_value: bool = False, whole: bool = False, owner: bool = False
    ) -> None:
        super().__init__(message)
        self.path = path
        self.show_value = show_value
        self.whole = whole
        self.owner = owner


_EXPECTED = {
    "string_type": "a string",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
    "tuple_type": "a list",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}

_FILLED_IN = {
    "Project": ("project_dir",),
    "CheckSpec": ("test", "column", "line"),
    "Compliance": ("line",),
}  # fields that no file has

_MOST_COMPARED = 1_000  # unknown keys that are compared with those that are missing
_Loc = tuple[str | int, ...]


def validation_message(error: ValidationError, root: type[BaseModel], document: Document) -> str:
    """The error that comes first in the file, and how many more there are."""
    items = error.errors(include_url=False)
    unknown = [item["loc"] for item in items if item["type"] == "extra_forbidden"]
    # A misspelt key is reported once, not also as the missing key that was meant.
    near: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    misspelt = set()
    for loc in unknown:
        name, keys = str(loc[-1]), tuple(_keys(root, document, loc[:-1]))
        if (name, keys) not in near:
            near[name, keys] = nearest(name, keys) if len(near) < _MOST_COMPARED else []
        misspelt.add((*loc[:-1], *near[name, keys]))
    # pydantic counts only the valid items of a list; the others have errors of their own.
    inside = {item["loc"][:n] for item in items for n in range(len(item["loc"]))}
    problems = []
    for item in items:
        if item["type"] == "missing" and item["loc"] in misspelt:
            continue
        if item["type"] == "too_short" and item["loc"] in inside:
            continue
        cause = item.get("ctx", {}).get("error")
        path = (*item["loc"], *cause.path) if isinstance(cause, BadValue) else item["loc"]
        # On the same line, a wrong value comes before a missing key.
        problems.append(((_line(document.root, path), item["type"] == "missing"), item, path, cause))
    first = min(place for place, *_ in problems)
    line, _ = first
    on_line = [
        _message(root, item, path, cause, line, document) for place, item, path, cause in problems if place == first
    ]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{document.name}:{line}: {min(on_line)}{more}"


def arguments_message(error: ValidationError) -> str:
    """The first error of arguments given in Python; a value that may hold a secret is left out."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    loc = (*first["loc"], *(cause.path if isinstance(cause, BadValue) else ()))
    where = ".".join(str(part) for part in loc).removeprefix("pipelines.0.")  # the one that the arguments make
    reason = str(cause) if isinstance(cause, BadValue) else first["msg"].lower()
    plain = isinstance(first["input"], (str, int, float)) and not _MAY_HOLD_SECRETS.intersection(map(str, loc))
    return f"{where}: {reason}" + (f" (got {first['input']!r})" if plain else "")


_MAY_HOLD_SECRETS = {"connection", "driver_options", "kafka", "options", "storage_options"}


def _message(root: type[BaseModel], item: Any, path: _Loc, cause: Any, line: int, document: Document) -> str:
    kind, value = item["type"], item["input"]
    if kind == "extra_forbidden":
        return _unknown(root, document, path, line)
    if kind == "missing":
        return f"missing key '{path[-1]}' in {_place(document, path[:-1])}"
    subject = _place(document, path)
    # The value may be a URL with a password, written in place of the mapping.
    shown = HIDDEN if "connection" in path else document.shown(value, line)
    if kind == "literal_error":
        choices = list(_choices(_annotation(root, document, path)))
        allowed = [str(choice) for choice in choices]
        listed = " or ".join(f"'{c}'" if isinstance(c, str) else str(c) for c in choices)
        # The nearest choice would reveal part of a masked value.
        nearest = did_you_mean(str(value), allowed, "") if HIDDEN not in shown else ""
        return f"{subject} must be {listed}, found {shown}{nearest}"
    if kind == "too_short":
        return f"{subject} must list at least one of them"
    if kind == "greater_than_equal":
        return f"{subject} must be at least {item['ctx']['ge']}, found {shown}"
    if kind in _EXPECTED:
        quotes = kind == "string_type" and isinstance(value, (int, float))
        hint = "; put it in quotes" if quotes else ""
        return f"{subject} must be {_EXPECTED[kind]}, found {shown}{hint}"
    if isinstance(cause, BadValue):
        message = mask(str(cause), document.secrets, shortest=3)
        ending = f", found {shown}" if cause.show_value else ""
        of = _place(document, item["loc"]) if cause.owner else subject
        return message if cause.whole else f"{of} {message}{ending}"
    return f"{subject}: {mask(item['msg'], document.secrets)}"


def unknown_key_message(root: type[BaseModel], document: Document, path: _Loc) -> str:
    """The message about a key that `root` does not have, with file and line."""
    line = _line(document.root, path)
    return f"{document.name}:{line}: {_unknown(root, document, path, line)}"


def _unknown(root: type[BaseModel], document: Document, path: _Loc, line: int) -> str:
    key = str(path[-1])
    known = _keys(root, document, path[:-1])
    where = _place(document, path[:-1])
    shown = document.shown(key, line)
    return f"unknown key {shown} in {where}{did_you_mean(key, known, 'known keys:') if HIDDEN not in shown else ''}"


def _keys(root: type[BaseModel], document: Document, path: _Loc) -> list[str]:
    """The keys that the mapping at `path` may have in the file."""
    model = _model(root, document, path)
    return [k for k in model.model_fields if k not in _FILLED_IN.get(model.__name__, ())]


def _line(root: LocatedValue, path: _Loc) -> int:
    """The line of a validated path; the file's own path differs where a test or `ledger` is in its short form."""
    node = root
    for part in path:
        inner = next(iter(node.items.values())) if len(node.items) == 1 else None
        child = _child(node, part)
        if child is None and inner is not None:
            child = _child(inner, part)
        if child is not None:
            node = child
        elif part not in ("arguments", "config"):  # dbt's older form has neither
            break
    return node.line


def _child(node: LocatedValue, part: str | int) -> LocatedValue | None:
    """The item at a key, which the file may spell with dbt's older word or with a plus."""
    spellings: tuple[str | int, ...] = (part, {"data_tests": "tests", "alias": "name"}.get(str(part), part), f"+{part}")
    return next((node.items[key] for key in spellings if key in node.items), None)


_SINGULAR = {
    "pipelines": "pipeline",
    "sinks": "sink",
    "columns": "column",
    "tables": "table",
    "frameworks": "framework",
    "statements": "statement",
}


def _place(document: Document, path: _Loc) -> str:
    """A path as a message names it: `config of not_null`, `checkpoint of pipeline 'orders'`, `kafka`."""
    owner, keys, node, above = "", [], document.root, ""
    for part in path:
        node = _child(node, part) or LocatedValue(None, node.line)
        if isinstance(part, str):
            keys.append(part)
        elif above in _SINGULAR:
            name = node.value.get("name", node.value.get("id")) if isinstance(node.value, dict) else None
            named = document.shown(name, node.line) if isinstance(name, str) else f"number {part + 1}"
            owner, keys = f"{_SINGULAR[above]} {named}", []
        elif above in ("data_tests", "tests", "post_batch"):
            owner, keys = _test_name(node.value, part), []
        else:
            keys.append(str(part + 1))
        above = part if isinstance(part, str) else ""
    inner = " in ".join(reversed(keys))
    return f"{inner} of {owner}" if inner and owner else inner or owner or Path(document.name).name


def _test_name(item: Any, position: int) -> str:
    name: Any = item
    if isinstance(item, dict):
        name = item.get("test_name") or next(iter(item), None)
    return name if isinstance(name, str) else f"test number {position + 1}"


def _annotation(root: type[BaseModel], document: Document, path: _Loc) -> Any:
    """The type of a field; of an item of a list that of the list."""
    while isinstance(path[-1], int):
        path = path[:-1]
    return _model(root, document, path[:-1]).model_fields[str(path[-1])].annotation


def _model(root: type[BaseModel], document: Document, path: _Loc) -> type[BaseModel]:
    """The model at the end of a validated path; a sink's depends on its `kind` in the file."""
    model, node = root, document.root
    for part in path:
        node = _child(node, part) or LocatedValue(None, node.line)
        if isinstance(part, str) and part in model.model_fields:
            model = next(_models(model.model_fields[part].annotation), model)
        chosen = getattr(model, "class_for", None)
        if isinstance(part, int) and chosen is not None:
            model = chosen(node.value)
    return model


def _choices(annotation: Any) -> Iterator[Any]:
    """The values of the literal types in a type annotation."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
        return
    for inner in get_args(annotation):
        yield from _choices(inner)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
