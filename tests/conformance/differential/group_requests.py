"""Sensible requests of groups, offsets and transactions; see `requests.py`."""

from __future__ import annotations

from typing import Any

from .cases import Json
from .requests import Body, Maker, base, produce_body, producer, read, ref, topic
from .world import ONE, TWO

GROUP, OTHER, TXN = "g%", "h%", "t%"
METADATA = {"$hex": "00000000000100036f6e65ffffffff"}
MEMBER = "00000000-0000-0000-0000-00000000000a"


def join_body(group: str, member: Json, *, instance: str | None = None) -> Body:
    return {
        "groupId": group,
        "sessionTimeoutMs": 30_000,
        "rebalanceTimeoutMs": 3_000,
        "memberId": member,
        "groupInstanceId": instance,
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": METADATA}],
        "reason": None,
    }


def joined(make: Maker, group: str = GROUP, *, synced: bool = True, instance: str | None = None) -> tuple[int, Json]:
    """Adds the steps of a classic member; returns the step of its generation and its member id."""
    first = make.setup("JoinGroup", join_body(group, "", instance=instance), most=9)
    member = ref(first, "memberId")
    second = first if instance else make.setup("JoinGroup", join_body(group, member), most=9)
    if synced:
        make.setup("SyncGroup", sync_body(group, member, ref(second, "generationId"), instance))
    return second, member


def sync_body(group: str, member: Json, generation: Json, instance: str | None = None) -> Body:
    return {
        "groupId": group,
        "generationId": generation,
        "memberId": member,
        "groupInstanceId": instance,
        "protocolType": "consumer",
        "protocolName": "range",
        "assignments": [{"memberId": member, "assignment": {"$hex": "0001"}}],
    }


def commit_body(group: str, *, member: Json = "", generation: Json = -1, offset: int = 3) -> Body:
    rows = [{"partitionIndex": 0, "committedOffset": offset, "committedLeaderEpoch": -1, "committedMetadata": "m"}]
    return {
        "groupId": group,
        "generationIdOrMemberEpoch": generation,
        "memberId": member,
        "groupInstanceId": None,
        "retentionTimeMs": -1,
        "topics": [topic(ONE, "partitions", rows)],
    }


def fetch_body(group: str) -> Body:
    """All forms of OffsetFetch: one group, and a list of groups."""
    rows = [topic(ONE, "partitionIndexes", [0])]
    return {
        "groupId": group,
        "topics": [{"name": ONE, "partitionIndexes": [0]}],
        "requireStable": False,
        "groups": [{"groupId": group, "memberId": None, "memberEpoch": -1, "topics": rows}],
    }


def probe_group(make: Maker, group: str = GROUP) -> None:
    make.probe("DescribeGroups", {"groups": [group]}, most=5)


def probe_offsets(make: Maker, group: str = GROUP) -> None:
    make.probe("OffsetFetch", {"groups": [{"groupId": group, "topics": None}]}, most=9)


def heartbeat_body(group: str, **fields: Any) -> Body:
    return {
        "groupId": group,
        "memberId": MEMBER,
        "memberEpoch": 0,
        "instanceId": None,
        "rackId": None,
        "rebalanceTimeoutMs": 3_000,
        "subscribedTopicNames": [ONE],
        "subscribedTopicRegex": None,
        "serverAssignor": None,
        "topicPartitions": [],
        **fields,
    }


@base
def OffsetCommit(make: Maker) -> None:  # noqa: N802
    if make.random.random() < 0.3:
        step, member = joined(make)
        make.target("OffsetCommit", commit_body(GROUP, member=member, generation=ref(step, "generationId")))
    else:
        make.target("OffsetCommit", commit_body(GROUP))
    probe_offsets(make)


@base
def OffsetFetch(make: Maker) -> None:  # noqa: N802
    make.setup("OffsetCommit", commit_body(GROUP), most=9)
    make.target("OffsetFetch", fetch_body(GROUP))


