"""A server that answers as Unity Catalog's REST API does (getTable of its api/all.yaml): the real one cannot be had."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

_TABLES = "/api/2.1/unity-catalog/tables/"


@dataclass
class Unity:
    """What the server says: per full name a TableInfo, or (status, body, headers) as it is sent."""

    uri: str
    tables: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # (full name, Authorization)
    waits: float = 0.0

    def add(self, name: str, location: str, **other: Any) -> None:
        catalog, schema, table = name.split(".")
        self.tables[name] = {
            "name": table,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [],
            "storage_location": location,
            "table_id": "6ab3b9f4-2b9f-4c0e-8a37-7c8b6ad0f5a1",
            **other,
        }


@contextmanager
def unity() -> Iterator[Unity]:
    """A server on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(served.waits)
            name = unquote(self.path.removeprefix(_TABLES)) if self.path.startswith(_TABLES) else self.path
            served.asked.append((name, self.headers.get("Authorization")))
            missing = {"error_code": "TABLE_DOES_NOT_EXIST", "message": f"Table '{name}' does not exist."}
            found = served.tables.get(name, (404, json.dumps(missing), {}))
            status, body, headers = found if isinstance(found, tuple) else (200, json.dumps(found), {})
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Unity(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
