"""What recon says of a world, against what happened in it: "complete" is never said of lost or doubled records."""

from __future__ import annotations

import os

import pytest

from tests.truth.histories import HARMLESS, history
from tests.truth.stories import STORIES

# Cases that the judge is still fooled by, or that it names otherwise: what is missing. A mend takes its line away.
UNMET = {
    "46-lost_record_of_a_restored_entry_compacted_since": "compaction explains a hole that no count denies",
    "48-table_made_anew_and_a_bounded_audit_was_the_first_to_see_it": "its table id is remembered, its finding is not",
    "59-loss_and_duplicate_in_a_commit_without_entry": "the number of its rows is all that is known of them",
    "73-clock_ahead_and_a_full_audit_with_an_end": "an earlier audit's head lies behind the end, by the driver's clock",
    "45-declared_read_committed_and_read_uncommitted": "the stream's isolation level is believed",
    "59-loss_and_duplicate_in_a_transform_that_filters": "which offsets a filter should drop is known to it alone",
    "59-loss_and_duplicate_in_the_sink": "rows that a sink was given are known to it by their number alone",
    "62-topic_id_unknown_and_the_topic_made_anew": "a topic without a known id is believed",
    "63-unclean_election_refilled_past_the_position": "leader epochs are not recorded",
    "74-aborted_records_at_the_start_of_a_range_audited_after_retention": "what the hook counted is not looked at",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=UNMET[name]) if name in UNMET else ())
        for name in STORIES
    ],
)
def test_a_case_of_the_catalogue(name: str) -> None:
    case = STORIES[name]
    world, judgement = case.story()
    truth = world.truth_since(judgement.first_batch_id)
    assert truth.whole or judgement.answer != "complete", (judgement.because, truth)
    assert case.codes <= judgement.codes, judgement.codes
    if truth.whole and not case.codes & {"TAMPERED", "REPAIRED", "STALLED", "MUTATED"}:
        assert judgement.answer == "complete", judgement.because


# `RECON_TRUTH_HISTORIES=100000 make test PYTEST_ARGS=tests/truth` looks at more; each takes about 11 ms.
HISTORIES = int(os.environ.get("RECON_TRUTH_HISTORIES", "2000"))


@pytest.mark.parametrize("first", range(0, HISTORIES, 100))
def test_random_histories(first: int) -> None:
    """No history is called complete that lost or doubled a record, and none is refuted in which nothing happened."""
    for seed in range(first, first + 100):
        acts, world, judgement = history(seed)
        truth = world.truth_since(judgement.first_batch_id)
        story = f"seed {seed}: {', '.join(acts)}; {judgement.answer}: {judgement.because}; {truth}"
        assert truth.whole or judgement.answer != "complete", story
        assert set(acts) - HARMLESS or judgement.answer == "complete", story
