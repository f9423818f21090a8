"""Seeded programs of 5 to 30 requests: several clients work on the same groups, transactions and topics.

Owns: the actions of a program (`ACTIONS`) and the state that they share: members that joined, open transactions,
sequence numbers, the fetch session, the topic that the program made. An action may be wrong on purpose: an old
generation, a step that is missing, an epoch of another producer. Clients have connections of their own.

A rebalance has one order on both systems: the new member's JoinGroup is sent without waiting, a member that is there
heartbeats until it is asked to rejoin (`until`), and only then do the others join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .cases import Case, Json, Step
from .group_requests import GROUP, TXN, commit_body, heartbeat_body, join_body, probe_group, probe_offsets, sync_body
from .requests import Maker, produce_body, read, ref
from .topic_requests import NEW, remove, resource
from .world import ONE, TWO, create, metadata

STEPS_MOST = 30
REBALANCE_IN_PROGRESS = 27
CLIENTS = 3


@dataclass
class Member:
    """A classic member: its client, its id, and the step that gave it its generation."""

    client: int
    identity: Json
    joined: int


@dataclass
class Programmer:
    """What the actions of one program share."""

    make: Maker
    members: list[Member] = field(default_factory=list[Member])
    moderns: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    producers: list[int] = field(default_factory=list[int])
    sequences: dict[int, int] = field(default_factory=dict[int, int])
    session: tuple[int, int] | None = None
    made: bool = False

    def ask(self, api: str, body: dict[str, Any], *, most: int = 99, **fields: Any) -> int:
        """Adds a request that is compared, in a version of the last three."""
        newest = self.make.newest(api, most)
        low = max(self.make.versions[api][0], newest - 2)
        version = self.make.random.randint(low, newest)
        return self.make.add(Step(api=api, version=version, body=body, role="target", **fields))

    def choose(self, *values: Json) -> Json:
        return self.make.random.choice(values)


def program(make: Maker) -> Case:
    """Returns a program of 5 to 30 requests."""
    make.steps = []
    state = Programmer(make)
    most = make.random.randint(5, STEPS_MOST)
    themes = make.random.sample(list(ACTIONS), make.random.randint(1, 3))
    actions = [action for theme in themes for action in ACTIONS[theme]]
    while len(make.steps) < most:
        make.random.choice(actions)(state)
    for step in [*state.producers]:
        _end(state, step, committed=False)
    read(make, TWO, isolation=1)
    probe_group(make)
    probe_offsets(make)
    if state.made:
        remove(make)
    return Case(steps=tuple(make.steps), origin=f"program of {', '.join(themes)}")


# ------------------------------------------------------------------ classic groups


def join(state: Programmer) -> None:
    """A new member joins, and all others with it."""
    if len(state.members) >= CLIENTS:
        return
    client = len(state.members) + 1
    first = state.ask("JoinGroup", join_body(GROUP, ""), client=client, most=9)
    identity = ref(first, "memberId")
    member = Member(client, identity, 0)
    if not state.members:
        member.joined = state.ask("JoinGroup", join_body(GROUP, identity), client=client)
    else:
        member.joined = state.ask("JoinGroup", join_body(GROUP, identity), client=client, later=True)
        _await_rebalance(state)
        for other in state.members:
            other.joined = state.ask("JoinGroup", join_body(GROUP, other.identity), client=other.client, later=True)
    state.members.append(member)
    if state.choose(True, True, True, False):
        sync(state)


def _await_rebalance(state: Programmer) -> None:
    other = state.members[0]
    body = {"groupId": GROUP, "generationId": ref(other.joined, "generationId"), "memberId": other.identity}
    newest = state.make.newest("Heartbeat")
    step = Step(api="Heartbeat", version=newest, body=body, client=other.client, until=REBALANCE_IN_PROGRESS)
    state.make.add(step)


def sync(state: Programmer) -> None:
    """All members send SyncGroup; the first, which is the leader, has the assignments."""
    shares = [
        {"memberId": each.identity, "assignment": {"$hex": f"00{number:02x}"}}
        for number, each in enumerate(state.members)
    ]
    for number, member in enumerate(state.members):
        body = sync_body(GROUP, member.identity, ref(member.joined, "generationId"))
        body["assignments"] = [] if number else shares
        state.ask("SyncGroup", body, client=member.client, later=number > 0)


def heartbeat(state: Programmer) -> None:
    for member in state.members[-1:]:
        generation = state.choose(ref(member.joined, "generationId"), ref(member.joined, "generationId"), 0, 99)
        body = {"groupId": GROUP, "generationId": generation, "memberId": state.choose(member.identity, "unknown")}
        state.ask("Heartbeat", body, client=member.client)


def commit(state: Programmer) -> None:
    """Commits as a member, with an old generation, or without a group."""
    member = state.members[-1] if state.members else None
    if member is None or state.choose(True, False, False):
        state.ask("OffsetCommit", commit_body(GROUP, offset=state.choose(0, 1, 7)), most=9)
        return
    generation = state.choose(ref(member.joined, "generationId"), 0)
    state.ask("OffsetCommit", commit_body(GROUP, member=member.identity, generation=generation), most=9)


def leave(state: Programmer) -> None:
    if state.members:
        member = state.members.pop()
        body = {"groupId": GROUP, "memberId": member.identity, "members": [{"memberId": member.identity}]}
        state.ask("LeaveGroup", body, client=member.client)


def describe(state: Programmer) -> None:
    state.ask("DescribeGroups", {"groups": [GROUP]})
    state.ask("ListGroups", {"statesFilter": [], "typesFilter": []})


def delete_group(state: Programmer) -> None:
    state.ask("DeleteGroups", {"groupsNames": [GROUP]})


def delete_offsets(state: Programmer) -> None:
    rows = [{"name": ONE, "partitions": [{"partitionIndex": 0}]}]
    state.ask("OffsetDelete", {"groupId": GROUP, "topics": rows})


def fetch_offsets(state: Programmer) -> None:
    probe_offsets(state.make)


# ------------------------------------------------------------------ groups of KIP-848


def modern_join(state: Programmer) -> None:
    """A member of the consumer protocol joins, with an id of its own."""
    identity = f"00000000-0000-0000-0000-00000000000{len(state.moderns)}"
    fields = {"memberId": identity, "subscribedTopicNames": state.choose([ONE], [TWO], [ONE, TWO])}
    instance = state.choose(None, None, "i")
    step = state.ask("ConsumerGroupHeartbeat", heartbeat_body(GROUP, **fields, instanceId=instance))
    state.moderns.append((identity, step))


def modern_heartbeat(state: Programmer) -> None:
    """Goes on with what the member was given, or says something wrong."""
    if not state.moderns:
        return
    number = state.make.random.randrange(len(state.moderns))
    identity, step = state.moderns[number]
    owned = state.choose(None, [], {"$ref": [step, "assignment.topicPartitions"], "$else": []})
    body = {
        "groupId": GROUP,
        "memberId": identity,
        "instanceId": None,
        "rackId": None,
        "rebalanceTimeoutMs": -1,
        "memberEpoch": state.choose(ref(step, "memberEpoch"), ref(step, "memberEpoch"), 0, 99, 1),
        "subscribedTopicNames": state.choose(None, None, [TWO]),
        "subscribedTopicRegex": None,
        "serverAssignor": None,
        "topicPartitions": owned,
    }
    again = state.ask("ConsumerGroupHeartbeat", body)
    state.moderns[number] = (identity, again)


def modern_leave(state: Programmer) -> None:
    if state.moderns:
        identity, _ = state.moderns.pop()
        epoch = state.choose(-1, -1, -2)
        body = heartbeat_body(
            GROUP, memberId=identity, memberEpoch=epoch, subscribedTopicNames=None, topicPartitions=None
        )
        state.ask("ConsumerGroupHeartbeat", {**body, "rebalanceTimeoutMs": -1})


def modern_describe(state: Programmer) -> None:
    state.ask("ConsumerGroupDescribe", {"groupIds": [GROUP]})


def modern_commit(state: Programmer) -> None:
    if state.moderns:
        identity, step = state.moderns[-1]
        epoch = state.choose(ref(step, "memberEpoch"), 0, 99)
        state.ask("OffsetCommit", commit_body(GROUP, member=identity, generation=epoch))


def modern_removal(state: Programmer) -> None:
    """LeaveGroup for a member of the consumer protocol, as an administrator sends it."""
    if state.moderns:
        member = {"memberId": state.moderns[-1][0], "groupInstanceId": None, "reason": None}
        state.ask("LeaveGroup", {"groupId": GROUP, "members": [member]})


# ------------------------------------------------------------------ transactions


def begin(state: Programmer) -> None:
    """A producer gets its id: a new instance, which fences the one before, or an idempotent producer."""
    identity = state.choose(TXN, TXN, None)
    body = {"transactionalId": identity, "transactionTimeoutMs": 60_000, "producerId": -1, "producerEpoch": -1}
    if identity is not None:
        state.producers.append(state.ask("InitProducerId", body, most=5))


def _identity(state: Programmer, step: int) -> dict[str, Json]:
    epoch = state.choose(*[ref(step, "producerEpoch")] * 5, 99)
    return {"producerId": ref(step, "producerId"), "producerEpoch": epoch}


def _producer(state: Programmer) -> int:
    if not state.producers:
        begin(state)
    if not state.producers:
        body = {"transactionalId": TXN, "transactionTimeoutMs": 60_000, "producerId": -1, "producerEpoch": -1}
        state.producers.append(state.ask("InitProducerId", body, most=5))
    return state.producers[-1] if state.choose(True, True, True, False) else state.producers[0]


def add_partition(state: Programmer) -> None:
    step = _producer(state)
    identity = _identity(state, step)
    rows = [{"name": state.choose(TWO, TWO, ONE, "no-such%"), "partitions": state.choose([0], [0], [9])}]
    body = {
        "v3AndBelowTransactionalId": TXN,
        "v3AndBelowProducerId": identity["producerId"],
        "v3AndBelowProducerEpoch": identity["producerEpoch"],
        "v3AndBelowTopics": rows,
    }
    state.ask("AddPartitionsToTxn", body, most=3)


def send(state: Programmer) -> None:
    """Produces a transactional batch, in version 11 (partitions were added before) or 12 (the broker adds them)."""
    step = _producer(state)
    sequence = state.sequences.get(step, 0)
    batch = {**_identity(state, step), "baseSequence": sequence + state.choose(0, 0, 0, 0, 5), "attributes": 0x10}
    state.ask("Produce", produce_body(TWO, [batch], TXN), most=state.choose(11, 12))
    state.sequences[step] = sequence + 1


def add_offsets(state: Programmer) -> None:
    step = _producer(state)
    state.ask("AddOffsetsToTxn", {"transactionalId": TXN, **_identity(state, step), "groupId": GROUP}, most=4)


def commit_offsets(state: Programmer) -> None:
    step = _producer(state)
    rows = [{"partitionIndex": 0, "committedOffset": state.choose(1, 2), "committedMetadata": "m"}]
    body = {
        "transactionalId": TXN,
        "groupId": GROUP,
        **_identity(state, step),
        "generationId": state.choose(-1, -1, 5),
        "memberId": "",
        "topics": [{"name": ONE, "partitions": rows}],
    }
    state.ask("TxnOffsetCommit", body, most=state.choose(4, 5))


def end_transaction(state: Programmer) -> None:
    step = _producer(state)
    body = {"transactionalId": TXN, **_identity(state, step), "committed": state.choose(True, True, False)}
    state.ask("EndTxn", body, most=4)
    # the markers arrive in the logs some time after the response: what the next request finds there depends on it
    state.make.add(
        Step(
            api="DescribeTransactions",
            version=0,
            body={"transactionalIds": [TXN]},
            role="probe",
            until_empty="transactionStates.0.topics",
        )
    )


def _end(state: Programmer, step: int, *, committed: bool) -> None:
    identity = {"producerId": ref(step, "producerId"), "producerEpoch": ref(step, "producerEpoch")}
    body = {"transactionalId": TXN, **identity, "committed": committed}
    state.make.add(Step(api="EndTxn", version=4, body=body, role="probe"))


def describe_transaction(state: Programmer) -> None:
    state.ask("DescribeTransactions", {"transactionalIds": [TXN]})
    state.ask("DescribeProducers", {"topics": [{"name": TWO, "partitionIndexes": [0]}]})


def fetch_committed(state: Programmer) -> None:
    read(state.make, TWO, isolation=state.choose(0, 1))


# ------------------------------------------------------------------ fetch sessions, topics and settings


def fetch_in_session(state: Programmer) -> None:
    """Opens a session, or goes on with it: with changes, with a wrong epoch, with nothing."""
    rows = [
        {
            "topic": ONE,
            "partitions": [{"partition": 0, "fetchOffset": state.choose(0, 3, 6, 7), "partitionMaxBytes": 1 << 20}],
        }
    ]
    body: dict[str, Json] = {"maxWaitMs": 0, "minBytes": 1, "maxBytes": 1 << 20, "topics": rows, "sessionEpoch": 0}
    if state.session is not None and state.choose(True, True, True, False):
        opened, epoch = state.session
        body |= {"sessionId": ref(opened, "sessionId"), "sessionEpoch": state.choose(*[epoch] * 5, 99, -1)}
        body["topics"] = state.choose(rows, [])
        if state.choose(True, False, False, False):
            body["forgottenTopicsData"] = [{"topic": ONE, "partitions": [0]}]
        state.session = (opened, epoch + 1)
        state.ask("Fetch", body, most=12)
    else:
        state.session = (state.ask("Fetch", body, most=12), 1)


def produce_plain(state: Programmer) -> None:
    state.ask("Produce", produce_body(ONE, [{}]), most=12)


def create_topic(state: Programmer) -> None:
    if not state.made:
        state.make.add(create(NEW, [[1, 2]], {}, node=state.make.controller))
        for node in (1, 2, 3):
            state.make.add(metadata(NEW, node=node))
        state.made = True


def add_partitions(state: Programmer) -> None:
    create_topic(state)
    row = {"name": NEW, "count": state.choose(1, 2, 3), "assignments": state.choose(None, [{"brokerIds": [2, 3]}])}
    body = {"topics": [row], "timeoutMs": 5_000, "validateOnly": False}
    state.ask("CreatePartitions", body, node=state.make.controller)


def reassign(state: Programmer) -> None:
    create_topic(state)
    replicas = state.choose([1, 2], [2, 1], [2, 3], [1, 2, 3], None)
    rows = [{"name": NEW, "partitions": [{"partitionIndex": 0, "replicas": replicas}]}]
    body = {"topics": rows, "timeoutMs": 5_000}
    state.ask("AlterPartitionReassignments", body, node=state.make.controller)
    for node in (1, 2, 3):
        state.make.add(
            Step(
                api="ListPartitionReassignments",
                version=0,
                node=state.make.controller,
                body={"topics": None, "timeoutMs": 5_000},
                until_empty="topics",
            )
        )
        state.make.add(metadata(NEW, node=node, role="probe"))


def elect(state: Programmer) -> None:
    create_topic(state)
    rows = [{"topic": NEW, "partitions": [0]}]
    body = {"electionType": state.choose(0, 0, 1), "topicPartitions": rows, "timeoutMs": 5_000}
    state.ask("ElectLeaders", body, node=state.make.controller)
    state.make.add(metadata(NEW, role="probe"))


def configure(state: Programmer) -> None:
    create_topic(state)
    name, operation, value = state.choose(
        ("cleanup.policy", 0, "compact"),
        ("cleanup.policy", 2, "compact"),
        ("cleanup.policy", 3, "delete"),
        ("cleanup.policy", 1, None),
        ("retention.ms", 0, "5000"),
        ("retention.ms", 1, None),
        ("retention.ms", 2, "1"),
        ("max.message.bytes", 0, "200"),
        ("min.insync.replicas", 0, "3"),
        ("message.timestamp.type", 0, "LogAppendTime"),
    )
    rows = [{"name": name, "configOperation": operation, "value": value}]
    body = {"resources": [{"resourceType": 2, "resourceName": NEW, "configs": rows}], "validateOnly": False}
    state.ask("IncrementalAlterConfigs", body, node=state.make.controller)
    names = ["cleanup.policy", "retention.ms", "max.message.bytes", "message.timestamp.type"]
    state.make.probe("DescribeConfigs", {"resources": [resource(NEW, names)], "includeSynonyms": True})


Action = Callable[[Programmer], None]
ACTIONS: dict[str, tuple[Action, ...]] = {
    "a classic group": (
        join,
        join,
        sync,
        heartbeat,
        commit,
        leave,
        describe,
        delete_group,
        delete_offsets,
        fetch_offsets,
    ),
    "a group of KIP-848": (
        modern_join,
        modern_heartbeat,
        modern_heartbeat,
        modern_heartbeat,
        modern_leave,
        modern_describe,
        modern_commit,
        modern_removal,
        fetch_offsets,
        describe,
    ),
    "transactions": (
        begin,
        add_partition,
        send,
        send,
        end_transaction,
        end_transaction,
        add_offsets,
        commit_offsets,
        describe_transaction,
        fetch_committed,
    ),
    "a fetch session": (fetch_in_session, fetch_in_session, fetch_in_session, produce_plain),
    "a topic": (add_partitions, reassign, elect, configure, configure),
}
