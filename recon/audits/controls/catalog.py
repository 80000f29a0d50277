"""Reads the wording of controls and frameworks: recon's own, and a file of the project."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, model_validator

from recon.base.errors import ConfigError
from recon.base.text import did_you_mean
from recon.checks import registry
from recon.model.controls import CONTROLS, Control
from recon.project import Project
from recon.project.fields import Strict, one_tag
from recon.project.messages import BadValue, validation_message
from recon.project.yaml import read

_OWN = Path(__file__).with_name("frameworks.yml")


def _groups(value: Any) -> Any:
    """A list of checks, each a name or a list of names one of which is enough."""
    return [[entry] if isinstance(entry, str) else entry for entry in value] if isinstance(value, list) else value


def _text(value: str) -> str:
    if not value.strip():
        raise BadValue("is empty")
    return " ".join(value.split())


Text = Annotated[str, AfterValidator(_text)]
Group = Annotated[tuple[str, ...], Field(min_length=1)]
Controls = Annotated[tuple[Control, ...], BeforeValidator(one_tag), Field(min_length=1)]
Groups = Annotated[tuple[Group, ...], BeforeValidator(_groups), Field(min_length=1)]


class Statement(Strict):
    """What a report says of one requirement, where the checks that it rests on show it.

    Findings that contradict a control of `control` contradict the statement.
    """

    id: Text
    title: Text
    control: Controls
    checks: Groups
    shown: Text
    limits: Text

    @model_validator(mode="after")
    def _checks_exist(self, info: ValidationInfo) -> Statement:
        own = info.context or ()  # the project's SQL tests
        for place, group in enumerate(self.checks):
            for name in group:
                if not registry.known(name) and name not in own:
                    hint = did_you_mean(name, sorted([*registry.names(), *own]))
                    raise BadValue(f"names a check that does not exist: '{name}'{hint}", "checks", place)
        return self


class Framework(Strict):
    """A framework's statements."""

    name: Text
    title: Text
    source: Text
    statements: Annotated[tuple[Statement, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _ids_differ(self) -> Framework:
        _require_unique("statements", "id", [statement.id for statement in self.statements])
        return self


class Wording(Strict):
    """A file of controls and frameworks."""

    controls: tuple[Statement, ...] = ()
    frameworks: tuple[Framework, ...] = ()

    @model_validator(mode="after")
    def _names_differ(self) -> Wording:
        _require_unique("controls", "id", [control.id for control in self.controls])
        _require_unique("frameworks", "name", [framework.name for framework in self.frameworks])
        for place, control in enumerate(self.controls):
            if (control.id,) != control.control:
                known = did_you_mean(control.id, CONTROLS)
                raise BadValue(
                    f"has the id '{control.id}' and is of the control '{', '.join(control.control)}'{known}",
                    "controls",
                    place,
                    "id",
                )
        return self


def _require_unique(key: str, field: str, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise BadValue(f"two {key} have the {field} '{name}'; give one of them another", key, place, whole=True)


@dataclass(frozen=True)
class Catalog:
    """The six controls in their order, and the frameworks that a report has."""

    controls: tuple[Statement, ...]
    frameworks: tuple[Framework, ...]


def catalog(project: Project) -> Catalog:
    """The wording of a project's compliance report.

    Raises:
        ConfigError: the project's file cannot be used, or recon.yml names a framework that does not exist.
    """
    own = _shipped()
    theirs = Wording() if project.compliance.controls is None else _of_project(project, project.compliance.controls)
    controls = {control.id: control for control in (*own.controls, *theirs.controls)}
    frameworks = {framework.name: framework for framework in (*own.frameworks, *theirs.frameworks)}
    return Catalog(controls=tuple(controls[name] for name in CONTROLS), frameworks=tuple(_chosen(project, frameworks)))


def _chosen(project: Project, frameworks: Mapping[str, Framework]) -> Iterator[Framework]:
    names, line = project.compliance.frameworks, project.compliance.line
    for name in frameworks if names is None else dict.fromkeys(names):
        if name not in frameworks:
            place = f"{project.file[0] if project.file else 'recon.yml'}{f':{line}' if line else ''}"
            hint = did_you_mean(name, frameworks, "there are")
            raise ConfigError(f"{place}: compliance.frameworks names '{name}', which does not exist{hint}")
        yield frameworks[name]


def _of_project(project: Project, path: str) -> Wording:
    file = project.local_path(path)
    if not file.is_file():
        raise ConfigError(
            f"there is no {file}, which compliance.controls of recon.yml names; write it, or leave it out"
        )
    return _parsed(file, project.variables, project.sql_tests.generic)


@cache
def _shipped() -> Wording:
    return _parsed(_OWN, {}, ())


def _parsed(file: Path, variables: Mapping[str, Any], own: Collection[str]) -> Wording:
    document = read(file, variables)
    if not isinstance(document.root.value, dict):
        raise ConfigError(
            f"{document.name}:{document.root.line}: must be a mapping with controls or frameworks at the top"
        )
    try:
        return Wording.model_validate(document.root.value, context=own)
    except ValidationError as error:
        raise ConfigError(validation_message(error, Wording, document)) from None
