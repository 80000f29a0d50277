"""Types of fields of recon.yml, and the base of its models, which refuse unknown keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from recon.project.messages import BadValue


def _name(value: str) -> str:
    # Names are joined with ':' in Delta application ids and with '.' and '_' in check ids.
    if not re.fullmatch(r"[\w.-]+", value):
        raise BadValue("may hold only letters, digits, '_', '-' and '.'", show_value=True)
    return value


def _texts(value: Any) -> Any:
    """Numbers and booleans as text, which is what librdkafka, Spark and object stores expect."""
    if not isinstance(value, Mapping):
        return value
    return {k: _text(v) if isinstance(v, (bool, int, float)) else v for k, v in value.items()}


def _text(value: bool | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def one_tag(value: Any) -> Any:
    """A single tag as a list of one, as dbt reads it."""
    return (value,) if isinstance(value, str) else value


def _share(value: Any) -> Any:
    """A share of rows as a number from 0 to 1; recon.yml may say `1%`."""
    percent = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value) if isinstance(value, str) else None
    share = float(percent[1]) / 100 if percent else value
    valid = isinstance(share, (int, float)) and not isinstance(share, bool) and 0 <= share <= 1
    if value is not None and not valid:
        raise BadValue("must be a share of the rows, from 0 to 1 or such as 1%", show_value=True)
    return share


Name = Annotated[str, AfterValidator(_name)]
Texts = Annotated[dict[str, str], BeforeValidator(_texts)]
Share = Annotated[float, BeforeValidator(_share)]
Tags = Annotated[tuple[str, ...], BeforeValidator(one_tag)]


class Strict(BaseModel):
    """A part of recon.yml: frozen; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def require_unique(key: str, where: str, names: Iterable[str]) -> None:
    """Raises BadValue where two items of a list have the same name."""
    seen: set[str] = set()
    for n, name in enumerate(names):
        if name in seen:
            raise BadValue(f"two {key}{where} are named '{name}'; give one of them another name", key, n, whole=True)
        seen.add(name)
