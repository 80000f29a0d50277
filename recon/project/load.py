"""Find recon.yml and read it: Jinja, then YAML, then types."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recon.base.credentials import SECRET_NAME
from recon.base.errors import ConfigError
from recon.project.checks import check_item
from recon.project.messages import BadValue, arguments_message, unknown_key_message, validation_message
from recon.project.model import LedgerConfig, Pipeline, Project
from recon.project.secrets import in_locations, mask, secret_parts, secret_url_parts, secret_variables
from recon.project.yaml import Document, LocatedValue, read

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
    """The project itself, or the one of a recon.yml or its folder.

    Raises:
        ConfigError: recon.yml is missing or cannot be used, or this is neither.
    """
    if isinstance(project, Project):
        return project
    if not isinstance(project, (str, PathLike)):
        raise ConfigError(f"project is {project!r}; give the folder of recon.yml, the file itself, or a Project")
    return load(project)


def load(path: str | Path, vars: Mapping[str, Any] | None = None) -> Project:
    """Reads recon.yml: Jinja, then YAML, then types.

    Args:
        path: the file, or the folder that holds it.
        vars: the values of `var('name')`.

    Raises:
        ConfigError: one sentence with file and line, without values from the environment.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        file = file / FILE_NAME
    if not file.is_file():
        raise ConfigError(f"no {FILE_NAME} at {file.absolute()}; write one with 'recon init'")
    document = read(file, vars or {})
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    data = document.root.value
    if data is None:
        raise ConfigError(f"{document.name} is empty; 'recon init' writes a first one")
    if not isinstance(data, dict):
        raise ConfigError(f"{document.name}:{document.root.line}: must be a mapping (key: value) at the top")
    if "project_dir" in data:
        raise ConfigError(unknown_key_message(Project, document, ("project_dir",)))
    _number_tests(document.root)
    _number_frameworks(document)
    try:
        project = Project.model_validate({**data, "project_dir": file.parent.absolute()})
    except ValidationError as error:
        said = validation_message(error, Project, document)
        raise ConfigError(mask(said, in_locations(data), shortest=4)) from None
    _refuse_literals(project, document)
    found = {*_secrets(project, document.secrets), *document.named_secrets, *secret_variables(vars or {})}
    project._secrets |= found
    project._variables = dict(vars or {})
    project._file = (file.name, digest)
    return project


def without_yaml(caller: str, *, ledger: str, pipeline: Mapping[str, Any], **fields: Any) -> Project:
    """A project with one pipeline and no recon.yml; relative paths are relative to the working directory.

    Args:
        caller: what the user called with these arguments, for the message.
        ledger: folder of the ledger.
        pipeline: the pipeline's keys, as in recon.yml; its name is the project's, too.
        fields: further keys of the project.

    Raises:
        ConfigError: an argument cannot be used.
    """
    try:
        return Project(
            name=pipeline["name"],
            ledger=LedgerConfig(location=ledger),
            pipelines=(Pipeline.model_validate(pipeline),),
            project_dir=Path.cwd(),
            **fields,
        )
    except ValidationError as error:
        raise ConfigError(f"{caller}: {arguments_message(error)}") from None


def _number_tests(root: LocatedValue) -> None:
    """Adds to each test of the tree its line in the file."""
    for holder in _test_holders(root):
        for key in ("data_tests", "tests", "post_batch"):
            if isinstance(tests := holder.items.get(key), LocatedValue) and isinstance(tests.value, list):
                for n, item in tests.items.items():
                    try:
                        tests.value[int(n)] = {**check_item(item.value), "line": item.line}
                    except BadValue:
                        continue  # the validation below reports it


def _number_frameworks(document: Document) -> None:
    """Adds to `compliance` the line of its frameworks, which are known only when the report is made."""
    given = document.root.items.get("compliance")
    if given is None or not isinstance(given.value, dict):
        return
    if "line" in given.value:
        raise ConfigError(unknown_key_message(Project, document, ("compliance", "line")))
    if "frameworks" in given.items:
        given.value["line"] = given.items["frameworks"].line


