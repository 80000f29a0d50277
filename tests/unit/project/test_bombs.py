"""What a recon.yml or a report template could take of memory and time, measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

resource = pytest.importorskip("resource", reason="limits of a process are POSIX")

EXPRESSIONS = {
    "a width that is a field": "{{ '{:>{w}}'.format(1, w=3*10**9) }}",
    "a precision that is a field": "{{ '{:.{p}f}'.format(1.0, p=2*10**9) }}",
    "a width by position": "{{ '{0:{1}}'.format(1, 10**9) }}",
    "a width in a text": "{{ '{:>{w}}'.format(1, w='3000000000') }}",
    "a width of an item": "{{ '{:>{w[0]}}'.format(1, w=[3*10**9]) }}",
    "a width of format_map": "{{ '{a:>{w}}'.format_map({'w': 3*10**9, 'a': 1}) }}",
    "many widths": "{{ ('{:>99999}' * 9000).format(*[1]*9000) }}",
    "a precision of %": "{{ '%.1000000000f' % 1.0 }}",
    "a width by name": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "many widths of %": "{{ ('%90000d' * 900) % ((1,) * 900) }}",
    "center": "{{ 'x'.center(3*10**9) }}",
    "bytes that are centered": "{{ 'x'.encode().center(3*10**9) }}",
    "bytes that are replaced": "{{ ('a'*50000).encode().replace('a'.encode(), ('b'*40000).encode()) }}",
    "to_bytes": "{{ (1).to_bytes(3*10**9, 'big') }}",
    "many expressions": "{{ 1 }}" * 200_000,
    "many conditions": "{% if 1 %}{% endif %}" * 100_000,
    "many variables": "".join(f"{{% set v{n} = 1 %}}" for n in range(100_000)),
    "many macros": "".join(f"{{% macro m{n}() %}}{{% endmacro %}}" for n in range(30_000)),
    "a long sum": "{{ " + "1+" * 200_000 + "1 }}",
}
DOUBLED = "{% set s = 'x' * 1000 %}" + "{% set s = s ~ s %}" * 21
TEMPLATES = {
    "a doubled text": DOUBLED + "{{ s|length }}",
    "a doubled block": "{% set s = 'x' * 1000 %}" + "{% set s %}{{ s }}{{ s }}{% endset %}" * 21 + "{{ s|length }}",
    "doubled lists": "{% set s = [1] * 99 %}" + "{% set s = [s] * 99 %}" * 5 + "{{ s|string|length }}",
    "a width that is a field": EXPRESSIONS["a width that is a field"],
    "many expressions": EXPRESSIONS["many expressions"],
}
MEASURE = """
import json, resource, sys, time
from pathlib import Path
from recon.base.errors import ConfigError
from recon.project import load
from recon.reports import html, own_templates
from tests.support.sample_run import sample_run

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
folder, run, measured = Path(sys.argv[1]), sample_run(), {}
(folder / "mine").mkdir()
for kind, texts in json.loads(sys.stdin.read()).items():
    for name, text in texts.items():
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        try:
            if kind == "recon.yml":
                (folder / "recon.yml").write_text('name: "' + text + '"')
                load(folder)
            else:
                (folder / "mine" / "report.html.j2").write_text(text)
                html.render(run, templates=folder / "mine")
            said = "taken"
        except ConfigError as error:
            said = str(error)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        measured[f"{kind}: {name}"] = [grown // 1024, round(time.process_time() - began, 2), said]
print(json.dumps(measured))
"""


def test_no_file_takes_gigabytes_or_minutes(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    measured = json.loads(
        subprocess.run(
            [sys.executable, "-c", MEASURE, str(tmp_path)],
            input=json.dumps({"recon.yml": EXPRESSIONS, "template": TEMPLATES}),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(root)},
        ).stdout
    )
    assert len(measured) == len(EXPRESSIONS) + len(TEMPLATES)
    assert {name: at for name, at in measured.items() if at[0] > 200 or at[1] > 5 or at[2] == "taken"} == {}
    assert all("MemoryError" not in said for _, _, said in measured.values())


def test_widths_that_people_write(tmp_path: Path) -> None:
    """What is counted is what stands within a field, and no other number."""
    names = {
        "{{ 'topic-2024001-{}-{:03d}'.format('a', 7) }}": "topic-2024001-a-007",
        "{{ '%s-2024001-%03d' % ('a', 7) }}": "a-2024001-007",
        "{{ '%*d'|format(4, 1)|replace(' ', '0') }}": "0001",
        "{{ '{{{}}}'.format(1)|replace('{', '')|replace('}', '') }}": "1",
    }
    from recon.project.sandbox import sandbox

    for text, made in names.items():
        assert sandbox({}, []).from_string(text).render() == made