@base
def OffsetDelete(make: Maker) -> None:  # noqa: N802
    make.setup("OffsetCommit", commit_body(GROUP), most=9)
    rows = [{"partitionIndex": 0}]
    make.target("OffsetDelete", {"groupId": GROUP, "topics": [{"name": ONE, "partitions": rows}]})
    probe_offsets(make)


@base
def JoinGroup(make: Maker) -> None:  # noqa: N802
    member: Json = ""
    if make.version >= 4 and make.random.random() < 0.6:
        member = ref(make.setup("JoinGroup", join_body(GROUP, ""), most=9), "memberId")
    make.target("JoinGroup", join_body(GROUP, member))
    probe_group(make)


@base
def SyncGroup(make: Maker) -> None:  # noqa: N802
    step, member = joined(make, synced=False)
    make.target("SyncGroup", sync_body(GROUP, member, ref(step, "generationId")))
    probe_group(make)


@base
def Heartbeat(make: Maker) -> None:  # noqa: N802
    step, member = joined(make)
    body = {"groupId": GROUP, "generationId": ref(step, "generationId"), "memberId": member}
    make.target("Heartbeat", {**body, "groupInstanceId": None})


@base
def LeaveGroup(make: Maker) -> None:  # noqa: N802
    instance = make.random.choice((None, "i"))
    _, member = joined(make, instance=instance)
    identity = {"memberId": member, "groupInstanceId": instance, "reason": "r"}
    make.target("LeaveGroup", {"groupId": GROUP, "memberId": member, "members": [identity]})
    probe_group(make)


@base
def DescribeGroups(make: Maker) -> None:  # noqa: N802
    joined(make)
    make.target("DescribeGroups", {"groups": [GROUP], "includeAuthorizedOperations": make.random.random() < 0.3})


@base
def ListGroups(make: Maker) -> None:  # noqa: N802
    joined(make)
    make.setup("OffsetCommit", commit_body(OTHER), most=9)
    make.target("ListGroups", {"statesFilter": make.random.choice(([], ["Stable"])), "typesFilter": []})


@base
def DeleteGroups(make: Maker) -> None:  # noqa: N802
    make.setup("OffsetCommit", commit_body(GROUP), most=9)
    make.target("DeleteGroups", {"groupsNames": [GROUP]})
    probe_group(make)


@base
def ConsumerGroupHeartbeat(make: Maker) -> None:  # noqa: N802
    if make.random.random() < 0.5:
        make.target("ConsumerGroupHeartbeat", heartbeat_body(GROUP))
    else:
        first = make.setup("ConsumerGroupHeartbeat", heartbeat_body(GROUP))
        member = ref(first, "memberId")
        kept = {"memberEpoch": ref(first, "memberEpoch"), "memberId": member}
        make.target("ConsumerGroupHeartbeat", heartbeat_body(GROUP, **kept))
    make.probe("ConsumerGroupDescribe", {"groupIds": [GROUP]})


@base
def ConsumerGroupDescribe(make: Maker) -> None:  # noqa: N802
    make.setup("ConsumerGroupHeartbeat", heartbeat_body(GROUP))
    authorized = make.random.random() < 0.3
    make.target("ConsumerGroupDescribe", {"groupIds": [GROUP], "includeAuthorizedOperations": authorized})


# ------------------------------------------------------------------ transactions


@base
def InitProducerId(make: Maker) -> None:  # noqa: N802
    body: Body = {"transactionalId": None, "transactionTimeoutMs": 60_000, "producerId": -1, "producerEpoch": -1}
    form = make.random.choice(("idempotent", "transactional", "again"))
    if form != "idempotent":
        body["transactionalId"] = TXN
    if form == "again":
        step = producer(make, TXN)
        body |= {"producerId": ref(step, "producerId"), "producerEpoch": 0}
    make.target("InitProducerId", body)
    probe_transaction(make)


def probe_transaction(make: Maker) -> None:
    make.probe("DescribeTransactions", {"transactionalIds": [TXN]})


