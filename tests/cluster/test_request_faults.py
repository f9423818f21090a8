"""Faults of single requests act alike on a broker of Harrow's and on a proxy before one (K2)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import KafkaError, Producer
from harrow.cluster.tap.layouts import FLAG_LOST
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import produce_request
from served_requests import Served, served_by
from waiting import until

DELAY_MS = 300
APPEND = partial(produce_request, acks=-1, timeout_ms=1000, version=9)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Served]]:
    with served_by(tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.fixture(params=["broker", "proxy"])
def served(both: dict[str, Served], request: pytest.FixtureRequest) -> Iterator[Served]:
    found = both[request.param]
    yield found
    found.call("rules.remove", kind="request")


def test_a_lost_request_has_no_effect_and_its_connection_is_reset(served: Served) -> None:
    topic = served.topic()
    rule = served.arm("lose")
    with served.raw() as client, pytest.raises(ConnectionError):
        client.produce(topic, 0, ["never there"])
    with served.raw() as client:
        assert client.produce(topic, 0, ["there"]).base_offset == 0
    facts = rule.status()
    assert (facts.fired, facts.armed, facts.facts["seen"]) == (1, False, 1)
    assert served.rows(topic) == [(0, 0)]


def test_a_dropped_request_ends_the_service_of_its_connection_which_stays_open(served: Served) -> None:
    topic = served.topic()
    request = partial(APPEND, topic, 0)
    with served.raw() as silent:
        first = silent.send(ApiKey.PRODUCE, 9, request(values=["served"]))
        assert silent.take()[0] == first
        served.arm("drop")
        silent.send(ApiKey.PRODUCE, 9, request(values=["dropped"]))
        for _ in range(3):
            silent.send(ApiKey.PRODUCE, 9, request(values=["behind it"]))
        with served.raw() as client:
            assert client.produce(topic, 0, ["of another connection"]).base_offset == 1
        assert not silent.ready(), "neither a response nor an end"
    with served.raw() as client:
        assert client.list_offset(topic, 0, -1).offset == 2


def test_a_held_response_is_the_last_of_its_connection_which_stays_open(served: Served) -> None:
    topic = served.topic()
    rule = served.arm("hold_response")
    with served.raw() as silent:
        silent.send(ApiKey.PRODUCE, 9, APPEND(topic, 0, values=["held"]))
        until(lambda: rule.status().fired, "the response is held")
        for _ in range(3):
            silent.send(ApiKey.PRODUCE, 9, APPEND(topic, 0, values=["behind it"]))
        with served.raw() as client:
            assert client.produce(topic, 0, ["of another connection"]).base_offset == 1
        assert not silent.ready(), "neither a response nor an end"
    with served.raw() as client:
        assert client.list_offset(topic, 0, -1).offset == 2
    assert served.rows(topic) == [(0, FLAG_LOST), (1, 0)]


def test_a_duplicated_request_takes_effect_twice_and_is_answered_once(served: Served) -> None:
    topic = served.topic()
    served.arm("duplicate")
    with served.raw() as client:
        assert client.produce(topic, 0, ["twice"]).base_offset == 0
        assert client.produce(topic, 0, ["once"]).base_offset == 2
        assert not client.ready()
    assert served.rows(topic) == [(0, 0), (1, FLAG_LOST), (2, 0)]


@pytest.mark.parametrize(("idempotent", "end"), [(False, 21), (True, 20)])
def test_a_duplicated_batch_is_in_the_log_twice_unless_the_producer_is_idempotent(
    served: Served, idempotent: bool, end: int
) -> None:
    topic = served.topic()
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": served.servers,
        "enable.idempotence": idempotent,
        "acks": "all",
        "client.id": "doubled",
    }
    rule = served.arm("duplicate", client="doubled")
    producer = Producer(settings)
    failed: list[KafkaError] = []
    for number in range(20):
        producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(20) == 0  # a batch for each record
    assert rule.status().fired
    assert not failed
    with served.raw() as client:
        assert client.list_offset(topic, 0, -1).offset == end


def test_a_delayed_request_is_served_late_and_those_behind_it_stay_behind_it(served: Served) -> None:
    topic = served.topic()
    served.arm("delay", delay_ms=DELAY_MS)
    request = partial(APPEND, topic, 0)
    with served.raw() as client:
        begun = time.monotonic()
        for value in ("first", "second"):
            client.send(ApiKey.PRODUCE, 9, request(values=[value]))
        answers = [client.take()[1].responses[0].partition_responses[0] for _ in range(2)]
    assert [row.base_offset for row in answers] == [0, 1]
    assert time.monotonic() - begun >= DELAY_MS / 1000


def test_a_client_that_leaves_while_its_request_is_late_harms_nothing(served: Served) -> None:
    topic = served.topic()
    served.arm("delay", delay_ms=DELAY_MS)
    with served.raw() as client:
        client.send(ApiKey.PRODUCE, 9, APPEND(topic, 0, values=["late"]))
        until(lambda: not served.call("rules.list", kind="request")["rules"][-1]["armed"], "the request has arrived")
    with served.raw() as client:
        assert client.produce(topic, 0, ["of another connection"]).base_offset >= 0
