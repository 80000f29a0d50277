"""What a finding is about, and a state that an older version stored, in which the message said it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from recon.model import Code, Finding
from recon.model.proof import OpenFinding

AT = datetime(2026, 11, 1, tzinfo=UTC)
RANGE = Finding(
    code=Code.GAP, pipeline="p", sink="s", topic="t", partition=0, start_offset=3, end_offset=9, message="gone"
)
COMMIT = Finding(code=Code.MUTATED, pipeline="p", sink="s", message="version 7 is DELETE", about="version 7")
FORMER = replace(COMMIT, about=None)


def opened(finding: Finding) -> OpenFinding:
    return OpenFinding(finding=finding, check="delta_history", first_seen=AT, last_seen=AT)


def test_the_message_tells_nothing() -> None:
    for finding in (RANGE, COMMIT):
        other = replace(finding, message="in other words")
        assert other.subject == finding.subject
        assert opened(other).id == opened(finding).id
        assert opened(finding).includes(other)


def test_what_else_it_is_about_tells() -> None:
    other = replace(COMMIT, about="version 8")
    assert other.subject != COMMIT.subject and not opened(COMMIT).includes(other)
    assert opened(other).id != opened(COMMIT).id


def test_two_codes_of_one_loss_are_one_finding_and_two_statements() -> None:
    other = replace(RANGE, code=Code.LOSS_RETENTION)
    assert opened(RANGE).includes(other) and opened(RANGE).id == opened(other).id
    assert RANGE.subject != other.subject


def test_a_part_of_the_offsets_is_included_and_not_the_whole() -> None:
    part = replace(RANGE, start_offset=4, end_offset=6)
    assert opened(RANGE).includes(part) and not opened(part).includes(RANGE)
    assert RANGE.subject.meets(part.subject) and part.subject.meets(RANGE.subject)


def test_a_finding_that_an_older_version_stored_is_the_same_and_keeps_its_id() -> None:
    former = opened(FORMER)
    assert former.includes(COMMIT) and former.keeps_id(COMMIT) == former.id != opened(COMMIT).id
    assert not former.includes(replace(COMMIT, message="version 8 is DELETE", about="version 8"))


def test_the_age_is_no_part_of_what_an_older_version_said() -> None:
    former = opened(FORMER)
    told = replace(FORMER, message=FORMER.message + former.since)
    assert told.as_said == FORMER and told.subject == FORMER.subject