def add_body(step: int, *topics: str) -> Body:
    """All forms of AddPartitionsToTxn: up to version 3, and the list of transactions of later versions."""
    rows = [{"name": name, "partitions": [0]} for name in topics]
    identity = {"producerId": ref(step, "producerId"), "producerEpoch": ref(step, "producerEpoch")}
    batched = {"transactionalId": TXN, **identity, "verifyOnly": False, "topics": rows}
    return {
        "transactions": [batched],
        "v3AndBelowTransactionalId": TXN,
        "v3AndBelowProducerId": identity["producerId"],
        "v3AndBelowProducerEpoch": identity["producerEpoch"],
        "v3AndBelowTopics": rows,
    }


def begun(make: Maker) -> int:
    """Adds a transaction with a record in `two~`; returns the step of its producer."""
    step = producer(make, TXN)
    make.setup("AddPartitionsToTxn", add_body(step, TWO), most=3)
    sent = transactional_batch(step)
    make.setup("Produce", produce_body(TWO, [sent], TXN), most=11)
    return step


def transactional_batch(step: int, sequence: int = 0) -> Json:
    return {
        "producerId": ref(step, "producerId"),
        "producerEpoch": ref(step, "producerEpoch"),
        "baseSequence": sequence,
        "attributes": 0x10,
    }


def end_body(step: int, *, committed: bool) -> Body:
    identity = {"producerId": ref(step, "producerId"), "producerEpoch": ref(step, "producerEpoch")}
    return {"transactionalId": TXN, **identity, "committed": committed}


def end(make: Maker, step: int) -> None:
    """Ends the transaction behind the probes, so that the next case finds no open transaction."""
    make.setup("EndTxn", end_body(step, committed=False), most=4)


@base
def AddPartitionsToTxn(make: Maker) -> None:  # noqa: N802
    step = producer(make, TXN)
    make.target("AddPartitionsToTxn", add_body(step, TWO))
    probe_transaction(make)
    end(make, step)


@base
def AddOffsetsToTxn(make: Maker) -> None:  # noqa: N802
    step = producer(make, TXN)
    make.target("AddOffsetsToTxn", {**end_body(step, committed=False), "groupId": GROUP})
    probe_transaction(make)
    end(make, step)


@base
def EndTxn(make: Maker) -> None:  # noqa: N802
    step = begun(make)
    make.target("EndTxn", end_body(step, committed=make.random.random() < 0.7))
    probe_transaction(make)
    end(make, step)
    read(make, TWO, isolation=1)


@base
def TxnOffsetCommit(make: Maker) -> None:  # noqa: N802
    step = producer(make, TXN)
    make.setup("AddOffsetsToTxn", {**end_body(step, committed=False), "groupId": GROUP}, most=4)
    rows = [{"partitionIndex": 0, "committedOffset": 2, "committedLeaderEpoch": -1, "committedMetadata": "m"}]
    body = {
        **end_body(step, committed=False),
        "groupId": GROUP,
        "generationId": -1,
        "memberId": "",
        "groupInstanceId": None,
        "topics": [{"name": ONE, "partitions": rows}],
    }
    make.target("TxnOffsetCommit", body)
    make.setup("EndTxn", end_body(step, committed=True), most=4)
    probe_offsets(make)


@base
def WriteTxnMarkers(make: Maker) -> None:  # noqa: N802
    step = begun(make)
    identity = {"producerId": ref(step, "producerId"), "producerEpoch": ref(step, "producerEpoch")}
    marker = {
        **identity,
        "transactionResult": make.random.random() < 0.5,
        "coordinatorEpoch": 0,
        "topics": [{"name": TWO, "partitionIndexes": [0]}],
    }
    make.target("WriteTxnMarkers", {"markers": [marker]})
    make.probe("DescribeProducers", {"topics": [{"name": TWO, "partitionIndexes": [0]}]})
    end(make, step)


@base
def DescribeTransactions(make: Maker) -> None:  # noqa: N802
    step = begun(make)
    make.target("DescribeTransactions", {"transactionalIds": [TXN]})
    end(make, step)


@base
def ListTransactions(make: Maker) -> None:  # noqa: N802
    step = begun(make)
    body = {"stateFilters": make.random.choice(([], ["Ongoing"])), "producerIdFilters": [], "durationFilter": -1}
    make.target("ListTransactions", body)
    end(make, step)
