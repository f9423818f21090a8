"""Cases run beside each other, and one that changes what all cases see runs alone. Needs no Kafka."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from kafka_reference import needs_jar

from .cases import Case, Step
from .known import Known
from .lanes import Gate, must_be_alone, names_the_empty_id
from .link import Outcome
from .normal import ABSENT, Difference, Normaliser
from .runner import Run
from .world import is_changed_by

WAIT_S = 20.0


def case(api: str, body: dict[str, Any], role: str = "target") -> Case:
    return Case(steps=(Step(api=api, version=1, body=body, role=role),))


def test_many_share_the_gate_and_one_is_alone() -> None:
    gate, inside, both = Gate(), threading.Event(), threading.Barrier(2, timeout=WAIT_S)
    order: list[str] = []

    def shared() -> None:
        with gate.shared():
            both.wait()  # both holders are inside at the same time
            inside.set()
            both.wait()
            order.append("shared")

    def alone() -> None:
        assert inside.wait(WAIT_S)
        with gate.alone():
            order.append("alone")

    with ThreadPoolExecutor(3) as threads:
        for each in [threads.submit(work) for work in (alone, shared, shared)]:
            each.result(WAIT_S)
    assert order == ["shared", "shared", "alone"]


def test_who_waits_to_be_alone_goes_before_new_holders() -> None:
    gate, order = Gate(), list[str]()
    waits = threading.Event()

    def alone() -> None:
        waits.set()
        with gate.alone():
            order.append("alone")

    def shared() -> None:
        with gate.shared():
            order.append("shared")

    with ThreadPoolExecutor(2) as threads:
        with gate.shared():
            first = threads.submit(alone)
            assert waits.wait(WAIT_S)
            while not gate.is_wanted:
                pass
            second = threads.submit(shared)
        first.result(WAIT_S)
        second.result(WAIT_S)
    assert order == ["alone", "shared"]


@pytest.mark.parametrize(
    ("api", "body", "alone"),
    [
        ("IncrementalAlterConfigs", {"resources": [{"resourceType": 2}]}, False),
        ("IncrementalAlterConfigs", {"resources": [{"resourceType": 32}]}, False),
        ("AlterConfigs", {"resources": [{"resourceType": 2}, {"resourceType": 4}]}, True),
        ("AlterClientQuotas", {"entries": [{"entity": [{"entityName": "u%"}]}]}, False),
        ("AlterClientQuotas", {"entries": [{"entity": [{"entityName": None}]}]}, True),
        ("AlterClientQuotas", {"entries": None}, False),
        ("ElectLeaders", {"topicPartitions": None}, True),
        ("ElectLeaders", {"topicPartitions": []}, False),
        ("Metadata", {"topics": None}, False),
    ],
)
def test_a_case_that_changes_the_whole_cluster_is_alone(api: str, body: dict[str, Any], alone: bool) -> None:
    assert must_be_alone(case(api, body)) == alone
    assert not must_be_alone(case(api, body, role="cleanup"))


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"groupId": "g%", "memberId": ""}, False),
        ({"groupId": ""}, True),
        ({"groups": [{"groupId": "g%"}, {"groupId": ""}]}, True),
        ({"groupsNames": ["g%", ""]}, True),
        ({"keyType": 1, "coordinatorKeys": [""]}, True),
        ({"transactionalId": ""}, True),
        ({"transactionalId": None}, False),
        ({"topics": [{"name": ""}]}, False),
    ],
)
def test_cases_that_name_the_empty_group_follow_each_other(body: dict[str, Any], named: bool) -> None:
    naming = case("OffsetCommit", body)
    assert names_the_empty_id(naming) == named
    gate, met = Gate(), threading.Barrier(2, timeout=0.2 if named else WAIT_S)

    def enter() -> bool:
        with gate.of(naming):
            try:
                met.wait()
            except threading.BrokenBarrierError:
                return False
            return True

    with ThreadPoolExecutor(2) as threads:
        assert [each.result(WAIT_S) for each in [threads.submit(enter) for _ in range(2)]] == [not named] * 2


def test_a_case_that_changes_the_topics_of_its_world_is_followed_by_a_new_one() -> None:
    assert not is_changed_by(case("CreatePartitions", {"topics": [{"name": "new%", "count": 2}]}))
    assert not is_changed_by(case("CreatePartitions", {"topics": [{"name": "one~"}]}, role="setup"))
    assert not is_changed_by(case("Metadata", {"topics": [{"name": "one~"}]}))
    by_id = {"topics": [{"name": None, "topicId": {"$topicId": "one~"}}]}
    changes, renewed = case("DeleteTopics", by_id), list[Case]()

    class Lane:
        def compare(self, case: Case) -> list[Difference]:
            del case
            return []

        def renew(self) -> None:
            renewed.append(changes)

    run = Run(pairs=[], known=[], versions={}, controller=lambda: 1)
    run.one(Lane(), changes, 0, lambda _: None)
    run.one(Lane(), case("Metadata", {"topics": []}), 1, lambda _: None)
    assert len(renewed) == 1


@needs_jar
def test_every_case_of_a_seed_runs_once_in_some_lane() -> None:
    seen: list[Case] = []
    lock = threading.Lock()

    class Lane:
        def compare(self, case: Case) -> list[Difference]:
            with lock:
                seen.append(case)
            return []

        def renew(self) -> None:
            raise AssertionError("nothing differs")

    from . import requests

    assert requests
    run = Run(
        pairs=[Lane(), Lane(), Lane()],
        known=[],
        versions={"ApiVersions": (0, 4), "JoinGroup": (5, 9)},
        controller=lambda: 1,
    )
    run.go(5, 40, "ApiVersions", lambda _: None)
    wanted = [run.case(5, number, "ApiVersions") for number in range(40)]
    assert sorted(map(str, seen)) == sorted(map(str, wanted))
    assert run.cases == 40


@needs_jar
def test_a_lane_that_fails_ends_the_others() -> None:
    class Lane:
        def compare(self, case: Case) -> list[Difference]:
            raise ConnectionError("no response")

        def renew(self) -> None: ...

    said: list[str] = []
    run = Run(pairs=[Lane(), Lane()], known=[], versions={"ApiVersions": (0, 4)}, controller=lambda: 1)
    with pytest.raises(ConnectionError, match="no response"):
        run.go(5, 1_000, "ApiVersions", said.append)
    assert 1 <= len(said) <= 2


def test_rows_of_a_list_with_an_explained_row_too_much_are_not_compared() -> None:
    row = Known(
        request="Produce",
        versions="3+",
        field="responses.partitionResponses",
        kafka='"(absent)"',
        harrow="*",
        reason="named twice",
    )
    twice = Difference(
        step=0,
        api="Produce",
        version=9,
        role="target",
        path="responses.partitionResponses",
        kafka=ABSENT,
        harrow={"index": 0, "errorCode": 42},
    )
    first = replace(twice, path="responses.partitionResponses.errorCode", kafka=0, harrow=87)
    elsewhere = replace(first, step=2)
    run = Run(pairs=[], known=[row], versions={}, controller=lambda: 1)
    assert run.findings_of([twice, first]) == []
    assert run.findings_of([first]) == [first]
    assert run.findings_of([replace(twice, step=1), first]) == [first]
    assert run.findings_of([elsewhere]) == [elsewhere]


def test_a_list_of_all_has_the_rows_of_its_own_case() -> None:
    names = ["gr1w2x3c", "gr1w2x30c", "gr1w2x", "gr1w7x3c", "left behind"]
    body = {"groups": [{"groupId": name} for name in names]}
    found = Normaliser({}, {}, "r1w2x", "r1w2x3c").outcome("ListGroups", Outcome(kind="response", body=body))
    assert [row["groupId"] for row in found["groups"]] == ["g%", "g~"]


def test_ids_in_a_list_of_all_are_numbered_in_the_order_of_the_names() -> None:
    def listed(*rows: tuple[str, int]) -> Any:
        states = [{"transactionalId": name, "producerId": number} for name, number in rows]
        outcome = Outcome(kind="response", body={"transactionStates": states})
        return Normaliser({}, {}, "r1w2x", "r1w2x3c").outcome("ListTransactions", outcome)

    first, second = "tr1w2x3c", "ur1w2x3c"
    assert listed((first, 7), (second, 9)) == listed((second, 5), (first, 6))


def test_rows_of_one_name_are_paired_whatever_their_order() -> None:
    def deleted(*codes: int) -> Any:
        rows = [{"name": "a", "errorCode": code} for code in codes]
        outcome = Outcome(kind="response", body={"responses": rows})
        return Normaliser({}, {}, "r1w2x", "r1w2x3c").outcome("DeleteTopics", outcome)

    assert deleted(0, 42) == deleted(42, 0)


def test_quotas_of_other_cases_are_left_out_and_those_of_defaults_stay() -> None:
    entries = [
        {"entity": [{"entityType": "user", "entityName": name}], "values": []}
        for name in ("ur1w2x3c", "ur1w9x3c", None, " ")
    ]
    found = Normaliser({}, {}, "r1w2x", "r1w2x3c").outcome(
        "DescribeClientQuotas", Outcome(kind="response", body={"entries": entries})
    )
    assert [row["entity"][0]["entityName"] for row in found["entries"]] == ["u%", None]
