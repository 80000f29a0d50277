"""The HTML report: the answer first, everything escaped, nothing fetched, small with many partitions."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import os
import re
import tempfile
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import FileSystemBytecodeCache

from recon.model import BatchPoint, Code, CoverageCell, PipelineFacts
from recon.reports import html, picture, sums
from recon.reports.codes import MEANINGS
from tests.support import sample_run


class Page(HTMLParser):
    """Tags, references and text of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag):
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data):
        if self._inside:
            if self._inside[-1] == "script":
                self.scripts.append(data)
        else:
            self.text.append(data)


@pytest.fixture(scope="module")
def sample() -> str:
    return html.render(sample_run.sample_run())


def test_the_answer_comes_first(sample):
    sections = ('id="answer"', 'class="card ', *(f'<section id="{n}"' for n in ("findings", "coverage", "rows")))
    sections += ('<section id="lag"', '<section id="checks"', '<section id="run"', '<section id="codes"')
    places = [sample.index(section) for section in sections]
    assert places == sorted(places)
    assert "1 of 3 pipelines is not complete, 1 could not be proved" in Page(sample).text


def test_every_finding_and_check_is_in_the_page(sample):
    run = sample_run.sample_run()
    text = " ".join(Page(sample).text)
    for result in run.results:
        assert result.name in text
        for finding in result.findings:
            assert finding.message in text
    assert "P-1006" in text  # a sample
    assert run.pipelines[0].sinks[0].chain_head in text


def test_answers_have_a_shape_and_a_word_besides_the_colour(sample):
    for answer in ("complete", "not-complete", "could-not-be-proved"):
        assert f'<div class="says"><svg class="icon" aria-hidden="true"><use href="#i-{answer}"/></svg>' in sample
        assert f'<symbol id="i-{answer}"' in sample


def test_nothing_is_fetched(sample):
    for tag, attributes in Page(sample).tags:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            value = attributes.get(name) or "#"
            assert value.startswith("#") or value == "data:,", (tag, name, value)
    assert not re.search(r"@import|url\((?!#|\"data:)", sample)


def test_only_our_own_script_may_run(sample):
    page = Page(sample)
    (script,) = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_data_is_escaped_wherever_it_stands():
    hostile = html.render(sample_run.hostile_run())
    assert "<script>alert" not in hostile
    assert "&lt;script&gt;alert" in hostile
    assert "\x1b" not in hostile
    page = Page(hostile)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert len(page.scripts) == 1
    assert "alert" not in page.scripts[0]
    assert "<script>alert('x')</script>\"&\\x1b[31m" in "".join(page.text)


def test_a_direction_mark_cannot_reorder_the_text():
    run = dataclasses.replace(sample_run.sample_run(), notes=("sre\u202etnuoc",))
    assert "\u202e" not in html.render(run)


def test_many_partitions_stay_small_and_problems_come_first():
    page = html.render(sample_run.big_run(200, 144))
    assert len(page.encode()) < 600_000
    first = picture.coverage(sample_run.big_run(200, 144).pipelines[0].sinks[0])
    assert [row.name for row in first.first] == ["payments-63", "payments-7", "payments-150"]
    assert len(first.every) == 200
    assert "Show all 200 partitions" in page


def test_even_cells_that_cannot_be_folded_stay_small():
    run = sample_run.big_run(200, 10)
    sink = run.pipelines[0].sinks[0]
    states = ("covered", "in flight", "gap", "covered", "overlap")
    partitions = tuple(
        dataclasses.replace(
            p,
            cells=tuple(
                dataclasses.replace(c, state=states[(n + p.partition) % 5])
                for n, c in enumerate(sample_run.coverage_cells(300, 50))
            ),
        )
        for p in sink.partitions
    )
    sink = dataclasses.replace(sink, partitions=partitions)
    run = dataclasses.replace(run, pipelines=(dataclasses.replace(run.pipelines[0], sinks=(sink,)),))
    assert len(html.render(run).encode()) < 2_000_000


def test_a_run_of_nothing_is_a_page():
    run = dataclasses.replace(sample_run.sample_run(), results=(), pipelines=(), args={}, versions={}, notes=())
    text = " ".join(Page(html.render(run)).text)
    assert "No pipeline was audited" in text
    assert "No check reported a finding" in text


