"""Find recon.yml and read it: Jinja, then YAML, then types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recon.errors import ConfigError
from recon.project.checks import check_item
from recon.project.messages import Problem, complaint, unknown_key
from recon.project.model import Project
from recon.project.yaml import Document, Located, read

FILE_NAME = "recon.yml"


def find(start: Path) -> Path:
    """The nearest folder with a recon.yml, from `start` upwards.

    Raises:
        ConfigError: there is none.
    """
    for folder in (start.absolute(), *start.absolute().parents):
        if (folder / FILE_NAME).is_file():
            return folder
    raise ConfigError(
        f"no {FILE_NAME} in {start.absolute()} or any folder above it; write one with 'recon init', "
        "or point to one with --project-dir"
    )


def as_project(project: str | Path | Project) -> Project:
    """A project that is read already, or the one that a recon.yml or its folder holds.

    Raises:
        ConfigError: recon.yml is missing or cannot be used.
    """
    return project if isinstance(project, Project) else load(project)


def load(path: str | Path, vars: Mapping[str, Any] | None = None) -> Project:
    """Reads recon.yml: Jinja, then YAML, then types.

    Args:
        path: the file, or the folder that holds it.
        vars: what `var('name')` finds.

    Raises:
        ConfigError: one sentence with file and line; values from the environment are never in it.
    """
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAME
    if not file.is_file():
        raise ConfigError(f"no {FILE_NAME} at {file.absolute()}; write one with 'recon init'")
    document = read(file, vars or {})
    data = document.root.value
    if data is None:
        raise ConfigError(f"{document.name} is empty; 'recon init' writes one to start from")
    if not isinstance(data, dict):
        raise ConfigError(f"{document.name}:{document.root.line}: must be a mapping (key: value) at the top")
    if "project_dir" in data:
        raise ConfigError(unknown_key(Project, document, ("project_dir",)))
    _number_tests(document.root)
    try:
        project = Project.model_validate({**data, "project_dir": file.parent.absolute()})
    except ValidationError as error:
        raise ConfigError(complaint(error, Project, document)) from None
    _refuse_literals(project, document)
    project._secrets = frozenset(_secrets(project, document.secrets))
    project._variables = dict(vars or {})
    return project


def _number_tests(root: Located) -> None:
    """Gives each test of the tree its line."""
    for holder in _test_holders(root):
        for key in ("data_tests", "tests", "post_batch"):
            if isinstance(found := holder.items.get(key), Located) and isinstance(found.value, list):
                for n, item in found.items.items():
                    try:
                        found.value[int(n)] = {**check_item(item.value), "line": item.line}
                    except Problem:
                        continue  # validation meets it again and says so


def _test_holders(root: Located) -> Iterator[Located]:
    def children(of: Located, key: str) -> Iterable[Located]:
        return of.items[key].items.values() if key in of.items else ()

    for pipeline in children(root, "pipelines"):
        yield pipeline
        for sink in children(pipeline, "sinks"):
            yield sink
            yield from children(sink, "columns")


# --- what must not be printed -----------------------------------------------------------------------------

_SECRET_KEY = re.compile(r"password|passwd|secret|token|jaas|access.?key|account.?key|\bsas\b", re.IGNORECASE)


def _refuse_literals(project: Project, document: Document) -> None:
    """Raises for a password that stands in the file itself, where it must come from the environment."""
    for pipeline in project.pipelines:
        for sink in pipeline.sinks:
            settings = sink.settings() if sink.secrets_from_environment else ()
            for key, value in (item for place in settings for item in place.items()):
                if _SECRET_KEY.search(key) and value and not any(secret in value for secret in document.secrets):
                    raise ConfigError(
                        f"{document.name}: {key} of sink '{sink.name}' stands in the file itself; take it from the "
                        f"environment: {key}: \"{{{{ env_var('…') }}}}\""
                    )


def _secrets(project: Project, given: frozenset[str]) -> Iterator[str]:
    sinks = [sink for pipeline in project.pipelines for sink in pipeline.sinks]
    options = [*(given for sink in sinks for given in sink.settings()), *(table.options for table in project.tables)]
    places = [project.kafka, project.storage_options, project.spark.conf, *options]
    for place in places:
        for key, value in place.items():
            if key == "bootstrap.servers":
                continue
            if _SECRET_KEY.search(key):
                yield value
            yield from (secret for secret in given if secret in value)
