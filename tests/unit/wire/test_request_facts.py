"""What requests are about: topics, partitions, groups and transactional ids that they name, in every version (K2)."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

import pytest
from harrow.cluster.host.seam import RequestFacts
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_errors import API_ERRORS
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.request_facts import NO_SCOPE, facts_of_api, request_facts
from message_samples import filled

TOPIC_ID = UUID(int=7)
KNOWN = {TOPIC_ID: "orders"}
SESSION = 3


class Asked(NamedTuple):
    api_key: int
    version: int
    frame: bytes
    body_at: int


class Scope:
    """A broker that knows one topic id and one fetch session."""

    def topic_name(self, topic_id: UUID, /) -> str | None:
        return KNOWN.get(topic_id)

    def session_partitions(self, session_id: int, /) -> list[tuple[str | UUID, int]]:
        return [("bills", 1), (TOPIC_ID, 4)] if session_id == SESSION else []


def facts(api: ApiKey, version: int, entity: Any, scope: Any = NO_SCOPE) -> RequestFacts:
    frame = messages.encode(messages.request_writer(api, version), entity)
    return request_facts(Asked(api, version, frame, 0), scope)


def asked(api: ApiKey, version: int, **fields: Any) -> Any:
    return client_request(api, version, **fields).entity


@pytest.mark.parametrize("api", sorted(API_ERRORS), ids=lambda api: ApiKey(api).name)
def test_what_an_api_can_name_is_found_in_its_latest_request(api: int) -> None:
    version = messages.versions_known(api)[-1]
    found = facts(ApiKey(api), version, filled(messages.request_type(api, version)), Scope())
    named = {
        "topic": found.topics,
        "partition": found.partitions,
        "group": found.groups,
        "transactional_id": found.transactional_ids,
    }
    missing = {name for name in facts_of_api(api) if not named[name]}
    # the keys of a FindCoordinator are groups or transactional ids, and the sample has groups
    assert missing <= ({"transactional_id"} if api == ApiKey.FIND_COORDINATOR else set())
    assert {name for name, values in named.items() if values} <= facts_of_api(api)


def test_a_topic_id_counts_under_its_name() -> None:
    topic = {"topic_id": TOPIC_ID, "partition_data": [{"index": 2, "records": b""}]}
    entity = asked(ApiKey.PRODUCE, 13, topic_data=[topic])
    assert facts(ApiKey.PRODUCE, 13, entity, Scope()).partitions == {("orders", 2)}
    assert facts(ApiKey.PRODUCE, 13, entity).topics == {str(TOPIC_ID)}


def test_a_fetch_of_a_session_counts_with_all_partitions_of_the_session() -> None:
    entity = asked(ApiKey.FETCH, 12, session_id=SESSION, session_epoch=5)
    assert facts(ApiKey.FETCH, 12, entity, Scope()).partitions == {("bills", 1), ("orders", 4)}
    full = asked(ApiKey.FETCH, 12, session_id=SESSION, session_epoch=0)
    assert not facts(ApiKey.FETCH, 12, full, Scope()).topics


def test_the_keys_of_find_coordinator_are_groups_or_transactional_ids() -> None:
    old = facts(ApiKey.FIND_COORDINATOR, 1, asked(ApiKey.FIND_COORDINATOR, 1, key="pay", key_type=1))
    assert (sorted(old.transactional_ids), sorted(old.groups)) == (["pay"], [])
    new = asked(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=("a", "b"), key_type=0)
    assert facts(ApiKey.FIND_COORDINATOR, 4, new).groups == {"a", "b"}


def test_a_request_that_does_not_decode_is_about_nothing() -> None:
    assert request_facts(Asked(ApiKey.PRODUCE, 9, b"\x00\x07", 0), NO_SCOPE) == RequestFacts()