@pytest.mark.parametrize("place", ["a file", "a folder that is gone", "a folder"])
def test_compiled_templates_are_kept_where_that_is_possible(tmp_path, monkeypatch, sample, place):
    cache = tmp_path / f"_jinja2-cache-{os.getuid()}"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if place == "a file":
        cache.touch()
    elif place == "a folder that is gone":
        monkeypatch.setattr(FileSystemBytecodeCache, "_get_default_cache_dir", lambda _: str(cache))
    run = sample_run.sample_run()
    assert html.render(run) == html.render(run) == sample
    assert len(list(tmp_path.glob("_jinja2-cache-*/recon_*.cache"))) == (4 if place == "a folder" else 0)


def test_the_shapes_of_badges_are_whole_drawings(sample):
    shapes = re.findall(r'--shape: url\("data:image/svg\+xml,([^"]*)"\)', sample)
    assert len(shapes) == 6
    for shape in shapes:
        assert "<" not in shape and "&" not in shape and "#" not in shape
        assert len(ElementTree.fromstring(unquote(shape))) >= 2


def test_more_findings_than_a_page_holds_are_counted():
    run = sample_run.sample_run()
    gap = next(result for result in run.results if result.findings and result.findings[0].partition is not None)
    many = tuple(dataclasses.replace(gap.findings[0], partition=n) for n in range(400))
    page = html.render(dataclasses.replace(run, results=(dataclasses.replace(gap, findings=many),)))
    table = page[page.index('id="findings-table"') :]
    assert table[: table.index("</table>")].count("<tr") == 1 + 350
    assert "The first 350 of 400 are shown" in page


@pytest.mark.parametrize(
    ("answers", "headline", "worst"),
    [
        (("complete",), "p0 is complete", "complete"),
        (("not complete",), "p0 is not complete", "not complete"),
        (("could not be proved",), "p0 could not be proved", "could not be proved"),
        (("complete", "complete"), "All 2 pipelines are complete", "complete"),
        (("complete", "could not be proved"), "1 of 2 pipelines could not be proved", "could not be proved"),
        (
            ("not complete", "not complete", "could not be proved"),
            "2 of 3 pipelines are not complete, 1 could not be proved",
            "not complete",
        ),
        ((), "No pipeline was audited", "could not be proved"),
    ],
)
def test_the_headline(answers, headline, worst):
    pipelines = tuple(
        PipelineFacts(
            name=f"p{n}",
            answer=answer,
            because="",
            query_id=None,
            checkpoint="c",
            topics=(),
            isolation_level="read_committed",
        )
        for n, answer in enumerate(answers)
    )
    run = dataclasses.replace(sample_run.sample_run(), pipelines=pipelines)
    assert html.headline(run) == headline
    assert html.worst_answer(list(answers)) == worst


def test_every_code_has_a_meaning():
    assert set(MEANINGS) == set(Code)
    assert all(text.endswith(".") for text in MEANINGS.values())


def test_an_unknown_count_is_unknown_and_not_zero(sample):
    clicks = sample[sample.index("<h3>clicks</h3>") :]
    assert '<dt>Rows written</dt><dd class="num">unknown</dd>' in clicks[: clicks.index("</article>")]


# The pictures' geometry.

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@st.composite
def rows_of_cells(draw) -> list[CoverageCell]:
    cells, at, offset = [], T0, 0
    for _ in range(draw(st.integers(0, 30))):
        at += draw(st.sampled_from([0, 0, 0, 1, 50])) * MINUTE
        offset += draw(st.sampled_from([0, 0, 0, 5]))
        size = draw(st.integers(0, 9))
        state = draw(st.sampled_from(["covered", "covered", "covered", "gap", "lost"]))
        cells.append(
            CoverageCell(from_time=at, to_time=at + MINUTE, start_offset=offset, end_offset=offset + size, state=state)
        )
        at, offset = at + MINUTE, offset + size
    return cells


@given(rows_of_cells())
def test_folding_keeps_every_offset_in_its_state(cells):
    folded = picture.fold(cells)

    def offsets(cells):
        return {(o, c.state) for c in cells for o in range(c.start_offset, c.end_offset)}

    assert offsets(folded) == offsets(cells)
    assert len(folded) <= len(cells)
    assert all(a.to_time <= b.from_time for a, b in pairwise(folded))
    for a, b in pairwise(folded):
        assert not (a.state == b.state and a.end_offset == b.start_offset)


