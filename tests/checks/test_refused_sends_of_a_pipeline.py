"""Refused sends that the log lacks: a doubt, except where the output of a pipeline accounts for them (L5, L6)."""

from __future__ import annotations

import pytest
from harrow.harness.checks.doubts import Doubts, partition_doubts
from harrow.harness.checks.promise_findings import PromiseFindings
from harrow.harness.checks.rows import LackingSends, PartitionResult, Refused
from harrow.harness.run_folder import RunTimes

NOT_LEADER = 6


def judged(topic: str, promised: PromiseFindings) -> Doubts:
    lacking = [LackingSends(client=0, records=20, since_ns=5, errors=[NOT_LEADER])]
    refused = Refused(batches=2, clients=[0], errors=[NOT_LEADER], lacking=lacking)
    result = PartitionResult(topic=topic, partition=0, refused=refused)
    return partition_doubts([result], frozenset(), ["job-1"], RunTimes(), promised)


@pytest.mark.parametrize(("topic", "is_doubt"), [("bills", False), ("orders", True)])
def test_refused_sends_to_the_sink_are_a_note_and_those_to_the_source_a_doubt(topic: str, is_doubt: bool) -> None:
    found = judged(topic, PromiseFindings(accounted_topics=("bills",)))
    assert [bool(found.reasons), bool(found.notes)] == [is_doubt, not is_doubt]
    (line,) = found.reasons or found.notes
    refused = "at least 20 records" if is_doubt else "2 batches"
    assert line.startswith(f"brokers refused {refused} of job-1 with NOT_LEADER")


def test_refused_sends_are_a_note_where_the_caller_gave_what_was_sent() -> None:
    assert not judged("orders", PromiseFindings(accounts_for_sends=True)).reasons


def test_a_partition_that_was_not_judged_has_a_doubt_and_no_topic() -> None:
    result = PartitionResult(unknown=["it was not judged"])
    found = partition_doubts([result], frozenset(), [], RunTimes(), PromiseFindings())
    assert found.reasons == ["it was not judged"]
