"""Compares the outcomes of two systems field by field, without what differs between any two clusters.

Owns: the rules of what is replaced (ids, times, addresses), what is left out (texts, throttle times, sizes of disks),
and in which order lists are compared: rows of a list are paired by their names and numbers, because Kafka's own order
follows its hash maps. `Difference.path` has the names of the fields without the indexes of rows.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import batches
from .cases import Case, Json, is_rows, is_struct
from .link import Outcome

DROPPED = frozenset(
    {
        "throttleTimeMs",
        "errorMessage",
        "clusterId",
        "totalBytes",
        "usableBytes",
        "documentation",
        "finalizedFeaturesEpoch",
        "batchIndexErrorMessage",
        "brokerEpoch",
        "statusText",
        "acknowledgeErrorMessage",
    }
)
KEYS = (
    "name",
    "topic",
    "topicName",
    "groupId",
    "transactionalId",
    "apiKey",
    "partitionIndex",
    "partition",
    "index",
    "memberId",
    "producerId",
    "resourceType",
    "resourceName",
    "configName",
    "entityType",
    "entityName",
    "key",
    "subtopologyId",
    "firstOffset",
    "principal",
    "logDir",
    "brokerId",
    "nodeId",
)
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[\w-]{22}(?=$)")
WORLD = re.compile(r"r[0-9a-f]+w\d+x")
"""The part of a name that says its world."""
LISTS_OF_ALL = frozenset(
    {"ListGroups", "ListTransactions", "ListConfigResources", "DescribeLogDirs", "DescribeAcls", "DeleteAcls"}
    | {"DescribeUserScramCredentials"}
)
IDS = frozenset({"producerId", "sessionId"})
NODES = frozenset({"controllerId"})
SETS = frozenset({"replicaNodes", "isrNodes", "offlineReplicas", "replicas", "topicAuthorizedOperations"})
DAY_MS = 86_400_000
NEAR_MS = 1_000_000
NO_ID = "0" * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field in which two responses differ; `kafka` and `harrow` are normalised values."""

    step: int
    api: str
    version: int
    role: str
    path: str
    kafka: Json
    harrow: Json

    @property
    def signature(self) -> tuple[str, str, str, str]:
        """What makes two differences the same finding."""
        return (self.api, self.path, _brief(self.kafka), _brief(self.harrow))


ABSENT = "(absent)"


def _brief(value: Json) -> str:
    """Returns a value as JSON; of a row only that it is there."""
    if is_struct(value):
        return "(a row)"
    return "(rows)" if is_rows(value) else _text(value)


