"""`catalogs:` of recon.yml: catalogs that are asked by their REST API where tables are, without Spark."""

from __future__ import annotations

from pydantic import Field

from recon.project.fields import Strict
from recon.project.telemetry import HttpUrl, Seconds


class UnityCatalog(Strict):
    """A Unity Catalog. `uri`: the workspace's or the server's URL. `token`: sent as bearer token."""

    uri: HttpUrl
    token: str | None = Field(default=None, repr=False)
    timeout: Seconds = 10.0