def test_a_partition_is_drawn_over_its_own_offsets():
    """However long each part took."""
    sink = sample_run.sample_run().pipelines[1].sinks[0]
    parts = (("covered", 100, 600, 1), ("gap", 600, 700, 500), ("covered", 700, 1100, 2))
    at, cells = T0, []
    for state, start, end, minutes in parts:
        to = at + minutes * MINUTE
        cells.append(CoverageCell(from_time=at, to_time=to, start_offset=start, end_offset=end, state=state))
        at = to
    partition = dataclasses.replace(sink.partitions[0], cells=tuple(cells))
    (row,) = picture.coverage(dataclasses.replace(sink, partitions=(partition,))).first
    assert {(b.state, b.x, b.width) for b in row.blocks} == {
        ("covered", 0, 50),
        ("gap", 50, 10),
        ("covered", 60, 40),
    }
    assert row.ends == (100, 1100) and row.worst == "gap"


def test_a_delta_table_that_is_read_has_no_offsets_of_kafka():
    """No broker is asked for its lag, its positions are no numbers of offsets, and nobody isolates its transactions."""
    run = sample_run.healthy_run()
    pipeline, sink = run.pipelines[0], run.pipelines[0].sinks[0]
    table = dataclasses.replace(
        sink.partitions[0],
        topic="delta:0b9e7c1a-55d2-4a43-9a5e-1f0d2c3b4a59",
        partition=0,
        lag=None,
        start_offset=500_000_000,
        end_offset=7_000_000_000,
        cells=(
            CoverageCell(
                from_time=T0, to_time=T0 + MINUTE, start_offset=500_000_000, end_offset=7_000_000_000, state="covered"
            ),
        ),
    )
    batches = tuple(dataclasses.replace(point, offsets=None) for point in points(0, 1, 2))
    sink = dataclasses.replace(sink, partitions=(table,), points=batches)
    facts = dataclasses.replace(pipeline, sinks=(sink,), isolation_level=None)
    page = html.render(dataclasses.replace(run, pipelines=(facts,)))
    assert "Delta table 0b9e7c1a: covered, the whole table at version 6," in page
    assert "the check source_table says which of its versions wait" in page
    legend = page[page.index('id="rows"') : page.index('id="lag"')]
    assert "rows written" in legend and "</svg>offsets read" not in legend and "None" not in legend
    for of_kafka in ("no broker answered", "<dt>Isolation level"):
        assert of_kafka not in page
    chart = picture.bars(sink)
    assert [bar.offsets for bar in chart.bars] == [None] * 3 and not chart.of_offsets


def test_five_hundred_partitions_are_a_square_each():
    run = sample_run.big_run(500, 10)
    chart = picture.coverage(run.pipelines[0].sinks[0])
    page = html.render(run)
    assert len(chart.every) == 500 and page.count('class="map"') == 1
    squares = page[page.index('class="map"') : page.index("</div>", page.index('class="map"'))]
    assert squares.count("<svg>") == 500 and squares.count("s-covered") == 500 - chart.problems
    assert "payments-63: offsets [" in squares


def test_a_stream_that_stands_still():
    """A pause is long beside the usual interval, and at least ten minutes."""
    steady = points(*range(0, 60, 2))
    assert bars_of(*steady).pauses == ()
    chart = bars_of(*points(*range(0, 60, 2), *range(180, 240, 2)))
    (pause,) = chart.pauses
    assert pause.text.startswith("no micro-batch for 2.0 hours, ")
    assert (round(pause.x), round(pause.width)) == (round(58 / 238 * 100), round(122 / 238 * 100))
    seldom = bars_of(*points(*range(0, 6000, 60)))
    assert seldom.pauses == (), "an hour is usual here"
    burst = bars_of(*points(*(day * 1440 + n * 0.01 for day in range(9) for n in range(10))))
    assert burst.in_order and [p.x for p in burst.pauses] == [None] * 5 and burst.more_pauses == 3


def test_a_stream_that_has_stopped_before_the_audit():
    sink = dataclasses.replace(SINK, points=points(*range(0, 60, 2)))
    assert picture.bars(sink, T0 + 60 * MINUTE).pauses == ()
    chart = picture.bars(sink, T0 + 10 * 60 * MINUTE)
    (pause,) = chart.pauses
    assert round(pause.x + pause.width) == 100 and chart.bars[-1].x < 11
    run = sample_run.healthy_run()
    late = html.render(dataclasses.replace(run, period_to=run.period_to + 600 * MINUTE))
    assert 'class="pause"' in late and "No micro-batch for " in late


def test_a_small_loss_among_many_offsets_can_still_be_seen():
    sink = sample_run.sample_run().pipelines[1].sinks[0]
    cells = tuple(
        CoverageCell(from_time=T0, to_time=T0 + MINUTE, start_offset=start, end_offset=end, state=state)
        for start, end, state in ((0, 500_000, "covered"), (500_000, 500_001, "lost"))
    )
    partition = dataclasses.replace(sink.partitions[0], cells=cells)
    (row,) = picture.coverage(dataclasses.replace(sink, partitions=(partition,))).first
    assert row.worst == "lost"
    lost = row.blocks[-1]
    assert (lost.state, lost.width) == ("lost", 0.5)
    assert lost.x + lost.width <= 100