def _test_holders(root: LocatedValue) -> Iterator[LocatedValue]:
    def children(node: LocatedValue, key: str) -> Iterable[LocatedValue]:
        return node.items[key].items.values() if key in node.items else ()

    for table in children(root, "tables"):
        yield table
        yield from children(table, "columns")
    for pipeline in children(root, "pipelines"):
        yield pipeline
        for sink in children(pipeline, "sinks"):
            yield sink
            yield from children(sink, "columns")


# --- what must not be printed -----------------------------------------------------------------------------


def _refuse_literals(project: Project, document: Document) -> None:
    """Raises ConfigError for a password that is written into the file instead of coming from the environment."""
    for pipeline in project.pipelines:
        for sink in pipeline.sinks:
            settings = sink.settings() if sink.secrets_from_environment else ()
            for key, value in (item for place in settings for item in place.items()):
                if SECRET_NAME.search(key) and value and not any(secret in value for secret in document.secrets):
                    raise ConfigError(
                        f"{document.name}: {key} of sink '{sink.name}' is written into the file; take it from the "
                        f"environment: {key}: \"{{{{ env_var('…') }}}}\""
                    )
    if project.hash_key and not any(secret in project.hash_key for secret in document.secrets):
        raise ConfigError(
            f"{document.name}: hash_key is written into the file; take it from the environment: "
            "hash_key: \"{{ env_var('…') }}\""
        )
    for channel in project.alerts.channels:
        if not any(secret in channel.url for secret in document.secrets):
            raise ConfigError(
                f"{document.name}: the url of channel '{channel.name}' of alerts is written into the file; take it "
                "from the environment: url: \"{{ env_var('…') }}\""
            )
    if project.heads.key and not any(secret in project.heads.key for secret in document.secrets):
        raise ConfigError(
            f"{document.name}: the key of heads is written into the file; take it from the environment: "
            "key: \"{{ env_var('…') }}\", or name a file: key_file: …"
        )
    for name, value in (item for key in project.reporting for item in key.credentials()):
        if not any(secret in value for secret in document.secrets):
            raise ConfigError(
                f"{document.name}: the {name} is written into the file; take it from the environment: "
                "\"{{ env_var('…') }}\""
            )


def _secrets(project: Project, from_environment: frozenset[str]) -> Iterator[str]:
    sinks = [sink for pipeline in project.pipelines for sink in pipeline.sinks]
    options = [
        *(pipeline.source.options for pipeline in project.pipelines),
        *(settings for sink in sinks for settings in sink.settings()),
        *(table.options for table in project.tables),
    ]
    published = [settings for place in project.heads.publish for settings in (place.kafka, place.storage_options)]
    places = [project.kafka, project.storage_options, project.spark.conf, *options, *published]
    yield from (project.hash_key,) if project.hash_key else ()
    # A message may hold one line of a key.
    yield from (line for line in (project.heads.key or "").splitlines() if not line.startswith("-----"))
    arguments = [argument for place in project.heads.publish for argument in place.command]
    arguments += [project.heads.timestamp.url] if project.heads.timestamp is not None else []
    yield from (secret for secret in from_environment for argument in arguments if secret in argument)
    for reporting in project.reporting:
        yield from (value for _, value in reporting.credentials())
        yield from (secret for url in reporting.urls() for secret in secret_parts("url", url))
    places += [{"token": catalog.token or ""} for catalog in project.catalogs.values()]
    places += [project.otel.headers] if project.otel is not None else []
    for channel in project.alerts.channels:
        yield from (secret for secret in from_environment if secret in channel.url)
        yield from secret_url_parts(channel.url)
    for place in places:
        for key, value in place.items():
            if key == "bootstrap.servers":
                continue
            yield from secret_parts(key, value)
            yield from (secret for secret in from_environment if secret in value)
