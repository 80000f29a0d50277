"""Locates catalog tables by Unity Catalog's REST API, for the catalogs that recon.yml names; no Spark.

The API is `GET /api/2.1/unity-catalog/tables/{full_name}` (Databricks' "Get a table"; `getTable` in Unity Catalog's
api/all.yaml). The location alone is taken from the answer: logs and files are read there with `storage_options`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from recon.base.errors import ConfigError, EvidenceError
from recon.base.limits import within
from recon.base.text import first_line, inert
from recon.project import Project
from recon.project.catalogs import UnityCatalog
from recon.project.locations import misplaced, parts_of

_TABLES = "/api/2.1/unity-catalog/tables/"
_STORED = ("MANAGED", "EXTERNAL")  # types of tables that have a location
_MOST_BYTES = 8 << 20  # of an answer, which lists the columns of the table


def ask(project: Project, tables: Sequence[str] | None = None) -> None:
    """Asks where catalog tables are, by default those of all sinks, and notes it in the project.

    For `main.sales.orders`, the catalog that recon.yml names `main` is asked; other tables are left to Spark. For a
    table that is not found, the reason is noted. A catalog that does not answer is not asked again.
    """
    silent: dict[str, str] = {}
    for name in project.catalog_tables() if tables is None else tables:
        catalog = asked_of(project, name)
        if catalog is None:
            continue
        if catalog.uri in silent:
            project.set_unlocated(name, silent[catalog.uri])
            continue
        try:
            project.set_location(name, _location(project, catalog, name))
        except ConfigError as error:
            project.set_unlocated(name, str(error))
        except EvidenceError as error:
            silent[catalog.uri] = str(error)
            project.set_unlocated(name, str(error))
        except Exception as error:  # whatever an answer holds: it is of this table alone
            why = f"{type(error).__name__}: {first_line(error)}"
            project.set_unlocated(name, f"what {catalog.uri} answers about {name} cannot be read: {why}")


def asked_of(project: Project, table: str) -> UnityCatalog | None:
    """The catalog that is asked where a table is; None where only Spark may know."""
    first, *rest = parts_of(table)
    return project.catalogs.get(first) if len(rest) == 2 else None


def _location(project: Project, catalog: UnityCatalog, name: str) -> str:
    table = _asked(catalog, name)
    kind, data_format = (str(table.get(key) or "") for key in ("table_type", "data_source_format"))
    location = table.get("storage_location")
    if kind not in _STORED or data_format != "DELTA":
        raise ConfigError(
            f"{name} is no Delta table in the catalog at {catalog.uri}, but of type {kind or 'unknown'} and format "
            f"{data_format or 'unknown'}; write the name of a Delta table, or a path or URI"
        )
    if not isinstance(location, str) or not location:
        raise ConfigError(
            f"the catalog at {catalog.uri} gives no location of {name} to this token; write the table's location as "
            "target"
        )
    return usable(project, name, location)


def usable(project: Project, name: str, location: str) -> str:
    """The location that a catalog gives of a table, as recon.yml and the ledger have it: a local path has no scheme.

    Raises:
        ConfigError: nothing can be read or written there.
    """
    problem = misplaced(location, project.project_dir)
    if problem:
        raise ConfigError(f"the location of {name} {problem}")
    return f"/{location.removeprefix('file:').lstrip('/')}" if location.startswith("file:") else location


def _asked(catalog: UnityCatalog, name: str) -> Mapping[str, Any]:
    """The catalog's own description of a table.

    Raises:
        EvidenceError: it does not answer.
        ConfigError: it refuses, or has no such table.
    """
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        """The token is for this server alone."""

        def redirect_request(self, *_: Any) -> None:
            return None

    headers = {"Accept": "application/json"}
    if catalog.token:
        headers["Authorization"] = f"Bearer {catalog.token}"
    url = f"{catalog.uri.rstrip('/')}{_TABLES}{quote('.'.join(parts_of(name)), safe='')}"

    def answered() -> bytes:
        answer: bytes
        # The limit of the whole call is `within`; that of one wait ends the thread which a call left behind.
        with build_opener(NoRedirect).open(Request(url, headers=headers), timeout=2 * catalog.timeout) as opened:
            answer = opened.read(_MOST_BYTES)
        return answer

    silent = f"the catalog at {catalog.uri} does not say where {name} is: it did not answer"
    try:
        document = json.loads(within(catalog.timeout, answered, silent))
    except HTTPError as error:
        raise ConfigError(_refused(catalog, name, error.code, _said(error))) from error
    except OSError as error:
        raise EvidenceError(
            f"the catalog at {catalog.uri} does not say where {name} is: {_reason(error)}; see whether it can be "
            "reached from here, then try again"
        ) from error
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ConfigError(
            f"what {catalog.uri} answers about {name} is no description of a table; correct the uri of the catalog "
            "in recon.yml"
        )
    return document


def _refused(catalog: UnityCatalog, name: str, status: int, said: str) -> str:
    asked = f"the catalog at {catalog.uri}"
    if status == 404:
        return f"{asked} has no table {name}{said}; correct its name, or write the table's location as target"
    if status in (401, 403):
        return (
            f"{asked} refuses to say where {name} is ({status}){said}; give recon.yml a token of somebody who may "
            "use the catalog and the schema, and read the table"
        )
    step = "try again later" if status >= 500 or status == 429 else "correct the uri of the catalog in recon.yml"
    return f"{asked} does not say where {name} is ({status}){said}; {step}"


def _reason(error: OSError) -> str:
    return first_line(getattr(error, "reason", error))


def _said(error: Any) -> str:
    """The catalog's own sentence in an answer that refuses."""
    try:
        document = json.loads(error.read(_MOST_BYTES))
        return f": {inert(str(document['message']).strip().rstrip('.'))[:200]}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
