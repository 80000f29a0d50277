"""One sentence for each of pydantic's errors: file, line, what was found, and the nearest right word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from recon.project.yaml import HIDDEN, Document, Located, hide
from recon.text import did_you_mean, nearest


class Problem(ValueError):
    """A value that cannot be used, found by a validator of our own.

    Args:
        message: what is wrong; it continues "<place> …", unless `whole` says that it stands alone.
        path: leads from the validated value to the place.
        found: also tell the value.
        whole: the message is a whole sentence.
        owner: the message speaks of the validated value, and the path leads to the line alone.
    """

    def __init__(
        self, message: str, *path: str | int, found: bool = False, whole: bool = False, owner: bool = False
    ) -> None:
        super().__init__(message)
        self.path = path
        self.found = found
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

_FILLED_IN = {"Project": ("project_dir",), "CheckSpec": ("test", "column", "line")}  # fields that no file has

_Loc = tuple[str | int, ...]


def complaint(error: ValidationError, root: type[BaseModel], document: Document) -> str:
    """The error that stands first in the file, and how many more there are."""
    items = error.errors(include_url=False)
    unknown = [item["loc"] for item in items if item["type"] == "extra_forbidden"]
    # A misspelt key is reported once, not also as the missing one it stands for.
    misspelt = {(*loc[:-1], *nearest(str(loc[-1]), _keys(root, document, loc[:-1]))) for loc in unknown}
    found = []
    for item in items:
        if item["type"] == "missing" and item["loc"] in misspelt:
            continue
        if item["type"] == "too_short" and any(_inside(other["loc"], item["loc"]) for other in items):
            continue  # pydantic counts a list's valid items only; the invalid ones speak for themselves
        cause = item.get("ctx", {}).get("error")
        path = (*item["loc"], *cause.path) if isinstance(cause, Problem) else item["loc"]
        line = _line(document.root, path)
        found.append((line, item["type"] == "missing", _sentence(root, item, path, cause, line, document)))
    line, _, sentence = min(found)  # on one line, what is there is told before what is missing
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{document.name}:{line}: {sentence}{more}"


def complaint_of_arguments(error: ValidationError) -> str:
    """The first error of values that came from Python, not from a file; what may hold a secret is not shown."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    loc = (*first["loc"], *(cause.path if isinstance(cause, Problem) else ()))
    where = ".".join(str(part) for part in loc)
    said = str(cause) if isinstance(cause, Problem) else first["msg"].lower()
    plain = isinstance(first["input"], (str, int, float)) and not _SECRETIVE.intersection(map(str, loc))
    return f"{where}: {said}" + (f" (got {first['input']!r})" if plain else "")


_SECRETIVE = {"connection", "driver_options", "kafka", "options", "storage_options"}


def _inside(path: _Loc, other: _Loc) -> bool:
    return len(path) > len(other) and path[: len(other)] == other


def _sentence(root: type[BaseModel], item: Any, path: _Loc, cause: Any, line: int, document: Document) -> str:
    kind, value = item["type"], item["input"]
    if kind == "extra_forbidden":
        return _unknown(root, document, path, line)
    if kind == "missing":
        return f"missing key '{path[-1]}' in {_place(document, path[:-1])}"
    subject = _place(document, path)
    # What stands there may be a URL with a password, written where its mapping should be.
    shown = HIDDEN if "connection" in path else document.shown(value, line)
    if kind == "literal_error":
        choices = get_args(_annotation(root, document, path))
        allowed = [str(choice) for choice in choices]
        listed = " or ".join(f"'{c}'" if isinstance(c, str) else str(c) for c in choices)
        # The nearest choice would give away what a masked value looks like.
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
    if isinstance(cause, Problem):
        message = hide(str(cause), document.secrets, shortest=3)
        ending = f", found {shown}" if cause.found else ""
        of = _place(document, item["loc"]) if cause.owner else subject
        return message if cause.whole else f"{of} {message}{ending}"
    return f"{subject}: {hide(item['msg'], document.secrets)}"


def unknown_key(root: type[BaseModel], document: Document, path: _Loc) -> str:
    """The sentence for a key that `root` does not know, with its place."""
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


def _line(root: Located, path: _Loc) -> int:
    """The line of a validated path, which may differ from the file's where a test or `ledger` was short."""
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


def _child(node: Located, part: str | int) -> Located | None:
    """The item at a key, which the file may have in dbt's older word or with a plus."""
    words: tuple[str | int, ...] = (part, {"data_tests": "tests", "alias": "name"}.get(str(part), part), f"+{part}")
    return next((node.items[word] for word in words if word in node.items), None)


_SINGULAR = {"pipelines": "pipeline", "sinks": "sink", "columns": "column", "tables": "table"}


def _place(document: Document, path: _Loc) -> str:
    """A path in words: `config of not_null`, `checkpoint of pipeline 'orders'`, `kafka`."""
    owner, keys, node, above = "", [], document.root, ""
    for part in path:
        node = _child(node, part) or Located(None, node.line)
        if isinstance(part, str):
            keys.append(part)
        elif above in _SINGULAR:
            name = node.value.get("name") if isinstance(node.value, dict) else None
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
    return _model(root, document, path[:-1]).model_fields[str(path[-1])].annotation


def _model(root: type[BaseModel], document: Document, path: _Loc) -> type[BaseModel]:
    """The model that a validated path leads to; a sink's is chosen by its kind in the file."""
    model, node = root, document.root
    for part in path:
        node = _child(node, part) or Located(None, node.line)
        if isinstance(part, str) and part in model.model_fields:
            model = next(_models(model.model_fields[part].annotation), model)
        chosen = getattr(model, "class_for", None)
        if isinstance(part, int) and chosen is not None:
            model = chosen(node.value)
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that a value of this type may be."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
