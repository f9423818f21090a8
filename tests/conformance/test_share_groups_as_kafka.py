"""Apache Kafka 4.4 and Harrow answer requests to share groups as `kafka_files/share_group_answers.json` says (KIP-932).

`unit/groups/test_share_group_requests.py` compares a coordinator without a cluster with the same file.
HARROW_RECORD=1 writes the file.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import RawKafka
from share_group_scripts import ANSWERS, SCRIPTS, ShareScript, make_classic
from waiting import until

RETRIES_S = 90.0
"""Kafka answers with the offset of a partition that does not exist after 31 s: its persister asks six times (pauses of
1 to 16 s, each 20 % shorter or longer)."""
AN_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def _has_leaders(link: Any, topic: str, count: int) -> bool:
    (row,) = link.metadata(topic).topics
    return [partition.leader_id > 0 for partition in row.partitions] == [True] * count


@pytest.mark.parametrize("name", SCRIPTS)
def test_apache_kafka_and_harrow_give_the_answers_of_the_file(kafka: Any, name: str) -> None:
    orders, group = f"orders-{uuid4().hex[:8]}", f"share-{uuid4().hex[:8]}"
    first: Any = kafka.raw(min(kafka.ports))
    controller = kafka.raw(first.metadata().controller_id)
    assert controller.create_topic(orders, assignment=[[node] for node in sorted(kafka.ports)]).error_code == 0
    for node in kafka.ports:
        until(partial(_has_leaders, kafka.raw(node), orders, len(kafka.ports)), f"node {node} knows {orders}")

    def coordinator_of(kind: int, key: str) -> int | None:
        found = first.ask(ApiKey.FIND_COORDINATOR, 6, key_type=kind, coordinator_keys=(key,)).coordinators[0]
        return int(found.node_id) if found.error_code.name == "none" else None

    until(lambda: coordinator_of(0, group) is not None)
    until(lambda: coordinator_of(2, f"{group}:{AN_ID}:0") is not None)
    home = coordinator_of(0, group)
    assert home is not None
    names = (f"other-{uuid4().hex[:8]}" for _ in range(1_000))
    classic, never = itertools.islice((name for name in names if coordinator_of(0, name) == home), 2)
    link = RawKafka(kafka.ports[home], client_id="conformance", timeout_s=RETRIES_S)
    raw: Any = kafka.links.enter_context(link)

    def ask(api: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        return raw.ask(int(api), version, **fields)

    until(lambda: make_classic(ask, classic, orders))
    topics = ({"topic_id": None, "name": orders},)
    metadata = ask(ApiKey.METADATA, 12, {"topics": topics, "allow_auto_topic_creation": False})
    script = ShareScript(ask, group, classic, orders, metadata.topics[0].topic_id, never)
    SCRIPTS[name](script)
    answers: dict[str, Any] = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    if os.environ.get("HARROW_RECORD"):
        answers[name] = json.loads(json.dumps(script.notes))
        ANSWERS.write_text(json.dumps(answers, indent=1) + "\n")
    assert json.loads(json.dumps(script.notes)) == answers[name]