class Normaliser:
    """Replaces what a system chose by its order of appearance; one for each system and case."""

    def __init__(self, ports: Mapping[int, int], topic_ids: Mapping[str, str], world: str, case: str) -> None:
        self._nodes = {port: node for node, port in ports.items()}
        self._world = world
        self._names = ((case, "%"), (world, "~"))
        self._of_other_case = re.compile(rf"{world}(?!{case[len(world) :]})\d+c")
        self._topics = {identity: f"id of {self._named(name)}" for name, identity in topic_ids.items()}
        self._is_list_of_all = False
        self._tokens: dict[tuple[str, Json], str] = {}

    def outcome(self, api: str, outcome: Outcome) -> Json:
        self._is_list_of_all = api in LISTS_OF_ALL
        if outcome.kind != "response":
            return {"outcome": outcome.kind}
        if not self._is_list_of_all:
            for number in sorted(_producer_ids(outcome.body)):
                self._token("producerId", number)
        return {"outcome": "response", **self._struct(outcome.body)}

    def _struct(self, body: Mapping[str, Json]) -> Json:
        return {name: self._value(name, value) for name, value in body.items() if name not in DROPPED}

    def _value(self, name: str, value: Json) -> Json:
        if is_struct(value):
            found = self._struct(value)
            overflows = name == "nextCursor" and value["partitionIndex"] < 0
            return {**found, "partitionIndex": "below 0"} if overflows else found
        if is_rows(value):
            return self._list(name, value)
        if isinstance(value, bytes):
            return self._records(value) if name == "records" else value.hex()
        if isinstance(value, str):
            return self._string(name, value)
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        return self._number(name, value)

    def _number(self, name: str, value: int) -> Json:
        if name in IDS and value >= (name == "sessionId"):
            return self._token(name, value)
        if name in NODES and value >= 0:
            return "a node"
        if name == "port":
            return self._nodes.get(value, value)
        if "time" in name.lower() and abs(value - batches.BASE_MS) < NEAR_MS:
            return f"records' time {value - batches.BASE_MS:+d}"
        if "time" in name.lower() and abs(value - time.time() * 1_000) < DAY_MS:
            return "now"
        return value

    def _named(self, text: str) -> str:
        """Returns a name as the case has it."""
        for actual, sign in self._names:
            text = text.replace(actual, sign)
        return text

    def _string(self, name: str, value: str) -> Json:
        if len(value) == len(NO_ID) and name.lower().endswith("id") and value != NO_ID:
            return self._topics.get(value) or self._token("uuid", value)
        if name in ("memberId", "leader"):
            return UUID.sub(lambda found: self._token("member", found.group()), value)
        return "a folder" if name == "logDir" else self._named(value)

    def _token(self, kind: str, value: Json) -> str:
        known = sum(each[0] == kind for each in self._tokens)
        return self._tokens.setdefault((kind, value), f"{kind}#{known + 1}")

    def _list(self, name: str, values: list[Json]) -> Json:
        if self._is_list_of_all:  # so that ids are numbered in the order of the names
            values = sorted(values, key=_name_of)
        rows = [self._value(name, each) for each in values if self._is_ours(each)]
        if rows and not is_struct(rows[0]) and name in SETS:
            return sorted(rows, key=_text)
        if not rows or not is_struct(rows[0]):
            return rows
        return sorted(rows, key=lambda row: (row_key(row), _text(row)))  # Kafka shuffles some of its lists

    def _is_ours(self, row: Json) -> bool:
        """False for a row about another world, and in a list of all for a row about another case.

        A world may be of an earlier run. What a case leaves behind in a system is seen by its own probes.
        """
        if not is_struct(row):
            return True
        if is_rows(row.get("entity")):  # quotas: those of defaults belong to the case that set them
            names = [each["entityName"] for each in row["entity"]]
            return all(name is None or self._world in name for name in names)
        for key in ("name", "topic", "groupId", "transactionalId", "resourceName", "entityName", "user"):
            name = row.get(key)
            if not isinstance(name, str):
                continue
            if self._world not in name and (self._is_list_of_all or WORLD.search(name)):
                return False
            if self._is_list_of_all and self._of_other_case.search(name):
                return False
        return True

    def _records(self, data: bytes) -> Json:
        found = batches.decode(data)
        for each in found:
            if each["attributes"] & batches.CONTROL:  # ends with the coordinator's epoch and the number of headers
                each["payload"] = each["payload"][:-5]
        return [self._struct(each) for each in found]


def _producer_ids(body: Json) -> Iterator[int]:
    """Yields the producer ids of a body; sorted they are in the order in which a system gave them."""
    if is_struct(body):
        if body.get("producerId", -1) >= 0:
            yield body["producerId"]
        body = [*body.values()]
    if is_rows(body):
        for each in body:
            yield from _producer_ids(each)


def _name_of(row: Json) -> str:
    return _text([row.get(key) for key in KEYS if key not in IDS]) if is_struct(row) else _text(row)


def row_key(row: Json) -> str:
    """Returns what pairs a row with that of the other system: its name, or its id where it has no name, and numbers."""
    if not is_struct(row):
        return _text(row)
    if "magic" in row:  # a batch
        return _text(row["baseOffset"])
    found = [row[key] for key in KEYS if row.get(key) is not None]
    if not any(row.get(key) for key in ("name", "topic")):
        found += [row["topicId"]] if "topicId" in row else []
    return _text(found)


