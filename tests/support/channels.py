"""What receives alerts in tests: an HTTP server and an SMTP server on this machine, real ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread
from typing import Any

import pytest


class Received:
    """An HTTP server that keeps what is posted to it.

    `status` is its answer; while `go` is not set, it gives none.
    """

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.status = 200
        self.go, self.asked = Event(), Event()
        self.go.set()
        self._changed = Condition()
        received = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.asked.set()
                received.go.wait(60)
                if received.status == 200:
                    with received._changed:
                        received.posts.append(json.loads(body))
                        received._changed.notify_all()
                self.send_response(received.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Its apprise URL, with a password."""
        return f"json://recon:tr0ub4dor@127.0.0.1:{self._server.server_port}/alerts"

    @property
    def titles(self) -> list[str]:
        return [post["title"] for post in self.posts]

    def await_count(self, count: int) -> None:
        """Waits until so many messages came."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.posts) >= count, 60)

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def http() -> Iterator[Received]:
    received = Received()
    yield received
    received.close()


class Mails:
    """An SMTP server that keeps the mails it takes."""

    def __init__(self) -> None:
        from aiosmtpd.smtp import SMTP

        self.mails: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        serving = self._loop.create_server(lambda: SMTP(self, hostname="localhost", loop=self._loop), "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(60)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append(envelope.content.decode())
        return "250 OK"

    @property
    def url(self) -> str:
        """Its apprise URL."""
        port = self._server.sockets[0].getsockname()[1]
        return f"mailto://127.0.0.1:{port}?from=recon@example.org&to=oncall@example.org&mode=insecure"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@pytest.fixture
def smtp() -> Iterator[Mails]:
    mails = Mails()
    yield mails
    mails.close()
