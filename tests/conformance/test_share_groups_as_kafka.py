"""Apache Kafka 4.2 answers the requests to share groups as `kafka_files/share_group_answers.json` says (KIP-932).

`unit/groups/test_share_group_requests.py` compares Harrow's answers with the same file. HARROW_RECORD=1 writes the
file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import RawKafka
from share_group_scripts import ANSWERS, SCRIPTS, ShareScript, make_classic
from waiting import until

AN_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize("name", SCRIPTS)
def test_apache_kafka_gives_the_answers_of_the_file(apache_kafka: Any, name: str) -> None:
    suffix = uuid4().hex[:8]
    orders, group, classic = apache_kafka.topic("orders", 3), f"share-{suffix}", f"classic-{suffix}"
    with RawKafka(min(apache_kafka.ports)) as raw:

        def ask(api: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
            raw.send(int(api), version, **fields)
            return raw.take()[1]

        def has_coordinator(kind: int, key: str) -> bool:
            found = ask(ApiKey.FIND_COORDINATOR, 6, {"key_type": kind, "coordinator_keys": (key,)})
            return bool(found.coordinators[0].error_code.name == "none")

        until(lambda: has_coordinator(0, group))
        until(lambda: has_coordinator(2, f"{group}:{AN_ID}:0"))
        until(lambda: make_classic(ask, classic, orders))
        topics = ({"topic_id": None, "name": orders},)
        metadata = ask(ApiKey.METADATA, 12, {"topics": topics, "allow_auto_topic_creation": False})
        script = ShareScript(ask, group, classic, orders, metadata.topics[0].topic_id)
        SCRIPTS[name](script)
    answers = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
    if os.environ.get("HARROW_RECORD"):
        answers[name] = json.loads(json.dumps(script.notes))
        ANSWERS.write_text(json.dumps(answers, indent=1) + "\n")
    assert json.loads(json.dumps(script.notes)) == answers[name]