def points(*minutes: float, epoch: int = 0) -> tuple[BatchPoint, ...]:
    return tuple(
        BatchPoint(
            at=T0 + m * MINUTE, epoch=epoch, first_batch_id=n, last_batch_id=n, batches=1, offsets=10, rows_written=n
        )
        for n, m in enumerate(minutes)
    )


SINK = sample_run.sample_run().pipelines[1].sinks[0]


def bars_of(*batches: BatchPoint) -> picture.Bars:
    return picture.bars(dataclasses.replace(SINK, points=batches))


def test_batches_in_bursts_stand_in_order():
    assert not bars_of(*points(*range(20))).in_order
    burst = bars_of(*points(*(day * 1440 + n * 0.01 for day in range(5) for n in range(10))))
    assert burst.in_order
    assert len({bar.x for bar in burst.bars}) == 50


def test_many_points_are_folded_without_losing_a_row():
    many = bars_of(*points(*range(5000)))
    assert len(many.bars) <= picture.MAX_BARS + 1
    folded = picture.fold_points(points(*range(5000)))
    assert sum(p.rows_written for p in folded) == sum(range(5000))
    assert sum(p.batches for p in folded) == 5000
    assert (folded[0].first_batch_id, folded[-1].last_batch_id) == (0, 4999)


def test_an_unknown_count_makes_the_folded_one_unknown():
    batches = [*points(*range(600))]
    batches[3] = dataclasses.replace(batches[3], rows_written=None)
    folded = picture.fold_points(batches)
    assert [p.rows_written is None for p in folded].count(True) == 1
    assert folded[1].rows_written is None


def test_a_new_epoch_is_marked_and_never_folded_into_the_old():
    chart = bars_of(*points(*range(10)), *points(*range(10, 20), epoch=1))
    assert [epoch for _, epoch in chart.epochs] == [1]
    assert [bar.epoch for bar in chart.bars] == [0] * 10 + [1] * 10


bars_of(*points(0))  # the first call imports; Hypothesis times each example


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=40))
def test_bars_and_ticks_stay_inside_the_plot(minutes):
    chart = bars_of(*(dataclasses.replace(p, offsets=10**12) for p in points(*sorted(minutes))))
    assert all(bar.x >= 0 and bar.x + bar.width <= 100.01 for bar in chart.bars)
    assert all(0 <= bar.offsets <= 100 and 0 <= bar.rows <= 100 for bar in chart.bars)
    assert all(0 <= tick.x <= 100 for tick in chart.ticks)
    assert len(chart.ticks) <= 8


def test_lag_has_the_unknown_first_then_the_largest():
    sink = sample_run.sample_run().pipelines[1].sinks[0]
    partitions = tuple(dataclasses.replace(sink.partitions[n], lag=lag) for n, lag in enumerate((0, None, 5, 40_000)))
    lags = picture.lags(dataclasses.replace(sink, partitions=partitions))
    assert [(x.name, x.lag) for x in lags] == [
        ("payments-1", None),
        ("payments-3", 40_000),
        ("payments-2", 5),
        ("payments-0", 0),
    ]
    assert lags[2].share > 0  # a small lag beside a large one can still be seen


# Incidents.


def test_each_incident_says_what_who_since_when_and_what_to_do(sample):
    part = sample[sample.index('<section id="incidents">') : sample.index('<section id="findings">')]
    text = re.sub(r"\s+", " ", " ".join(Page(part).text))
    articles = [tag for tag, _ in Page(part).tags if tag == "article"]
    assert len(articles) == 3
    for expected in (
        "4,104 offsets lost for good",
        "1,204 rows removed since",
        "622 offsets missing",
        "accepted by Ada Lovelace on 2026-03-12: test data, not needed",
        "nightly clean-up",
        "ada@example.org",
        "(3 days)",
        "recon repair plan --pipeline payments --sink payments",
        'recon accept 3f9c02aa --reason "…" --by "…"',
    ):
        assert expected in text, expected
    assert text.index("lost for good") < text.index("removed since") < text.index("622 offsets missing")


def test_a_commit_of_which_the_log_names_nobody_says_so():
    run = sample_run.sample_run()
    payments = run.pipelines[1]
    nobody = tuple(
        dataclasses.replace(i, changes=tuple(dataclasses.replace(c, made_by={}) for c in i.changes))
        for i in payments.incidents
    )
    page = html.render(dataclasses.replace(run, pipelines=(dataclasses.replace(payments, incidents=nobody),)))
    assert "the log does not say who made it" in page


