"""How anomaly checks compare a figure with earlier ones, without Spark."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recon.base.errors import ConfigError
from recon.checks.data.anomaly import MetricAnomaly, VolumeAnomaly, compare, numbers
from recon.checks.data.figures import merged_moments, stddev_of
from recon.checks.registry import build
from recon.project import CheckSpec
from tests.support.messages import raises, same_message

STEADY = [100, 102, 98, 101, 99, 103, 97]


def volume(rows, history, **arguments):
    return VolumeAnomaly(**arguments).judge({"rows": rows, "history": history})


def metric(value, history, **arguments):
    check = MetricAnomaly(metric="max", column_name="c", **arguments)
    return check.judge({"rows": 5, "value": value, "history": history})


def test_the_score_is_the_modified_z_score():
    usual = compare(17, [10, 12, 11, 9, 10], tolerance=0.01)
    assert (usual.median, usual.spread, usual.runs) == (10, 1, 5)
    assert usual.score == pytest.approx(0.6745 * 7)


def test_without_a_median_deviation_the_mean_deviation_is_taken():
    usual = compare(20, [10, 10, 10, 10, 15], tolerance=0.01)
    assert usual.score == pytest.approx(10 / (1.253314 * 1))
    assert compare(10, [10, 10, 10, 10, 15], tolerance=0.01).score == 0


def test_where_all_were_equal_a_share_of_them_is_tolerated():
    assert compare(101, [100] * 7, tolerance=0.01).score == 0
    assert compare(102, [100] * 7, tolerance=0.01).score == math.inf
    assert compare(98, [100] * 7, tolerance=0.01).score == -math.inf
    assert compare(0, [0] * 7, tolerance=0.01).score == 0
    assert compare(1e-9, [0] * 7, tolerance=0.01).score == math.inf


def test_too_little_history_is_never_a_pass_and_the_value_is_kept():
    for known in range(7):
        verdict = metric(100, STEADY[:known])
        assert verdict.skipped == f"not enough history: {known} of 7 runs"
        assert verdict.evidence["value"] == 100
    assert metric(100, STEADY).skipped is None
    assert metric(100, STEADY[:2], min_runs=2).skipped is None


def test_an_unusual_figure_fails_and_a_usual_one_does_not():
    assert metric(104, STEADY).failures == 0
    far = metric(160, STEADY)
    assert far.failures == 1
    assert same_message(far.message)
    assert far.evidence["value"] == 160
    assert far.evidence["median"] == 100
    assert metric(160, STEADY, deviations=30).failures == 0
    same = metric(3, [1] * 7)
    assert same_message(same.message)
    assert same.evidence["score"] is None  # infinite, which JSON does not know


@pytest.mark.parametrize(("value", "direction", "failures"), [(160, "up", 1), (160, "down", 0), (40, "down", 1)])
def test_direction(value, direction, failures):
    assert metric(value, STEADY, direction=direction).failures == failures


def test_only_the_newest_runs_count():
    assert metric(100, STEADY + [5000] * 100, window=7).failures == 0
    assert metric(100, [*STEADY, *[5000] * 30], window=30).failures == 0  # the median is 5000, and so is the spread
    assert metric(100, [5000.0] * 30, window=30).failures == 1


def test_what_is_no_number_is_no_history():
    assert numbers([1, None, "x", math.nan, math.inf, True, 2.5, {"a": 1}]) == [1, 2.5]
    assert metric(100, [None] * 20 + STEADY[:6]).skipped == "not enough history: 6 of 7 runs"


def test_a_missing_figure_fails_once_it_was_there():
    assert metric(None, STEADY).failures == 1
    nan = metric(math.nan, STEADY)
    assert (nan.failures, nan.message) == (1, "max of c is NaN, and was 100 in the median of 7 earlier runs")
    assert nan.evidence["value"] is None
    endless = metric(math.inf, STEADY)
    assert (endless.failures, endless.evidence["value"]) == (1, None)
    assert metric(None, []).skipped == "not enough history: 0 of 7 runs"


def test_growth_is_the_difference_of_totals():
    totals = [800, 700, 600, 500, 400, 300, 200, 100]  # newest first: 7 runs that grew by 100
    assert volume(900, totals).failures == 0
    stopped = volume(800, totals)
    assert (stopped.failures, stopped.evidence["growth"], stopped.evidence["value"]) == (1, 0, 800)
    assert same_message(stopped.message)
    assert volume(900, totals[:7]).skipped == "not enough history: 6 of 7 runs"
    assert volume(0, []).skipped == "not enough history: 0 of 7 runs"
    assert volume(0, totals).failures == 1  # emptied


@pytest.mark.parametrize(
    "arguments",
    [
        {"min_runs": 0},
        {"min_runs": 9, "window": 8},
        {"deviations": 0},
        {"tolerance": -1},
        {"timestamp_column": "at"},
        {"timestamp_column": "at", "period": {"count": 0, "period": "day"}},
        {"direction": "sideways"},
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(arguments):
    with raises(ConfigError):
        build(CheckSpec(test="volume_anomaly", arguments=arguments), "here")


def test_a_metric_of_a_column_needs_one():
    with raises(ConfigError):
        build(CheckSpec(test="metric_anomaly", arguments={"metric": "mean"}), "here")
    assert build(CheckSpec(test="metric_anomaly", arguments={"metric": "row_count"}), "here").label() == "row_count"


VALUES = st.lists(st.integers(-(10**6), 10**6).map(float), min_size=1, max_size=30)


def _moments(values):
    mean = math.fsum(values) / len(values)
    return len(values), mean, math.fsum((v - mean) ** 2 for v in values)


@given(VALUES, VALUES)
def test_moments_merge(first, second):
    merged, whole = merged_moments(_moments(first), _moments(second)), _moments(first + second)
    assert merged == pytest.approx(whole, rel=1e-9, abs=1e-6)
    assert merged_moments(None, whole) == merged_moments(whole, None) == merged_moments((0, None, None), whole) == whole


def test_one_value_has_no_deviation():
    assert stddev_of((1, 5.0, 0.0)) is None
    assert stddev_of(None) is None
    assert stddev_of((2, 2.0, 2.0)) == pytest.approx(math.sqrt(2))


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=40), st.integers(-(10**9), 10**9))
def test_the_score_has_the_sign_of_the_difference(earlier, value):
    usual = compare(value, earlier, tolerance=0.0)
    assert (usual.score > 0) == (value > usual.median)
    assert (usual.score < 0) == (value < usual.median)


def row_count(rows, history, **arguments):
    check = MetricAnomaly(metric="row_count", **arguments).measured_as()
    assert check.judges_empty
    return check.judge({"rows": rows, "history": history})


NOISY = [10, 4000, 90, 900, 2000, 300, 1, 700, 50]


def test_an_emptied_table_fails_however_much_its_earlier_numbers_differ():
    assert row_count(1, NOISY).failures == 0
    for runs_since in range(21):
        assert row_count(0, [0] * runs_since + NOISY).failures == 1
    assert row_count(0, [0] * 30 + NOISY).failures == 0  # nothing else was seen for a whole window
    assert row_count(0, [5, 0, *NOISY]).failures == 0  # empty now and then
    assert row_count(0, NOISY, direction="up").failures == 0
    assert row_count(0, NOISY[:6]).skipped == "not enough history: 6 of 7 runs"
    assert volume(0, NOISY).failures == 1
