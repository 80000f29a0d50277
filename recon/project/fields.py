"""What the parts of recon.yml are made of: names, texts, and models that refuse what they do not know."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from recon.project.messages import Problem


def _name(value: str) -> str:
    # Names are joined with ':' in Delta application ids and with '.' and '_' in check ids.
    if not re.fullmatch(r"[\w.-]+", value):
        raise Problem("may hold only letters, digits, '_', '-' and '.'", found=True)
    return value


def _texts(value: Any) -> Any:
    """Numbers and booleans as the text that librdkafka, Spark and object stores read."""
    if not isinstance(value, Mapping):
        return value
    return {k: _text(v) if isinstance(v, (bool, int, float)) else v for k, v in value.items()}


def _text(value: bool | int | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


Name = Annotated[str, AfterValidator(_name)]
Texts = Annotated[dict[str, str], BeforeValidator(_texts)]


def one_tag(value: Any) -> Any:
    """A single tag as a list of one, as dbt reads it."""
    return (value,) if isinstance(value, str) else value


class Strict(BaseModel):
    """A part of recon.yml: frozen, and without keys that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def refuse_doubles(key: str, where: str, names: Iterable[str]) -> None:
    """Raises Problem when two of a list have one name."""
    seen: set[str] = set()
    for n, name in enumerate(names):
        if name in seen:
            raise Problem(f"two {key}{where} are named '{name}'; give one of them another name", key, n, whole=True)
        seen.add(name)
