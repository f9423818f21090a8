"""Sensible requests: for each request and version, a case whose target succeeds in the prepared world.

Owns: the table `BASES` from the name of a request to the function that makes its case. A function gets a `Maker`, which
knows the versions that both systems advertise and chooses at random between the few forms that a request has. Set-up
steps come before the target, probes after it: a probe makes visible what the target changed. Requests of groups and
transactions are in `group_requests.py`, those of topics and settings in `topic_requests.py`, those of share groups and
streams groups in `share_requests.py`, those about ACLs and delegation tokens in `security_requests.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from .cases import Case, Json, Step
from .world import COMPACT, ONE, TIMES, TWO, ends, metadata

Body = dict[str, Any]
Base = Callable[["Maker"], None]
BASES: dict[str, Base] = {}
ENTITIES = ("user", "client-id")
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
"""What a case may set for all users; it must not hold up the next cases."""
CHANGES_LOGS = frozenset(
    {
        "Produce",
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "TxnOffsetCommit",
        "WriteTxnMarkers",
        "DeleteRecords",
        "ListTransactions",
        "DescribeTransactions",
    }
)


@dataclass
class Maker:
    """Collects the steps of a case. `versions`: request to the first and last version that both systems advertise."""

    random: Random
    versions: Mapping[str, tuple[int, int]]
    controller: int = 1
    steps: list[Step] = field(default_factory=list[Step])
    version: int = 0

    def newest(self, api: str, most: int = 99) -> int:
        return min(self.versions[api][1], most)

    def setup(self, api: str, body: Body, *, most: int = 99, **fields: Any) -> int:
        """Adds a set-up step in the newest version; returns its number."""
        return self._add(Step(api=api, version=self.newest(api, most), body=body, **fields))

    def target(self, api: str, body: Body, **fields: Any) -> int:
        """Adds the request under test in the version of this case."""
        step = Step(api=api, version=self.version, body=body, role="target", **fields)
        return self._add(step)

    def probe(self, api: str, body: Body, *, most: int = 99, **fields: Any) -> int:
        step = Step(api=api, version=self.newest(api, most), body=body, role="probe", **fields)
        return self._add(step)

    def add(self, step: Step) -> int:
        return self._add(step)

    def _add(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def some_node(self) -> int:
        """A broker for an admin request: mostly the controller of the run."""
        return self.random.choice((self.controller, self.controller, 1, 2, 3))

    def _ends(self) -> None:
        """Probes where readers of committed records stop: an open transaction that only one system has is seen."""
        rows = [{"name": name, "partitions": [{"partitionIndex": 0, "timestamp": -1}]} for name in (ONE, TWO)]
        self.probe("ListOffsets", {"replicaId": -1, "isolationLevel": 1, "topics": rows}, most=7)

    def case(self, api: str, version: int) -> Case:
        """Returns a sensible case for a request in this version."""
        self.steps, self.version = [], version
        BASES[api](self)
        if api in CHANGES_LOGS:
            self._ends()
        return Case(steps=tuple(self.steps), origin=f"{api} v{version}")


def base(function: Base) -> Base:
    """Registers a function under the name of its request."""
    BASES[function.__name__] = function
    return function


def ref(step: int, path: str) -> Json:
    return {"$ref": [step, path]}


def topic(name: str, partitions_key: str, rows: list[Json], *, key: str = "name") -> Body:
    """Returns a topic by name and by id: each version takes what it has."""
    return {key: name, "topicId": {"$topicId": name}, partitions_key: rows}


def read(make: Maker, name: str, *, node: int = 1, isolation: int = 0) -> None:
    """Probes what a partition has: the batches, as the leader stored them, and the offsets."""
    rows = [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20, "currentLeaderEpoch": -1}]
    body = {
        "maxWaitMs": 0,
        "minBytes": 1,
        "isolationLevel": isolation,
        "maxBytes": 1 << 20,
        "topics": [topic(name, "partitions", rows, key="topic")],
    }
    make.probe("Fetch", body, most=12, node=node)
    offsets = [{"partitionIndex": 0, "timestamp": each} for each in (-1, -3)]
    for row in offsets:
        asked = {"replicaId": -1, "topics": [{"name": name, "partitions": [row]}]}
        make.probe("ListOffsets", asked, most=10, node=node)


def batch(make: Maker) -> Json:
    """Returns a sensible batch in one of its forms."""
    records = [
        {"key": "a", "value": "1", "headers": [["h", "x"]]},
        {"key": "b", "value": "22", "timestampDelta": 5},
        {"key": "c", "value": "333"},
    ]
    return {"records": records[: make.random.choice((1, 2, 3, 3))], "codec": make.random.choice((0, 0, 1))}


def producer(make: Maker, transactional_id: str | None = None, timeout_ms: int = 60_000) -> int:
    """Adds InitProducerId; returns its step."""
    body = {
        "transactionalId": transactional_id,
        "transactionTimeoutMs": timeout_ms,
        "producerId": -1,
        "producerEpoch": -1,
    }
    return make.setup("InitProducerId", body, most=4)


def produce_body(name: str, records: list[Json], transactional_id: str | None = None, index: int = 0) -> Body:
    rows = [{"index": index, "records": {"$batches": records}}]
    return {
        "transactionalId": transactional_id,
        "acks": -1,
        "timeoutMs": 5_000,
        "topicData": [topic(name, "partitionData", rows)],
    }


# ------------------------------------------------------------------ records


@base
def Produce(make: Maker) -> None:  # noqa: N802 - the name of the request
    name = make.random.choice((ONE, TWO, COMPACT, TIMES))
    sent = batch(make)
    form = make.random.choice(("plain", "plain", "idempotent", "twice"))
    if form in ("idempotent", "twice"):
        step = producer(make)
        sent |= {"producerId": ref(step, "producerId"), "producerEpoch": 0, "baseSequence": 0}
    if form == "twice":
        make.add(Step(api="Produce", version=min(make.version, 12), body=produce_body(name, [sent])))
    make.target("Produce", produce_body(name, [sent]))
    read(make, name)


@base
def Fetch(make: Maker) -> None:  # noqa: N802
    rows = [
        {
            "partition": 0,
            "fetchOffset": make.random.choice((0, 1, 5, 6)),
            "partitionMaxBytes": 1 << 20,
            "currentLeaderEpoch": make.random.choice((-1, 0)),
        }
    ]
    body: Body = {
        "maxWaitMs": 0,
        "minBytes": 1,
        "maxBytes": 1 << 20,
        "isolationLevel": 0,
        "topics": [topic(ONE, "partitions", rows, key="topic")],
    }
    if make.random.random() < 0.4 and make.version >= 7:
        opened = make.add(Step(api="Fetch", version=make.version, body={**body, "sessionId": 0, "sessionEpoch": 0}))
        body |= {"sessionId": ref(opened, "sessionId"), "sessionEpoch": 1}
    make.target("Fetch", body)


@base
def ListOffsets(make: Maker) -> None:  # noqa: N802
    times = (-1, -2, -3, -4, -5, 0, {"$time": 0}, {"$time": 1})
    rows = [{"partitionIndex": 0, "timestamp": make.random.choice(times), "currentLeaderEpoch": -1}]
    body = {"replicaId": -1, "topics": [{"name": ONE, "partitions": rows}], "timeoutMs": 1_000}
    make.target("ListOffsets", body)


@base
def OffsetForLeaderEpoch(make: Maker) -> None:  # noqa: N802
    rows = [{"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": 0}]
    make.target("OffsetForLeaderEpoch", {"topics": [{"topic": ONE, "partitions": rows}]})


@base
def DeleteRecords(make: Maker) -> None:  # noqa: N802
    for _ in range(2):
        make.setup("Produce", produce_body(TWO, [{}]), most=12)
    rows = [{"partitionIndex": 0, "offset": make.random.choice((1, -1))}]
    make.target("DeleteRecords", {"topics": [{"name": TWO, "partitions": rows}], "timeoutMs": 3_000})
    for stamp in (-1, -2):
        asked = {"replicaId": -1, "topics": [{"name": TWO, "partitions": [{"partitionIndex": 0, "timestamp": stamp}]}]}
        make.probe("ListOffsets", asked, most=10)


@base
def DescribeProducers(make: Maker) -> None:  # noqa: N802
    step = producer(make)
    sent = {"producerId": ref(step, "producerId"), "producerEpoch": 0, "baseSequence": 0}
    make.setup("Produce", produce_body(TWO, [sent]), most=12)
    make.target("DescribeProducers", {"topics": [{"name": COMPACT, "partitionIndexes": [0]}]})


# ------------------------------------------------------------------ cluster


@base
def Metadata(make: Maker) -> None:  # noqa: N802
    rows: list[Json] = [{"name": name, "topicId": "0" * 32} for name in (ONE, TWO)]
    if make.version >= 12 and make.random.random() < 0.3:
        rows = [{"name": make.random.choice((None, "")), "topicId": {"$topicId": ONE}}]
    body = {
        "topics": rows,
        "allowAutoTopicCreation": False,
        "includeClusterAuthorizedOperations": make.random.random() < 0.3,
        "includeTopicAuthorizedOperations": make.random.random() < 0.3,
    }
    make.target("Metadata", body, node=make.random.choice((1, 2, 3)))


@base
def DescribeTopicPartitions(make: Maker) -> None:  # noqa: N802
    body = {
        "topics": [{"name": ONE}, {"name": TWO}],
        "responsePartitionLimit": make.random.choice((1, 2, 2_000)),
        "cursor": make.random.choice((None, {"topicName": TWO, "partitionIndex": 1})),
    }
    make.target("DescribeTopicPartitions", body)


@base
def ApiVersions(make: Maker) -> None:  # noqa: N802
    make.target("ApiVersions", {"clientSoftwareName": "name", "clientSoftwareVersion": "1.0"})


@base
def DescribeCluster(make: Maker) -> None:  # noqa: N802
    body = {"includeClusterAuthorizedOperations": make.random.random() < 0.5, "endpointType": 1}
    make.target("DescribeCluster", body)


@base
def FindCoordinator(make: Maker) -> None:  # noqa: N802
    kind = make.random.choice((0, 1))
    make.target("FindCoordinator", {"key": "g%", "keyType": kind, "coordinatorKeys": ["g%", "h%"]})


@base
def DescribeLogDirs(make: Maker) -> None:  # noqa: N802
    make.target("DescribeLogDirs", {"topics": [{"topic": ONE, "partitions": [0]}]})


@base
def AlterReplicaLogDirs(make: Maker) -> None:  # noqa: N802
    make.target("AlterReplicaLogDirs", {"dirs": [{"path": "/no/such", "topics": [{"name": ONE, "partitions": [0]}]}]})


@base
def DescribeClientQuotas(make: Maker) -> None:  # noqa: N802
    _quota(make, "setup")
    entity = {"entityType": "user", "matchType": 0, "match": "u%"}
    make.target("DescribeClientQuotas", {"components": [entity], "strict": False})


@base
def AlterClientQuotas(make: Maker) -> None:  # noqa: N802
    _quota(make, "target")
    entity = {"entityType": "user", "matchType": 0, "match": "u%"}
    make.probe("DescribeClientQuotas", {"components": [entity], "strict": False})
    removed = [{"key": key, "value": 0.0, "remove": True} for key in QUOTAS]
    entries = [{"entity": [{"entityType": kind, "entityName": None}], "ops": removed} for kind in ENTITIES]
    body = {"entries": entries, "validateOnly": False}
    make.add(Step(api="AlterClientQuotas", version=1, body=body, role="cleanup"))


def _quota(make: Maker, role: str) -> None:
    ops = [
        {"key": "producer_byte_rate", "value": 1024.0, "remove": False},
        {"key": "request_percentage", "value": 50.5, "remove": False},
    ]
    body = {"entries": [{"entity": [{"entityType": "user", "entityName": "u%"}], "ops": ops}], "validateOnly": False}
    if role == "target":
        make.target("AlterClientQuotas", body, node=make.some_node())
    else:
        make.setup("AlterClientQuotas", body, node=make.controller)


def probe_topics(make: Maker, *names: str) -> None:
    """Probes the metadata and the end offset of topics."""
    make.add(metadata(*names, role="probe"))


def probe_end(make: Maker, name: str) -> None:
    make.add(ends(name, role="probe"))


@base
def SaslHandshake(make: Maker) -> None:  # noqa: N802
    make.target("SaslHandshake", {"mechanism": make.random.choice(("PLAIN", "SCRAM-SHA-256", "GSSAPI"))})


@base
def SaslAuthenticate(make: Maker) -> None:  # noqa: N802
    make.target("SaslAuthenticate", {"authBytes": {"$hex": "00"}})


@base
def DescribeUserScramCredentials(make: Maker) -> None:  # noqa: N802
    _scram_user(make, "setup")
    make.target("DescribeUserScramCredentials", {"users": [{"name": "u%"}]})


@base
def AlterUserScramCredentials(make: Maker) -> None:  # noqa: N802
    _scram_user(make, "target")
    make.probe("DescribeUserScramCredentials", {"users": [{"name": "u%"}]})


def _scram_user(make: Maker, role: str) -> None:
    row = {"name": "u%", "mechanism": 1, "iterations": 4096, "salt": {"$hex": "01"}, "saltedPassword": {"$hex": "02"}}
    body = {"deletions": [], "upsertions": [row]}
    if role == "target":
        make.target("AlterUserScramCredentials", body, node=make.some_node())
    else:
        make.setup("AlterUserScramCredentials", body, node=make.controller)
