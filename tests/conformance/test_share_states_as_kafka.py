"""ShareFetch, ShareAcknowledge and requests 83 to 87 with bad input, as `kafka_files/share_state_answers.json`.

HARROW_RECORD=1 writes the file from Apache Kafka 4.4.
"""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Producer
from harrow.cluster.wire.api_keys import ApiKey
from share_state_scripts import ANOTHER_ID, ANSWERS, NO_ID, RECORDS, SCRIPTS, StateScript
from waiting import until

LOADING = ("not_coordinator", "coordinator_load_in_progress", "coordinator_not_available")


@pytest.mark.parametrize("name", SCRIPTS)
def test_apache_kafka_and_harrow_answer_bad_requests_as_the_file_says(kafka: Any, name: str) -> None:
    topic, group = kafka.topic("states", 1, 2, 3), f"share-{uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{kafka.ports[1]}", "log_level": 2})
    for number in range(RECORDS):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0
    leader: Any = kafka.raw(1)
    named = ({"topic_id": None, "name": topic},)
    topic_id: UUID = leader.ask(ApiKey.METADATA, 12, topics=named, allow_auto_topic_creation=False).topics[0].topic_id

    def home_of(place: tuple[UUID, int]) -> int:
        key = f"{group}:{urlsafe_b64encode(place[0].bytes).decode().rstrip('=')}:{place[1]}"

        def found() -> int | None:
            row = leader.ask(ApiKey.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=(key,)).coordinators[0]
            return int(row.node_id) if row.error_code.name == "none" else None

        return until(found, f"{key} has a share coordinator")

    def at(node: int, api: ApiKey, version: int, **fields: Any) -> Any:
        return kafka.raw(node).ask(int(api), version, **fields)

    def right(place: tuple[UUID, int], api: ApiKey, version: int, **fields: Any) -> Any:
        return at(home_of(place), api, version, **fields)

    def wrong(place: tuple[UUID, int], api: ApiKey, version: int, **fields: Any) -> Any:
        return at(home_of(place) % 3 + 1, api, version, **fields)

    script = StateScript(partial(at, 1), right, wrong, group, topic_id)
    for place in ((topic_id, 0), (topic_id, -1), (topic_id, 9), (NO_ID, 0), (ANOTHER_ID, 0)):
        until(partial(_serves, right, group, place), f"the share coordinator of {place} serves")
    SCRIPTS[name](script)
    answers: dict[str, Any] = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    found = json.loads(json.dumps(script.notes))
    if os.environ.get("HARROW_RECORD"):
        answers[name] = found
        ANSWERS.write_text(json.dumps(answers, indent=1) + "\n")
    different = [(mine, wanted) for mine, wanted in zip(found, answers[name], strict=True) if mine != wanted]
    assert not different, "\n\n".join(f"{mine}\nexpected {wanted}" for mine, wanted in different)


def _serves(ask: Any, group: str, place: tuple[UUID, int]) -> bool:
    topics = [{"topic_id": place[0], "partitions": [{"partition": place[1], "leader_epoch": 0}]}]
    answer = ask(place, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, group_id=group, topics=topics)
    return bool(answer.results[0].partitions[0].error_code.name not in LOADING)
