"""A recon.yml that would take minutes or gigabytes is refused at once, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon.errors import ConfigError
from recon.project import load
from tests.support.messages import same_message


def aliases(levels: str = "bcdefgh") -> str:
    """Nine to the power of eight values in less than 300 bytes."""
    lines, before = ["a: &a [x,x,x,x,x,x,x,x,x]"], "a"
    for name in levels:
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]")
        before = name
    return "\n".join(lines)


def refused(folder: Path, text: str) -> str:
    (folder / "recon.yml").write_text(text)
    with pytest.raises(ConfigError) as told:
        load(folder)
    return str(told.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    "text",
    [
        aliases(),
        "name: \"{{ 'x' * 10000000000 }}\"",
        "name: \"{{ 10000000000 * ['x'] }}\"",
        'name: "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}"',
        'name: "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"',
        'name: "{{ range(10000000000) }}"',
        "name: \"{% for i in range(1000) %}{{ 'x' * 10000 }}{% endfor %}\"",
        "name: \"{{ 'x'.ljust(10000000000) }}\"",
        "name: \"{{ 'x'|center(10000000000) }}\"",
        "name: \"{{ '%10000000000d' % 1 }}\"",
        'name: "{{ 9 ** 99999999 }}"',
        "[" * 5000 + "]" * 5000,
        "- " * 3000 + "x",
    ],
    ids=lambda text: str(len(text)),
)
def test_what_would_never_end(tmp_path: Path, text: str) -> None:
    assert same_message(refused(tmp_path, text))


def test_a_file_that_is_too_long(tmp_path: Path) -> None:
    assert "recon.yml has 5,000,001 bytes; recon reads files of at most 5,000,000" in refused(tmp_path, "x" * 5_000_001)


def test_an_alias_inside_its_own_anchor_is_still_named(tmp_path: Path) -> None:
    assert "an alias is inside its own anchor" in refused(tmp_path, "a: &a [*a]")


def test_what_people_write_is_not_refused(tmp_path: Path) -> None:
    """Loops over many topics, and anchors that many sinks share."""
    sinks = "".join(
        f"      - {{name: s{n}, target: lake/s{n}, data_tests: &t{n} [source_rows, delta_history]}}\n"
        for n in range(400)
    )
    topics = "{% for n in range(1000) %}topic-{{ '%04d' % n }}, {% endfor %}"
    (tmp_path / "recon.yml").write_text(
        f"version: 2\nname: {{{{ 'x' * 20 }}}}\nledger: l\nkafka: {{bootstrap.servers: h}}\npipelines:\n"
        f"  - name: p\n    checkpoint: c\n    source: {{topics: [{topics}]}}\n    sinks:\n{sinks}"
    )
    project = load(tmp_path)
    assert len(project.pipelines[0].sinks) == 400 and project.pipelines[0].source.topics[999] == "topic-0999"
