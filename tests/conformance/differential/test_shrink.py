"""A differing case becomes as small as it can be; the pair of systems is a fake, so no Kafka is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from kafka_reference import needs_jar

from .cases import Case, Step, look_up
from .known import Known
from .link import Outcome
from .normal import Difference, Normaliser, walk
from .runner import CONFIRMATIONS, Run
from .shrink import smallest, without

pytestmark = needs_jar

WANTED = Difference(step=0, api="OffsetCommit", version=8, role="target", path="errorCode", kafka=0, harrow=25)


@dataclass
class FakePair:
    """Differs where `differs` says so; counts the worlds."""

    differs: Callable[[Case], bool]
    compared: list[Case] = field(default_factory=list[Case])
    worlds: int = 0

    def compare(self, case: Case) -> list[Difference]:
        self.compared.append(case)
        return [WANTED] if self.differs(case) else []

    def renew(self) -> None:
        self.worlds += 1


def commit(*partitions: dict[str, Any], group: str = "g%") -> Step:
    body: dict[str, Any] = {
        "groupId": group,
        "memberId": "m",
        "generationIdOrMemberEpoch": 4,
        "topics": [{"name": "one~", "partitions": list(partitions)}, {"name": "two~", "partitions": []}],
    }
    return Step(api="OffsetCommit", version=8, role="target", body=body)


def heartbeat(group: str) -> Step:
    return Step(
        api="Heartbeat", version=4, role="target", body={"groupId": group, "memberId": {"$ref": [0, "memberId"]}}
    )


def join() -> Step:
    return Step(api="JoinGroup", version=9, body={"groupId": "g%"})


def metadata(step: Step) -> Any:
    return [row.get("committedMetadata") for each in step.body["topics"] for row in each["partitions"]]


def test_a_case_is_reduced_to_the_request_and_the_rows_that_differ() -> None:
    pair = FakePair(lambda case: any(s.api == "OffsetCommit" and None in metadata(s) for s in case.steps))
    rows = ({"partitionIndex": 0, "committedMetadata": "m"}, {"partitionIndex": 5, "committedMetadata": None})
    case = Case(steps=(join(), heartbeat("a"), commit(*rows), heartbeat("b")))
    (step,) = smallest(pair, case, WANTED, attempts=200).steps
    assert step.api == "OffsetCommit"
    assert step.body["topics"] == [{"name": "", "partitions": [{"partitionIndex": 0, "committedMetadata": None}]}]
    assert (step.body["groupId"], step.body["memberId"], step.body["generationIdOrMemberEpoch"]) == ("", "", -1)


def test_a_case_that_cannot_be_smaller_stays() -> None:
    case = Case(steps=(join(), heartbeat("a")))
    pair = FakePair(lambda candidate: candidate == case)
    assert smallest(pair, case, WANTED) == case


def test_the_number_of_attempts_is_bounded() -> None:
    pair = FakePair(lambda _: False)
    smallest(pair, Case(steps=(commit({"partitionIndex": 3}),) * 9), WANTED, attempts=7)
    assert len(pair.compared) == 8, "seven attempts, and the last confirmation"


def test_a_small_case_that_does_not_differ_in_a_new_world_is_given_up() -> None:
    pair = FakePair(lambda _: False)
    pair.differs = lambda _: pair.worlds == 0
    case = Case(steps=(join(), heartbeat("a"), heartbeat("b")))
    assert smallest(pair, case, WANTED) == case


def test_steps_that_refer_to_a_removed_step_go_with_it_and_others_get_new_numbers() -> None:
    def later(number: int) -> Step:
        return Step(api="Heartbeat", version=4, body={"memberId": {"$ref": [number, "memberId"]}})

    case = Case(steps=(join(), join(), later(1), later(0)))
    assert look_up(without(case, {0, 3}).steps[1].body, ["memberId", "$ref"]) == [0, "memberId"]


# ------------------------------------------------------------------ runner


def test_a_difference_that_a_row_explains_is_no_finding_and_another_is_found_once() -> None:
    row = Known(request="OffsetCommit", versions="0-9", field="errorCode", kafka="0", harrow="25", reason="r")
    case = Case(steps=(commit({"partitionIndex": 0}),))
    said: list[str] = []
    for known, findings in (([row], 0), ([], 1)):
        run = Run(pairs=[FakePair(lambda _: True)], known=known, versions={}, controller=lambda: 1)
        run.one(run.pairs[0], case, 0, said.append)
        run.one(run.pairs[0], case, 1, said.append)
        assert len(run.findings) == findings
        assert [each.count for each in run.findings.values()] == [2] * findings
    assert len(said) == 1
    assert "OffsetCommit v8 (target) errorCode: Kafka 0, Harrow 25" in said[0]


def test_an_explained_error_explains_the_rest_of_its_response_and_what_follows() -> None:
    row = Known(request="OffsetCommit", versions="0+", field="errorCode", kafka="0", harrow="25", reason="r")
    other = replace(WANTED, path="offset")
    before, behind = replace(other, step=-1), replace(other, step=1)
    run = Run(pairs=[FakePair(lambda _: False)], known=[row], versions={}, controller=lambda: 1)
    assert run.findings_of([before, WANTED, other, behind]) == [before]
    assert run.findings_of([other, behind]) == [other, behind]


@pytest.mark.parametrize("worlds", range(1, CONFIRMATIONS + 1))
def test_a_difference_that_does_not_come_again_in_each_new_world_is_no_finding(worlds: int) -> None:
    pair = FakePair(lambda _: False)
    pair.differs = lambda _: pair.worlds < worlds
    run = Run(pairs=[pair], known=[], versions={}, controller=lambda: 1)
    run.one(pair, Case(steps=(commit(),)), 0, lambda _: None)
    assert (run.findings, run.unconfirmed) == ({}, 1)


def test_a_case_of_a_seed_is_the_same_in_each_run() -> None:
    from . import group_requests, topic_requests

    assert group_requests and topic_requests
    versions = {
        "OffsetCommit": (2, 9),
        "InitProducerId": (0, 5),
        "Metadata": (0, 13),
        "OffsetFetch": (1, 9),
        "JoinGroup": (0, 9),
        "SyncGroup": (0, 5),
    }
    run = Run(pairs=[FakePair(lambda _: False)], known=[], versions=versions, controller=lambda: 1)
    cases = [run.case(4, number, "OffsetCommit") for number in range(30)]
    assert [run.case(4, number, "OffsetCommit") for number in range(30)] == cases
    assert len({str(case) for case in cases}) > 20
    assert all(Case.from_json(case.to_json()).steps == case.steps for case in cases)


# ------------------------------------------------------------------ comparison


def normal(**body: Any) -> Any:
    return Normaliser({1: 9092}, {"one-w": "ab" * 16}, "-w", "-w7").outcome(
        "Metadata", Outcome(kind="response", body=body)
    )


def test_ids_times_and_ports_are_replaced_and_texts_left_out() -> None:
    import time

    found = normal(
        producerId=12,
        port=9092,
        throttleTimeMs=3,
        errorMessage="no",
        transactionStartTimeMs=int(time.time() * 1000),
        topicId="ab" * 16,
        timestamp=1_700_000_000_000,
        name="one-w",
        groupId="g-w7",
    )
    assert found == {
        "outcome": "response",
        "producerId": "producerId#1",
        "port": 1,
        "transactionStartTimeMs": "now",
        "topicId": "id of one~",
        "timestamp": 1_700_000_000_000,
        "name": "one~",
        "groupId": "g%",
    }


def test_rows_are_paired_by_their_names_and_a_missing_row_is_a_difference() -> None:
    kafka = {"topics": [{"name": "a", "errorCode": 0}, {"name": "b", "errorCode": 3}]}
    harrow = {"topics": [{"name": "b", "errorCode": 3}, {"name": "c", "errorCode": 0}]}
    assert list(walk(kafka, harrow)) == [
        ("topics", {"name": "a", "errorCode": 0}, "(absent)"),
        ("topics", "(absent)", {"name": "c", "errorCode": 0}),
    ]
    other = {"topics": [{"name": "b", "errorCode": 6}, {"name": "a", "errorCode": 0}]}
    assert list(walk(kafka, other)) == [("topics.errorCode", 3, 6)], "the order of rows does not count"
