"""Templates of the user: what they may replace, that they cannot break out, and how their faults are told."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from jinja2 import Environment

from recon.base.errors import ConfigError
from recon.reports import compliance, forms, html, own_templates, pages
from recon.reports.forms import markdown
from tests.support import sample_run
from tests.support.messages import raises

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "report_templates"
PAGE = (ROOT / "docs" / "report_templates.md").read_text(encoding="utf-8")
TEMPLATES = ROOT / "recon" / "reports" / "templates"
BASE = '{% extends "recon/report.html.j2" %}\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()

    def write(text: str, name: str = "report.html.j2") -> Path:
        (tmp_path / "mine" / name).write_text(text, encoding="utf-8")
        return tmp_path / "mine"

    return write


def test_the_example_has_the_companys_logo_and_colours_in_every_form():
    run, document = sample_run.sample_run(), sample_run.sample_compliance()
    page = html.render(run, templates=EXAMPLE)
    assert 'aria-label="Example Ltd"' in page
    assert "19 checks ran for lake" in page
    assert "--link: #0b5fa5" in page
    assert "1 of 3 pipelines is not complete" in page
    assert 'aria-label="Example Ltd"' in compliance.render_html(document, EXAMPLE)
    text = forms.text(run, "markdown", EXAMPLE)
    assert text.startswith("## Data check of lake (Example Ltd)\n")
    assert forms.text(run, "markdown").partition("\n")[2] == text.partition("\n")[2]


def test_an_empty_folder_changes_nothing(folder):
    empty = folder("")
    (empty / "report.html.j2").unlink()
    run, document = sample_run.sample_run(), sample_run.sample_compliance()
    assert html.render(run, templates=empty) == html.render(run)
    assert compliance.render_html(document, empty) == compliance.render_html(document)
    assert compliance.render_markdown(document, empty) == compliance.render_markdown(document)
    assert forms.text(run, "markdown", empty) == forms.text(run, "markdown")


@pytest.mark.parametrize("link", ["report.html.j2", "part.html.j2", "part.txt"])
def test_a_link_to_a_file_elsewhere_is_refused(folder, tmp_path, link):
    """Whoever may write the folder cannot read with the rights of who makes the report."""
    (tmp_path / "secret.txt").write_text("of somebody else")
    mine = folder(f"{BASE}{{% block brand %}}{{% include '{link}' %}}{{% endblock %}}")
    (mine / link).unlink(missing_ok=True)
    (mine / link).symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ConfigError, match="within the folder of report templates"):
        html.render(sample_run.sample_run(), templates=mine)


def test_a_link_within_the_folder_is_followed(folder, tmp_path):
    mine = folder("a part", "own.txt")
    folder(f"{BASE}{{% block brand %}}{{% include 'part.txt' %}}{{% endblock %}}")
    (mine / "part.txt").symlink_to("own.txt")
    (tmp_path / "elsewhere").symlink_to(mine)
    assert "a part" in html.render(sample_run.sample_run(), templates=tmp_path / "elsewhere")


def test_a_loop_without_an_end_is_refused(folder, monkeypatch):
    monkeypatch.setattr(own_templates, "_MOST_S", 0.3)
    loops = ("range(999)", "range(900)", "'x' * 999")
    mine = folder("".join(f"{{% for a in {each} %}}" for each in loops) + "{% endfor %}" * len(loops))
    with pytest.raises(ConfigError, match="loops and expressions take longer"):
        html.render(sample_run.sample_run(), templates=mine)


def test_texts_put_together_stay_escaped_or_not(folder):
    mine = folder(BASE + "{% block brand %}{{ '<a>' ~ '<b>'|safe ~ 1 }}{% endblock %}")
    assert "&lt;a&gt;<b>1" in html.render(sample_run.sample_run(), templates=mine)


def test_values_are_escaped_as_in_recons_own(folder):
    mine = folder(BASE + "{% block footer %}<p>{{ run.project }}</p>{% endblock %}")
    page = html.render(sample_run.hostile_run(), templates=mine)
    assert "<p>&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&#34;&amp;\\x1b[31m</p>" in page


FAULTS = {
    "syntax": BASE + "{% block footer %}\n{{ run. }}{% endblock %}",
    "no variable": BASE + "\n{% block footer %}\n{{ headlin }}\n{% endblock %}",
    "no attribute": BASE + "{% block footer %}\n\n{{ run.projct }}{% endblock %}",
    "no block": BASE + "\n{% block foter %}{% endblock %}",
    "no filter": BASE + "{% block footer %}{{ run.project|uper }}{% endblock %}",
    "no file": BASE + "{% block footer %}\n{% include 'logo.png' %}{% endblock %}",
    "no parent": '{% extends "recon/reprot.html.j2" %}',
    "itself": '{% extends "report.html.j2" %}',
    "python": BASE + "{% block footer %}{{ run.__class__ }}{% endblock %}",
    "a filter that fails": BASE + "{% block footer %}{{ run.results|sum }}{% endblock %}",
    "too much": BASE + "{% block footer %}{{ 'x' * 10**8 }}{% endblock %}",
    "endless": BASE + "{% block footer %}{% for n in range(10**9) %}x{% endfor %}{% endblock %}",
    "another folder": BASE + "{% block footer %}{% include '../secret.txt' %}{% endblock %}",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_sentence_with_file_and_line_and_the_old_report_stays(folder, fault, tmp_path):
    (tmp_path / "secret.txt").write_text("hunter2")
    page = tmp_path / "report.html"
    page.write_text("the old report")
    with raises(ConfigError) as caught:
        html.write(sample_run.sample_run(), page, templates=folder(FAULTS[fault]))
    assert re.match(r"mine/report\.html\.j2:\d+: [^\n]+$", str(caught.value))
    assert page.read_text() == "the old report"


def test_a_file_that_replaces_nothing_is_a_fault_unless_another_includes_it(folder):
    mine = folder("x", "reprot.html.j2")
    with raises(ConfigError):
        html.render(sample_run.sample_run(), templates=mine)
    folder(BASE + "{% block footer %}{% include 'reprot.html.j2' %}{% endblock %}")
    html.render(sample_run.sample_run(), templates=mine)


def test_faults_of_the_other_templates(folder, tmp_path):
    mine = folder("{{ nothing }}", "compliance.md.j2")
    with raises(ConfigError):
        compliance.write(sample_run.sample_compliance(), tmp_path / "c.md", "md", templates=mine)
    folder("\n{{ nothing }}", "report.md.j2")
    with raises(ConfigError):
        forms.write(sample_run.sample_run(), "markdown", tmp_path / "r.md", mine)
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_a_folder_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with raises(ConfigError):
        html.render(sample_run.sample_run(), templates=Path("nowhere"))


def test_a_template_cannot_call_what_writes(folder, tmp_path):
    from recon.reports.audit_run import AuditRun

    mine = folder(BASE + "{% block footer %}{{ run.write('" + str(tmp_path / "out") + "') }}{% endblock %}")
    with pytest.raises(ConfigError, match="not safely callable"):
        html.render(AuditRun.of(sample_run.sample_run()), templates=mine)
    assert not (tmp_path / "out").exists()


def test_macros_can_be_replaced_where_recons_own_are_imported(folder, tmp_path):
    shutil.copy(TEMPLATES / "macros.html.j2", tmp_path / "macros.txt")
    text = (tmp_path / "macros.txt").read_text()
    mine = folder(
        text.replace("{% macro badge(word) %}<span", "{% macro badge(word) %}<b>mine</b><span"), "macros.html.j2"
    )
    assert "<b>mine</b>" in html.render(sample_run.sample_run(), templates=mine)


def _names(section: str, kind: str) -> set[str]:
    """The names in the first cells of a section's table."""
    part = PAGE[PAGE.index(f"\n{section}\n") + 1 :]
    part = re.split(r"\n#{2,3} ", part, maxsplit=1)[0]
    table = re.search(rf"\| {kind} \|[^\n]*\n\|[^\n]*\n((?:\|[^\n]*\n?)+)", part)
    cells = [row.split("|")[1] for row in (table[1] if table else "").splitlines()]
    return {re.match(r"\w+", name)[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


_OF_PAGES = {"style", "script", "policy"}
PASSED = {
    "report.html.j2": {*html.values(sample_run.sample_run()), *_OF_PAGES},
    "report.md.j2": set(markdown.values(sample_run.sample_run())),
    "compliance.html.j2": {*compliance.values(sample_run.sample_compliance()), "document", *_OF_PAGES},
    "compliance.md.j2": set(compliance.values(sample_run.sample_compliance())),
}


@pytest.mark.parametrize("template", PASSED)
def test_the_page_names_every_variable_and_block_and_no_other(template):
    assert _names(f"### {template}", "variable") == PASSED[template]
    blocks = re.findall(r"{% block (\w+) %}", (TEMPLATES / template).read_text(encoding="utf-8"))
    assert len(blocks) == len(set(blocks))
    assert _names(f"### {template}", "block") == set(blocks)


def test_the_page_names_every_template_filter_and_function(folder, monkeypatch):
    assert _names("## Templates", "file") == {name.partition(".")[0] for name in own_templates.REPLACEABLE}
    made = {}
    monkeypatch.setattr(own_templates, "_check", lambda environment, *_: made.setdefault("it", environment))
    html.render(sample_run.sample_run(), templates=folder(BASE))
    plain = Environment()
    of_bounds = {name for name in made["it"].filters if name.startswith("recon_")}
    assert _names("## Filters and functions", "filter") == made["it"].filters.keys() - plain.filters.keys() - of_bounds
    assert _names("## Filters and functions", "function") == made["it"].globals.keys() - plain.globals.keys()
    assert plain.globals.keys() - made["it"].globals.keys() == {"lipsum"}
    assert pages.__doc__
