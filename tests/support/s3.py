"""An S3 server on loopback, by moto: objects in memory, over HTTP, as pyarrow and delta-rs ask for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

_SERVER = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").disabled = True
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def bucket(name: str) -> Iterator[dict[str, str]]:
    """Makes an empty bucket and yields the `storage_options` that reach it; the server ends with it."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            url = f"http://127.0.0.1:{int(server.stdout.readline())}"
            urlopen(Request(f"{url}/{name}", method="PUT"), timeout=20).close()
            yield {
                "AWS_ACCESS_KEY_ID": "somebody",
                "AWS_SECRET_ACCESS_KEY": "a-secret-key",
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": url,
                "AWS_ALLOW_HTTP": "true",
            }
        finally:
            server.stdin.close()


def upload(folder: Path, uri: str, options: dict[str, str]) -> None:
    """Copies a folder's files below a URI."""
    from recon.base.storage import Storage

    there = Storage(uri, options)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            there.write(file.relative_to(folder).as_posix(), file.read_bytes())
