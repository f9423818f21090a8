"""Errors that faults put into responses are Kafka's, on a broker of Harrow's and on a proxy before one (K2)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from armed_requests import arm_request
from harrow.cluster.errors import ErrorCode
from harrow.cluster.tap.layouts import FLAG_LOST, PRODUCED
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.faults.rule_kinds import ArmedRule
from proxied_cluster import batch_rows, offset_rows, where
from raw_kafka import RawKafka, fetch_request
from served_requests import Served, served_by
from waiting import until

OUT_OF_RANGE = ErrorCode.offset_out_of_range
TIMED_OUT = ErrorCode.request_timed_out


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    with served_by(tmp_path_factory.mktemp("errors")) as found:
        yield found


@pytest.fixture(params=["broker", "proxy"])
def served(both: dict[str, Served], request: pytest.FixtureRequest) -> Iterator[Served]:
    found = both[request.param]
    yield found
    found.call("rules.remove", kind="request")
    found.call("rules.remove", kind="response")


def arm(served: Served, action: str, api: ApiKey, code: int = 0, **fields: Any) -> ArmedRule:
    given: dict[str, Any] = {"client": "raw", "error": int(code), **fields}
    return arm_request(served.call, action=action, api_key=int(api), **given)


def errors(response: Any) -> list[tuple[int, list[int]]]:
    """The error at the top of a Fetch response, and those of its partitions."""
    rows = [row for topic in response.responses for row in topic.partitions]
    return [(int(response.error_code), [int(row.error_code) for row in rows])]


def test_an_offset_out_of_range_is_in_the_partitions_of_a_full_and_of_an_incremental_fetch(served: Served) -> None:
    topic = served.topic()
    with served.raw() as client:
        client.produce(topic, 0, ["a"])
        arm(served, "refuse", ApiKey.FETCH, OUT_OF_RANGE)
        ask = partial(client.ask, ApiKey.FETCH, 12)
        first = ask(fetch_request(topic, 0, 0, 12, session_epoch=0))
        assert errors(first) == [(0, [OUT_OF_RANGE])]
        refused = first.responses[0].partitions[0]
        assert (refused.high_watermark, bool(refused.records)) == (-1, False)
        assert first.session_id, "the fetch of a session begins one, as in Kafka"
        s = messages.schema(ApiKey.FETCH, 12, "request")
        nothing_new = partial(s.root, replica_id=-1, min_bytes=1, max_bytes=1 << 20, session_id=first.session_id)
        served_again = ask(nothing_new(session_epoch=1))
        assert errors(served_again) == [(0, [0])]
        assert served_again.responses[0].partitions[0].records
        arm(served, "refuse", ApiKey.FETCH, OUT_OF_RANGE, where={"topic": topic})
        assert errors(ask(nothing_new(session_epoch=2))) == [(0, [OUT_OF_RANGE])]
        assert errors(ask(nothing_new(session_epoch=3)))[0][0] == 0, "the session goes on"


def test_a_fetch_session_that_is_refused_has_its_error_at_the_top(served: Served) -> None:
    topic = served.topic()
    arm(served, "refuse", ApiKey.FETCH, ErrorCode.fetch_session_id_not_found)
    with served.raw() as client:
        refused = client.ask(ApiKey.FETCH, 12, fetch_request(topic, 0, 0, 12))
    assert errors(refused) == [(ErrorCode.fetch_session_id_not_found, [])]


def test_refused_metadata_still_has_the_brokers(served: Served) -> None:
    topic = served.topic()
    arm(served, "refuse", ApiKey.METADATA, ErrorCode.leader_not_available)
    with served.raw() as client:
        refused, good = client.metadata(topic), client.metadata(topic)
    assert refused.brokers == good.brokers
    assert refused.controller_id == good.controller_id
    (row,) = refused.topics[0].partitions
    assert (row.error_code, row.leader_id) == (ErrorCode.leader_not_available, -1)
    assert not good.topics[0].partitions[0].error_code


def test_a_failed_produce_is_in_the_log_and_its_row_has_the_error(served: Served) -> None:
    topic = served.topic()
    rule = arm(served, "fail_response", ApiKey.PRODUCE, TIMED_OUT, nth=2, count=2)
    with served.raw() as client:
        rows = [client.produce(topic, 0, [value]) for value in "abcd"]
        assert [int(row.error_code) for row in rows] == [0, TIMED_OUT, TIMED_OUT, 0]
        assert [row.base_offset for row in rows] == [0, -1, -1, 3]
        assert client.list_offset(topic, 0, -1).offset == 4
    status = rule.status()
    assert (status.fired, status.armed) == (2, False)
    found = where(batch_rows(served.folder), kind=PRODUCED, topic=topic)
    tapped = sorted((dict(r)["base_offset"], dict(r)["error"], dict(r)["flags"]) for r in found)
    assert tapped == [(0, 0, 0), (1, TIMED_OUT, 0), (2, TIMED_OUT, 0), (3, 0, 0)]


def test_a_failed_commit_has_committed(served: Served) -> None:
    topic = served.topic()
    group = f"group-of-{topic}"
    with served.raw() as client:
        until(lambda: _coordinator(client, group), "a coordinator")
        until(lambda: _commit(client, group, topic, 3) == 0, "the coordinator has loaded its group")
        arm(served, "fail_response", ApiKey.OFFSET_COMMIT, TIMED_OUT, where={"group": group})
        assert _commit(client, f"other-{group}", topic, 9) in (0, ErrorCode.not_coordinator)
        assert _commit(client, group, topic, 7) == TIMED_OUT
        assert _committed(client, group, topic) == 7
    tapped = where(offset_rows(served.folder), group=group, offset=7)
    assert tapped and all(not dict(row)["error"] for row in tapped)


def test_a_refused_request_is_no_response_that_another_fault_loses(served: Served) -> None:
    topic = served.topic()
    arm(served, "refuse", ApiKey.PRODUCE, ErrorCode.not_enough_replicas)
    rule = arm(served, "lose_response", ApiKey.PRODUCE)
    with served.raw() as client:
        assert client.produce(topic, 0, ["refused"]).error_code == ErrorCode.not_enough_replicas
        assert rule.status().facts["seen"] == 0
        with pytest.raises(ConnectionError):
            client.produce(topic, 0, ["there"])
    found = where(batch_rows(served.folder), kind=PRODUCED, topic=topic, flags=FLAG_LOST)
    assert [dict(row)["base_offset"] for row in found] == [0]


def test_a_predicate_chooses_requests_by_topic_and_partition(served: Served) -> None:
    orders, bills = served.topic(), served.topic()
    rule = arm(
        served,
        "refuse",
        ApiKey.PRODUCE,
        ErrorCode.not_enough_replicas,
        count=9,
        where={"topic": orders, "partition": 0},
    )
    with served.raw() as client:
        found = [int(client.produce(t, 0, ["x"]).error_code) for t in (bills, orders, bills, orders)]
    refused = int(ErrorCode.not_enough_replicas)
    assert found == [0, refused, 0, refused]
    assert rule.status().facts["seen"] == 2


def _coordinator(client: RawKafka, group: str) -> bool:
    return not client.ask(ApiKey.FIND_COORDINATOR, 2, key=group, key_type=0).error_code


def _commit(client: RawKafka, group: str, topic: str, offset: int) -> int:
    row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
    topics = [{"name": topic, "partitions": [row]}]
    answer = client.ask(
        ApiKey.OFFSET_COMMIT, 8, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    return int(answer.topics[0].partitions[0].error_code)


def _committed(client: RawKafka, group: str, topic: str) -> int:
    asked = {"name": topic, "partition_indexes": (0,)}
    answer = client.ask(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=(asked,))
    return int(answer.topics[0].partitions[0].committed_offset)