NAMED = {"configs": "name", "apiKeys": "apiKey", "finalizedFeatures": "name", "supportedFeatures": "name"}
"""Lists whose rows are known by name in a path."""


def _inner(path: str, row: Json) -> str:
    key = NAMED.get(path.rpartition(".")[2])
    return f"{path}.{row[key]}" if key and is_struct(row) and key in row else path


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def walk(kafka: Json, harrow: Json, path: str = "") -> Iterator[tuple[str, Json, Json]]:
    """Yields `(path, Kafka's value, ours)` for each field that differs."""
    if is_struct(kafka) and is_struct(harrow):
        for name in sorted({**kafka, **harrow}):
            inner = f"{path}.{name}" if path else name
            yield from walk(kafka.get(name, ABSENT), harrow.get(name, ABSENT), inner)
    elif is_rows(kafka) and is_rows(harrow):
        yield from _walk_rows(kafka, harrow, path)
    elif kafka != harrow:
        yield path, kafka, harrow


def _walk_rows(kafka: list[Json], harrow: list[Json], path: str) -> Iterator[tuple[str, Json, Json]]:
    if not all(is_struct(each) for each in (*kafka, *harrow)):
        if kafka != harrow:
            yield path, kafka, harrow
        return
    theirs, ours = _by_key(kafka), _by_key(harrow)
    for key in sorted({**theirs, **ours}):
        left, right = theirs.get(key, ABSENT), ours.get(key, ABSENT)
        yield from walk(left, right, _inner(path, left if left != ABSENT else right))


def _by_key(rows: list[Json]) -> dict[tuple[str, int], Json]:
    """Returns the rows by their names; equal names are numbered."""
    found: dict[tuple[str, int], Json] = {}
    for row in rows:
        key, number = row_key(row), 0
        while (key, number) in found:
            number += 1
        found[key, number] = row
    return found


HEARTBEAT = "ConsumerGroupHeartbeat"
ASSIGNING = (HEARTBEAT, "ConsumerGroupDescribe")
OF_SEVERAL = " of several members"
"""Behind the name of an assignment where an assignor chooses: rows of docs/compatibility.toml name it."""
_ASSIGNMENT = re.compile(r"((?:^|\.)(?:assignment|targetAssignment))(?:\..*)?$")


def differences(case: Case, kafka: list[Json], harrow: list[Json]) -> list[Difference]:
    """Returns what differs in the normalised outcomes of a case, set-up steps included."""
    found: list[Difference] = []
    several = _has_several_members(case)
    for index, (step, theirs, ours) in enumerate(zip(case.steps, kafka, harrow, strict=True)):
        if step.role == "cleanup":
            continue
        pair = (theirs, ours)
        if theirs["outcome"] != ours["outcome"]:
            pair = (_short(theirs), _short(ours))
        chosen = several and step.api in ASSIGNING
        for path, left, right in walk(*pair):
            found.append(
                Difference(
                    step=index,
                    api=step.api,
                    version=step.version,
                    role=step.role,
                    path=_ASSIGNMENT.sub(f"\\1{OF_SEVERAL}", path) if chosen else path,
                    kafka=left,
                    harrow=right,
                )
            )
    return found


def _has_several_members(case: Case) -> bool:
    """True when more than one member of the consumer protocol is in the case."""
    named = [step.body.get("memberId") for step in case.steps if step.api == HEARTBEAT]
    return len(set(map(str, named))) > 1


def _short(outcome: dict[str, Any]) -> Json:
    """A response beside no response: only its error codes count."""
    if outcome["outcome"] != "response":
        return {"outcome": outcome["outcome"]}
    codes: list[Json] = []

    def collect(value: Json) -> None:
        if is_struct(value):
            if "errorCode" in value:
                codes.append(value["errorCode"])
            for each in value.values():
                collect(each)
        elif is_rows(value):
            for each in value:
                collect(each)

    collect(outcome)
    return {"outcome": f"response {sorted(set(codes))}"}
