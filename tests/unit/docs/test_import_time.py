"""`import recon` and `recon --help` load no heavy library; what that saves is measured elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    *("pyspark", "pandas", "pyarrow", "deltalake", "confluent_kafka", "numpy", "delta", "jinja2", "rich.table"),
    *("openlineage", "prometheus_client", "opentelemetry"),
)


def _loaded(code: str) -> set[str]:
    tail = f"\nimport json, sys; print('\\n' + json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code + tail], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import recon",
        "from recon.cli import main\ntry: main(['--help'])\nexcept SystemExit as end: assert not end.code",
        "from recon.cli import main\ntry: main(['audit', '--help'])\nexcept SystemExit as end: assert not end.code",
    ],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    assert _loaded(code) == set()


def test_the_probe_notices_a_heavy_import() -> None:
    assert "numpy" in _loaded("import numpy")
