"""A contract's file, checked by the standard's own model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from recon.base.errors import ConfigError
from recon.base.requirements import how_to_install
from recon.base.text import complaint
from recon.convert.dbt.nodes import read_yaml

if TYPE_CHECKING:
    from open_data_contract_standard.model import OpenDataContractStandard

NEWEST = (3, 2)  # the minor version that open-data-contract-standard 3.2 describes
WRITTEN = "v3.1.0"  # of exported contracts, which use nothing that is newer


def contract(file: Path) -> tuple[OpenDataContractStandard, list[str]]:
    """The contract of a file, and the keys of the file that the standard does not have.

    Raises:
        ConfigError: it does not exist, is not YAML, or is no contract of a version that recon reads.
    """
    if not file.is_file():
        raise ConfigError(f"{file} does not exist; give the YAML file of a data contract")
    content = read_yaml(file)
    if not isinstance(content, Mapping) or content.get("kind") != "DataContract":
        found = content.get("kind") if isinstance(content, Mapping) else None
        kind = f"of kind {found!r}" if found else "without a kind"
        raise ConfigError(f"{file} is a document {kind}; recon reads contracts of ODCS, with kind: DataContract")
    _refuse_version(file, str(content.get("apiVersion") or ""))
    of = validated(_with_texts(content), str(file))
    return of, list(_unknown(content, of.model_dump(by_alias=True), ""))


def validated(content: Mapping[str, Any], name: str) -> OpenDataContractStandard:
    """The content as the standard's model.

    Raises:
        ConfigError: it does not fit the model, or the package with the model is not installed.
    """
    try:
        from open_data_contract_standard.model import OpenDataContractStandard
    except ImportError:
        raise ConfigError(
            f"data contracts need open-data-contract-standard, which is not installed; {how_to_install('odcs')}"
        ) from None
    try:
        return OpenDataContractStandard(**content)
    except (ValidationError, TypeError) as error:
        raise ConfigError(f"{name} is no valid contract of ODCS: {complaint(error)}") from error


def _with_texts(value: Any) -> Any:
    """Dates as text, which the model wants; YAML makes dates of them where they have no quotes."""
    if isinstance(value, Mapping):
        kept = ("arguments", "implementation")
        return {key: inner if key in kept else _with_texts(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_texts(inner) for inner in value]
    return value.isoformat() if isinstance(value, date) else value


def _unknown(given: Any, known: Any, place: str) -> Iterator[str]:
    """The places of keys that the model dropped without a word, such as misspelt ones."""
    if isinstance(given, Mapping) and isinstance(known, Mapping):
        for key, value in given.items():
            if key not in known:
                yield f"{place}{key}"
            else:
                yield from _unknown(value, known[key], f"{place}{key}.")
    elif isinstance(given, list) and isinstance(known, list):
        for item, read in zip(given, known, strict=False):
            name = item.get("name") or item.get("id") if isinstance(item, Mapping) else None
            yield from _unknown(item, read, f"{place}{name}." if name else place)


def _refuse_version(file: Path, version: str) -> None:
    match = re.fullmatch(r"v?(\d+)\.(\d+)(?:\.\d+)?.*", version)
    known = f"v3.0 to v{NEWEST[0]}.{NEWEST[1]}"
    if match is None:
        raise ConfigError(f"{file} has apiVersion {version!r}; recon reads contracts of ODCS {known}")
    number = int(match[1]), int(match[2])
    if number > NEWEST:
        raise ConfigError(f"{file} has apiVersion {version}, which is newer than recon knows: it reads ODCS {known}")
    if number < (3, 0):
        raise ConfigError(f"{file} has apiVersion {version}; recon reads ODCS {known}: write the contract in version 3")
