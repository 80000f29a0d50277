"""A recon.yml that would take minutes or gigabytes is refused at once, in one sentence."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from jinja2 import Environment

from recon.base.errors import ConfigError
from recon.cli.shared import _mapping
from recon.project import load
from recon.project.sandbox import sandbox
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
        'name: "{% for i in range(999999) %}{% for j in range(999999) %}x{% endfor %}{% endfor %}"',
        'name: "{% for i in range(999999) %}{% for j in range(999999) %}{% endfor %}{% endfor %}"',
        'name: "{{ range(10000000000) }}"',
        "name: \"{% for i in range(1000) %}{{ 'x' * 10000 }}{% endfor %}\"",
        "name: \"{{ 'x'.ljust(10000000000) }}\"",
        "name: \"{{ 'x'|center(10000000000) }}\"",
        "name: \"{{ '%10000000000d' % 1 }}\"",
        'name: "{{ 9 ** 99999999 }}"',
        "name: \"{{ ['x' * 1000] * 1000000 }}\"",
        'name: "{{ [1]|slice(1000000000)|list }}"',
        "name: \"{{ 'x'|batch(100000000, 'y')|list }}\"",
        "name: \"{{ ('x' * 99000)|wordwrap(1) }}\"",
        "name: \"{{ ('x' * 90000)|list|tojson }}\"",
        "name: \"{{ ('a,' * 90000)|replace(',', 'b' * 40000) }}\"",
        "name: \"{{ ('a' * 50000).replace('a', 'b' * 40000) }}\"",
        "name: \"{{ (',' * 90000).join(['x'] * 90000) }}\"",
        "name: \"{{ '%*d' % (1000000000, 1) }}\"",
        "name: \"{{ '{:>1000000000}'.format(1) }}\"",
        "name: \"{% set a = 'x' * 1000 %}" + "{% set a = a ~ a %}" * 30 + '{{ a }}"',
        "name: \"{% set a = 'x' * 1000 %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 30 + '{{ a }}"',
        'name: "{% set l = [1] * 99 %}' + "{% set l = [l] * 99 %}" * 4 + '{{ l|string|length }}"',
        'name: "{% set r = range(1000) %}' + "{% for a in r %}" * 3 + "{% endfor %}" * 3 + '"',
        'name: "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"',
        'name: "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}"',
        "name: \"{% for a in range(1000) %}{% for b in range(900) %}{% set c = 'x' * 90000 %}"
        + "{% endfor %}" * 2
        + '"',
        'name: "'
        + "".join(f"{{% set {v} = [1] %}}" + f"{{% set {v} = [{v}, {v}] %}}" * 60 for v in "ab")
        + '{{ a == b }}"',
        'name: "{% set a = (1,) %}' + "{% set a = (a, a) %}" * 60 + '{% set d = {a: 1} %}"',
        'name: "{% set a = (1,) %}' + "{% set a = (a, a) %}" * 60 + '{{ {}[a] }}"',
        'name: "{% set a = (1,) %}' + "{% set a = (a, a) %}" * 60 + '{{ {}.get(a) }}"',
        'name: "{% set a = (1,) %}' + "{% set a = (a, a) %}" * 60 + '{{ a is in([1]) }}"',
        "name: \"{{ ('(' * 45000 ~ ')' * 45000)|urlize }}\"",
        "name: " + ":".join(["1"] * 100_000),
        "\n".join(f"k{n}: 1" for n in range(150_000)),
        "pipelines:\n" + "".join(f"  - nam: p{n}\n" for n in range(10_000)),
        "pipelines: [" + "{name: p, sinks: []}," * 6000 + "]",
        "[" * 5000 + "]" * 5000,
        "- " * 3000 + "x",
    ],
    ids=lambda text: re.sub(r"\W+", " ", text)[:50].strip() or str(len(text)),
)
def test_what_would_never_end(tmp_path: Path, text: str) -> None:
    began = time.thread_time()
    assert same_message(refused(tmp_path, text))
    assert time.thread_time() - began < 5, "not a figure: without bounds each of them takes minutes, or gigabytes"


def test_variables_have_the_bounds_of_a_file() -> None:
    bomb = "{" + ", ".join(aliases().splitlines()) + "}"
    for text, code in ((bomb, "more than 40,000 values"), ("[" * 500, "must be a mapping"), ("{a: 1, b: [2]}", "")):
        if code:
            with pytest.raises(ConfigError, match=code):
                _mapping(text)
        else:
            assert _mapping(text) == {"a": 1, "b": [2]}


def test_what_expressions_make_is_as_jinja_makes_it(tmp_path: Path) -> None:
    """The steps between which the clock is looked at change no result."""
    text = (
        "{% for a in [3, 4] if a > 3 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}"
        "{% else %}none{% endfor %}-{{ 'a' ~ 1 ~ ['b'] }}-{{ ['x', 'y']|map('upper')|join('+') }}-"
        "{% for k, v in {'q': 1}.items() %}{{ k ~ v }}{% endfor %}-{{ [1, 2, 3]|batch(2)|list }}-"
        "{{ '%s.%s' % (1, 'z') }}-"
        "{{ 3 > 2 and 'a' in 'abc' and [1] == [1] and 2 is even and 1 is in([1]) }}-{{ {'k': {'n': 5}}['k']['n'] }}-"
        "{{ 'abc'.replace('b', 'BB') }}-{{ '{}:{}'.format(1, 2) }}-{{ 86400000|string }}-{{ 'a b c'|truncate(3) }}"
    )
    made = sandbox({}, []).from_string(text).render()
    assert made == Environment().from_string(text).render()


def test_each_thread_has_its_own_clock() -> None:
    environment = sandbox({}, [])
    template = environment.from_string("{% for a in l %}{{ a }}{% endfor %}")
    environment.begin()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(template.render, l=[1, 2]).result() == "12"
    assert template.render(l=[1, 2]) == "12"


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
