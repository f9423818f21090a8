"""The groups of a cluster whose brokers come and go: librdkafka may wait for one that a later Metadata lacks."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError
from harrow.cluster.errors import HarrowError
from harrow.harness import topics

CLUSTER: Any = SimpleNamespace(own_servers="127.0.0.1:1")


def answer(*groups: str, error: int | None = None) -> Future[Any]:
    listed: Future[Any] = Future()
    errors = [] if error is None else [KafkaError(error)]
    valid = [SimpleNamespace(group_id=group) for group in groups]
    listed.set_result(SimpleNamespace(valid=valid, errors=errors))
    return listed


def without_answer() -> Future[Any]:
    listed: Future[Any] = Future()
    listed.set_exception(TimeoutError())
    return listed


def admins(monkeypatch: pytest.MonkeyPatch, *answers: Future[Any]) -> list[int]:
    """Each client of an administrator gets the next answer; the list grows with each client."""
    left, made = list(answers), list[int]()

    class Admin:
        def __init__(self, _settings: object) -> None:
            made.append(len(made))

        def describe_cluster(self, **_: object) -> Future[Any]:
            return answer()

        def list_consumer_groups(self, **_: object) -> Future[Any]:
            return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(confluent_kafka.admin, "AdminClient", Admin)
    return made


@pytest.mark.parametrize(
    "first",
    [answer("billing", error=KafkaError._TIMED_OUT), without_answer()],
    ids=["a-broker-is-missing", "no-response"],
)
def test_a_list_that_lacks_a_broker_is_asked_for_again_by_a_new_client(
    monkeypatch: pytest.MonkeyPatch, first: Future[Any]
) -> None:
    made = admins(monkeypatch, first, answer("billing", "shipping"))
    assert topics.consumer_groups(CLUSTER) == ["billing", "shipping"]
    assert len(made) == 2


def test_a_cluster_that_does_not_respond_is_an_error_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "LIST_TIMEOUT_S", 0)
    admins(monkeypatch, without_answer())
    with pytest.raises(HarrowError, match=r"could not be listed: no response in time$"):
        topics.consumer_groups(CLUSTER)