def test_more_incidents_than_a_page_holds_are_counted():
    run = sample_run.sample_run()
    pipelines = tuple(dataclasses.replace(facts, incidents=facts.incidents * 67) for facts in run.pipelines)
    page = html.render(dataclasses.replace(run, pipelines=pipelines))
    assert page.count('<article class="incident') == 200
    assert f"The first 200 of {67 * 3} are shown" in page


# How many, and the sum of what became of every offset.


def test_the_first_screen_says_how_many(sample):
    head = " ".join(Page(sample[: sample.index("</header>")]).text)
    assert "2,008,850 read · 4,104 offsets lost for good · 1,204 removed since · 1 incident accepted" in head


def test_the_sum_says_whether_it_adds_up(sample):
    def card(name: str) -> str:
        part = sample[sample.index(f"<h3>{name}</h3>") :]
        return re.sub(r"\s+", " ", " ".join(Page(part[: part.index("</article>")]).text))

    assert "It adds up." in card("orders")
    assert "= rows in the sink 1,072,914 + filtered by the transform 1,204 + in quarantine 38" in card("orders")
    assert "It does not add up: 580 offsets in no term." in card("payments")
    clicks = card("clicks")
    assert "Whether it adds up is not known: there is no number for “rows in the sink”, “transaction markers”" in clicks
    assert "= rows in the sink unknown" in clicks


@pytest.mark.parametrize(
    ("terms", "tone", "says"),
    [
        ({"offsets": 10, "rows": 10}, "pass", "It adds up"),
        ({"offsets": 10, "rows": 9}, "fail", "It does not add up: 1 offset in no term"),
        ({"offsets": 10, "rows": 12}, "fail", "It does not add up: the terms count 2 offsets too many"),
        ({"offsets": 10, "rows": None, "unknown": "why"}, "unproved", "Whether it adds up is not known: why"),
    ],
)
def test_a_sum_is_never_filled_up(terms, tone, says):
    assert sums.adds_up(sample_run.account(**terms)) == (tone, says)


def test_what_somebody_repaired_or_accepted_is_not_lost_any_more():
    payments = sample_run.sample_run().pipelines[1]
    closed = tuple(dataclasses.replace(i, state="repaired") for i in payments.incidents)
    assert "lost" not in sums.of_pipeline(dataclasses.replace(payments, incidents=closed))


def test_the_pipeline_that_lost_most_comes_first():
    run = sample_run.large_run(8, 8, failing=0.3)
    worse = tuple(
        dataclasses.replace(i, counts=tuple(dataclasses.replace(c, offsets=99_999) for c in i.counts))
        for i in run.pipelines[3].incidents
    )
    pipelines = list(run.pipelines)
    assert pipelines[3].answer == "not complete"
    pipelines[3] = dataclasses.replace(pipelines[3], incidents=worse)
    page = html.render(dataclasses.replace(run, pipelines=tuple(pipelines)))
    assert page.index("<h3>pipeline_0003</h3>") < page.index("<h3>pipeline_0000</h3>")


# Scale.


def test_many_complete_pipelines_are_rows_of_a_table():
    run = sample_run.large_run(120, 1200)
    page = html.render(run)
    assert len(page.encode()) < 700_000
    refuted = [p.name for p in run.pipelines if p.answer != "complete"]
    cards = [a for t, a in Page(page).tags if t == "article" and (a.get("class") or "").startswith("card")]
    assert len(cards) == len(refuted) == 2
    table = page[page.index('id="pipelines-table"') :]
    table = table[: table.index("</table>")]
    assert all(p.name in table for p in run.pipelines)
    assert all(p.sinks[0].chain_head in page for p in run.pipelines), "no chain head is left out"


def test_fifty_thousand_results_stay_small_and_the_worst_are_shown():
    run = sample_run.large_run(120, 50_000)
    page = html.render(run)
    assert len(page.encode()) < 3_000_000
    assert "The 2,000 worst of 49,920 checks" in page
    checks = page[page.index('<section id="checks">') : page.index('<section id="run"')]
    statuses = re.findall(r'(?:<summary><span class="badge |<p class=")(pass|fail|warn|error|skipped)"', checks)
    assert len(statuses) == html.MAX_CHECKS
    failed = sum(r.status == "fail" for r in run.results)
    assert statuses.count("fail") == min(failed, html.MAX_CHECKS)
