"""Scripts of requests to groups, whose answers are compared with those that Apache Kafka 4.4 gave to the same requests.

`check_answers` compares with a file of `conformance/kafka_files/`. HARROW_RECORD=1 beside HARROW_APACHE=1 writes the
answers of Apache Kafka to that file.
"""

from __future__ import annotations

import json
import os
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import uuid4

from harrow.cluster.errors import ErrorCode
from kafka_reference import VERSION
from raw_groups import SUBSCRIBES_NOTHING, RawGroup
from waiting import until

FILES = Path(__file__).parents[1] / "conformance" / "kafka_files"
RECORDED = "4.4.0"
G = TypeVar("G", bound=RawGroup)


class Script(Generic[G]):
    """One group on one cluster, and the answers so far."""

    def __init__(self, kafka: Any, group_type: type[G], topic: str = "") -> None:
        self.kafka = kafka
        self._group_type = group_type
        self.topic: str = topic or kafka.topic("groups", 1)
        self.group = self.another("group")
        self.notes: list[list[Any]] = []
        self.aliases = {self.topic: "TOPIC", self.group.name: "GROUP"}

    def another(self, prefix: str) -> G:
        """A group of a new name, which its coordinator serves."""
        name = f"{prefix}-{uuid4().hex[:8]}"
        group = self._group_type(self.kafka.raw, name, min(self.kafka.ports))
        group.await_loaded()
        return group

    def note(self, what: str, answer: Any) -> None:
        """Keep an answer."""
        self.notes.append([what, self._plain(answer)])

    def _plain(self, value: Any) -> Any:
        given = value
        if isinstance(value, Enum):
            return value.name
        if isinstance(value, bytes):
            if self.topic.encode() in value:
                return "subscribes TOPIC"
            return "subscribes nothing" if value == SUBSCRIBES_NOTHING else value.decode()
        if isinstance(value, dict):
            return [[self._plain(key), self._plain(row)] for key, row in given.items()]
        if isinstance(value, list | tuple):
            return [self._plain(row) for row in given]
        if isinstance(value, str):
            for name, alias in self.aliases.items():
                value = value.replace(name, alias)
        return value

    def await_heartbeat(self, member: str, generation: int, code: ErrorCode) -> None:
        """Heartbeats of a member until they are answered like this."""
        until(lambda: self.group.heartbeat(member, generation) is code, f"{code.name} for {member}")


def create_topic(kafka: Any, prefix: str, partitions: int) -> str:
    """A topic of a new name, with its partitions on one broker, which every broker knows."""
    name = f"{prefix}-{uuid4().hex[:8]}"
    controller = kafka.raw(kafka.raw().metadata().controller_id)
    nodes = sorted(kafka.ports)
    created = controller.create_topic(name, assignment=[nodes[:1]] * partitions)
    assert created.error_code == 0, created

    def is_known(node: int) -> bool:
        return len(kafka.raw(node).metadata(name).topics[0].partitions) == partitions

    for node in nodes:
        until(partial(is_known, node), f"{name} is known to {node}")
    return name


def check_answers(script: Script[Any], name: str, file_name: str) -> None:
    """The answers of a script must be those that the file has under its name."""
    file = FILES / file_name
    if script.kafka.name == "apache" and os.environ.get("HARROW_RECORD") == "1":
        assert VERSION == RECORDED, f"the files have answers of Apache Kafka {RECORDED}; KAFKA_VERSION is {VERSION}"
        known: dict[str, list[Any]] = json.loads(file.read_text()) if file.exists() else {}
        known[name] = script.notes
        rows = ",\n".join(
            f'"{key}": [\n' + ",\n".join(f" {json.dumps(row)}" for row in notes) + "\n]"
            for key, notes in sorted(known.items())
        )
        file.write_text("{\n" + rows + "\n}\n")
    assert script.notes == json.loads(file.read_text())[name]
