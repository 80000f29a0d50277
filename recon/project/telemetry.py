"""`openlineage:`, `prometheus:` and `otel:` of recon.yml: where audits and micro-batches are reported to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import override

from recon.base.credentials import SECRET_NAME
from recon.project.fields import Strict, Texts
from recon.project.messages import BadValue


def _http(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadValue("must be a URL that begins with http:// or https://")
    try:
        _ = parts.port
    except ValueError:  # errors of libraries would quote a part of the password as the port
        raise BadValue(
            "has a port that is no number; in a password before the host, write %2F for '/', %3F for '?', %23 for '#'"
        ) from None
    return value


HttpUrl = Annotated[str, AfterValidator(_http)]
# A request that takes longer is given up: a process that ends waits for it.
Seconds = Annotated[float, Field(gt=0, le=60)]


class Reporting(Strict):
    """A key of recon.yml that reports to other systems."""

    def credentials(self) -> Iterable[tuple[str, str]]:
        """(name, value) of each setting that is a credential by its meaning."""
        return ()

    def urls(self) -> Iterable[str]:
        """The servers that are reported to."""
        return ()


def _asked_for(value: Any) -> Any:
    return {} if value is None else value  # `otel:` alone asks for it, too


class OpenLineage(Reporting):
    """Where OpenLineage events go: `file`, to which lines of JSON are appended, or `url`, the server's.

    `namespace` is that of the jobs, the project's name by default. `endpoint`: the path behind `url`. `api_key`: sent
    as bearer token. `micro_batches`: whether the hook's micro-batches are reported, and not audits alone.
    """

    namespace: str | None = Field(default=None, min_length=1)
    file: str | None = None
    url: HttpUrl | None = None
    endpoint: str = "api/v1/lineage"
    api_key: str | None = Field(default=None, repr=False)
    timeout: Seconds = 5.0
    micro_batches: bool = True

    @model_validator(mode="after")
    def _one_place(self) -> OpenLineage:
        if (self.file is None) == (self.url is None):
            raise BadValue(f"needs one of file, url, and has {'both' if self.file else 'none'}")
        return self

    @override
    def credentials(self) -> Iterable[tuple[str, str]]:
        return [("api_key of openlineage", self.api_key)] if self.api_key else ()

    @override
    def urls(self) -> Iterable[str]:
        return [self.url] if self.url is not None else ()


class Pushgateway(Strict):
    """A Prometheus Pushgateway, and the user and password it asks for."""

    url: HttpUrl
    user: str | None = None
    password: str | None = Field(default=None, repr=False)
    timeout: Seconds = 5.0

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"url": value} if isinstance(value, str) else value


class Prometheus(Reporting):
    """Where metrics go: files in the folder `textfile`, which node_exporter reads, a `pushgateway`, or both."""

    textfile: str | None = None
    pushgateway: Pushgateway | None = None

    @model_validator(mode="after")
    def _somewhere(self) -> Prometheus:
        if self.textfile is None and self.pushgateway is None:
            raise BadValue("needs 'textfile' (a folder), 'pushgateway' (a URL), or both")
        return self

    @override
    def credentials(self) -> Iterable[tuple[str, str]]:
        password = self.pushgateway.password if self.pushgateway is not None else None
        return [("password of prometheus.pushgateway", password)] if password else ()

    @override
    def urls(self) -> Iterable[str]:
        return [self.pushgateway.url] if self.pushgateway is not None else ()


class OpenTelemetry(Reporting):
    """Spans and metrics by the process's own providers, or else by OTLP over HTTP to `endpoint`.

    What is left out is taken from the standard variables (OTEL_EXPORTER_OTLP_ENDPOINT, …). `headers` are sent with
    every request. `service_name` is the resource's.
    """

    endpoint: HttpUrl | None = None
    headers: Texts = Field(default_factory=dict, repr=False)
    timeout: Seconds = 5.0
    service_name: str | None = None

    @override
    def credentials(self) -> Iterable[tuple[str, str]]:
        for name, value in self.headers.items():
            if SECRET_NAME.search(name):
                yield f"header {name} of otel", value

    @override
    def urls(self) -> Iterable[str]:
        return [self.endpoint] if self.endpoint is not None else ()


OpenLineageKey = Annotated[OpenLineage | None, BeforeValidator(_asked_for)]
PrometheusKey = Annotated[Prometheus | None, BeforeValidator(_asked_for)]
OpenTelemetryKey = Annotated[OpenTelemetry | None, BeforeValidator(_asked_for)]
