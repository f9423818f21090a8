"""Sensible requests of share groups, of the state that they store, and of streams groups; see `requests.py`.

A share group begins at the end of its topic. So the steps before a ShareFetch let the member get its partition, open
its share session, and only then produce a batch: the session's next ShareFetch acquires these records.
"""

from __future__ import annotations

from typing import Any

from .cases import Json, Step
from .group_requests import GROUP, MEMBER
from .requests import Body, Maker, base, produce_body, ref
from .world import ONE, TWO

SHARE_MEMBER = "AAAAAAAAAAAAAAAAAAAACg"
"""Brokers read the member of a share session as Kafka's form of a UUID."""
OPEN_MS = 200
"""A new session waits so long for records: Kafka answers without partitions while it still reads their state."""
STATE_TOPIC = {"$topicId": ONE}


def share_heartbeat(**fields: Any) -> Body:
    return {
        "groupId": GROUP,
        "memberId": SHARE_MEMBER,
        "memberEpoch": 0,
        "rackId": None,
        "subscribedTopicNames": [ONE],
        **fields,
    }


def share_member(make: Maker) -> int:
    """Adds a member that has its partition; returns the step of its first heartbeat."""
    first = make.setup("ShareGroupHeartbeat", share_heartbeat())
    body = share_heartbeat(memberEpoch=ref(first, "memberEpoch"))
    version = make.newest("ShareGroupHeartbeat")
    make.add(Step(api="ShareGroupHeartbeat", version=version, body=body, until_filled="assignment.topicPartitions"))
    return first


def share_fetch(epoch: int, acknowledged: list[Json] | None = None, **fields: Any) -> Body:
    rows = [{"partitionIndex": 0, "partitionMaxBytes": 1 << 20, "acknowledgementBatches": acknowledged or []}]
    return {
        "groupId": GROUP,
        "memberId": SHARE_MEMBER,
        "shareSessionEpoch": epoch,
        "maxWaitMs": 0,
        "minBytes": 1,
        "maxBytes": 1 << 20,
        "maxRecords": 10,
        "batchSize": 10,
        "topics": [{"topicId": {"$topicId": ONE}, "partitions": rows}],
        "forgottenTopicsData": [],
        **fields,
    }


def session(make: Maker) -> None:
    """Adds a share session of a member, and a batch of three records behind its beginning."""
    share_member(make)
    make.setup("ShareFetch", share_fetch(0, maxWaitMs=OPEN_MS))
    records = [{"records": [{"value": "a"}, {"value": "b"}, {"value": "c"}]}]
    make.setup("Produce", produce_body(ONE, records), most=12)


def acquired(make: Maker) -> tuple[Json, Json]:
    """Adds a share session that has acquired three records; returns the first and the last offset."""
    session(make)
    step = make.setup("ShareFetch", share_fetch(1, maxWaitMs=500))
    path = "responses.0.partitions.0.acquiredRecords.0"
    return ref(step, f"{path}.firstOffset"), ref(step, f"{path}.lastOffset")


def close_session(make: Maker) -> None:
    """Releases what the member holds, so that no lock of the case runs out beside later ones."""
    body: Body = {"groupId": GROUP, "memberId": SHARE_MEMBER, "shareSessionEpoch": -1, "topics": []}
    version = make.newest("ShareAcknowledge")
    make.add(Step(api="ShareAcknowledge", version=version, body=body, role="cleanup"))


def acknowledged(make: Maker, first: Json, last: Json) -> list[Json]:
    kinds = ([1], [2], [3], [1, 2, 3], [0, 1, 1])
    return [{"firstOffset": first, "lastOffset": last, "acknowledgeTypes": make.random.choice(kinds)}]


def leave_share_group(make: Maker) -> None:
    make.setup("ShareGroupHeartbeat", share_heartbeat(memberEpoch=-1))


def probe_share_group(make: Maker) -> None:
    make.probe("ShareGroupDescribe", {"groupIds": [GROUP]})


def probe_share_offsets(make: Maker) -> None:
    make.probe("DescribeShareGroupOffsets", {"groups": [{"groupId": GROUP, "topics": None}]})


# ------------------------------------------------------------------ share groups


@base
def ShareGroupHeartbeat(make: Maker) -> None:  # noqa: N802 - the name of the request
    if make.random.random() < 0.5:
        make.target("ShareGroupHeartbeat", share_heartbeat())
    else:
        first = share_member(make)
        kept = {"memberEpoch": ref(first, "memberEpoch"), "subscribedTopicNames": make.random.choice((None, [ONE]))}
        make.target("ShareGroupHeartbeat", share_heartbeat(**kept))
    probe_share_group(make)


@base
def ShareGroupDescribe(make: Maker) -> None:  # noqa: N802
    share_member(make)
    authorized = make.random.random() < 0.3
    make.target("ShareGroupDescribe", {"groupIds": [GROUP], "includeAuthorizedOperations": authorized})


@base
def ShareFetch(make: Maker) -> None:  # noqa: N802
    form = make.random.choice(("open", "next", "next", "acknowledge"))
    if form == "open":
        share_member(make)
        make.target("ShareFetch", share_fetch(0, maxWaitMs=OPEN_MS))
    elif form == "next":
        session(make)
        make.target("ShareFetch", share_fetch(1, maxWaitMs=500))
    else:
        first, last = acquired(make)
        make.target("ShareFetch", share_fetch(2, acknowledged(make, first, last), maxWaitMs=OPEN_MS))
    close_session(make)


@base
def ShareAcknowledge(make: Maker) -> None:  # noqa: N802
    first, last = acquired(make)
    body = {
        "groupId": GROUP,
        "memberId": SHARE_MEMBER,
        "shareSessionEpoch": 2,
        "topics": [
            {
                "topicId": {"$topicId": ONE},
                "partitions": [{"partitionIndex": 0, "acknowledgementBatches": acknowledged(make, first, last)}],
            }
        ],
    }
    make.target("ShareAcknowledge", body)
    make.probe("ShareFetch", share_fetch(3, maxWaitMs=OPEN_MS), most=1)
    close_session(make)


@base
def DescribeShareGroupOffsets(make: Maker) -> None:  # noqa: N802
    session(make)
    topics = make.random.choice((None, [{"topicName": ONE, "partitions": [0]}]))
    make.target("DescribeShareGroupOffsets", {"groups": [{"groupId": GROUP, "topics": topics}]})
    close_session(make)


@base
def AlterShareGroupOffsets(make: Maker) -> None:  # noqa: N802
    share_member(make)
    if make.random.random() < 0.8:
        leave_share_group(make)
    rows = [{"partitionIndex": 0, "startOffset": make.random.choice((0, 3))}]
    make.target("AlterShareGroupOffsets", {"groupId": GROUP, "topics": [{"topicName": ONE, "partitions": rows}]})
    probe_share_offsets(make)


@base
def DeleteShareGroupOffsets(make: Maker) -> None:  # noqa: N802
    share_member(make)
    if make.random.random() < 0.8:
        leave_share_group(make)
    make.target("DeleteShareGroupOffsets", {"groupId": GROUP, "topics": [{"topicName": ONE}]})
    probe_share_offsets(make)


# ------------------------------------------------------------------ the state of share groups


def state(row: Body) -> Body:
    """Returns a request about the stored state of partition 0."""
    return {"groupId": GROUP, "topics": [{"topicId": STATE_TOPIC, "partitions": [{"partition": 0, **row}]}]}


INITIAL: Body = {"stateEpoch": 1, "startOffset": 2}


def written(make: Maker) -> Body:
    batches = [
        {"firstOffset": 2, "lastOffset": 4, "deliveryState": 0, "deliveryCount": 1},
        {"firstOffset": 5, "lastOffset": 5, "deliveryState": make.random.choice((0, 2, 4)), "deliveryCount": 2},
    ]
    return {
        "stateEpoch": 1,
        "leaderEpoch": 0,
        "startOffset": 2,
        "deliveryCompleteCount": 0,
        "stateBatches": batches[: make.random.choice((1, 2, 2))],
    }


def initialized(make: Maker) -> None:
    make.setup("InitializeShareGroupState", state(INITIAL))


def probe_state(make: Maker) -> None:
    make.probe("ReadShareGroupStateSummary", state({"leaderEpoch": -1}))
    make.probe("ReadShareGroupState", state({"leaderEpoch": -1}))


@base
def InitializeShareGroupState(make: Maker) -> None:  # noqa: N802
    if make.random.random() < 0.3:
        initialized(make)
    make.target("InitializeShareGroupState", state(INITIAL))
    probe_state(make)


@base
def WriteShareGroupState(make: Maker) -> None:  # noqa: N802
    if make.random.random() < 0.9:
        initialized(make)
    if make.random.random() < 0.3:
        make.setup("WriteShareGroupState", state(written(make)))
    make.target("WriteShareGroupState", state(written(make)))
    probe_state(make)


@base
def ReadShareGroupState(make: Maker) -> None:  # noqa: N802
    initialized(make)
    make.setup("WriteShareGroupState", state(written(make)))
    make.target("ReadShareGroupState", state({"leaderEpoch": make.random.choice((-1, 0, 1))}))
    probe_state(make)


@base
def ReadShareGroupStateSummary(make: Maker) -> None:  # noqa: N802
    initialized(make)
    make.setup("WriteShareGroupState", state(written(make)))
    make.target("ReadShareGroupStateSummary", state({"leaderEpoch": make.random.choice((-1, 0, 1))}))
    probe_state(make)


@base
def DeleteShareGroupState(make: Maker) -> None:  # noqa: N802
    if make.random.random() < 0.8:
        initialized(make)
    make.target("DeleteShareGroupState", state({}))
    probe_state(make)


# ------------------------------------------------------------------ streams groups


def topology(make: Maker) -> Body:
    """Returns a topology with a changelog, and in one of its forms with two source topics."""
    sources = make.random.choice(([ONE], [ONE], [ONE, TWO]))
    changelog: Body = {"name": "changelog%", "partitions": 0, "replicationFactor": 1, "topicConfigs": []}
    return {
        "epoch": 0,
        "subtopologies": [
            {
                "subtopologyId": "0",
                "sourceTopics": sources,
                "sourceTopicRegex": [],
                "stateChangelogTopics": [changelog] * make.random.choice((0, 0, 1)),
                "repartitionSinkTopics": [],
                "repartitionSourceTopics": [],
                "copartitionGroups": [],
            }
        ],
    }


def streams_heartbeat(make: Maker, **fields: Any) -> Body:
    return {
        "groupId": GROUP,
        "memberId": MEMBER,
        "memberEpoch": 0,
        "endpointInformationEpoch": 0,
        "instanceId": None,
        "rackId": None,
        "rebalanceTimeoutMs": 3_000,
        "topology": topology(make),
        "activeTasks": [],
        "standbyTasks": [],
        "warmupTasks": [],
        "processId": "p",
        "userEndpoint": make.random.choice((None, {"host": "h", "port": 9})),
        "clientTags": [{"key": "zone", "value": "a"}] * make.random.choice((0, 1)),
        "taskOffsets": None,
        "taskEndOffsets": None,
        "shutdownApplication": False,
        **fields,
    }


def probe_streams_group(make: Maker) -> None:
    make.probe("StreamsGroupDescribe", {"groupIds": [GROUP]})


@base
def StreamsGroupHeartbeat(make: Maker) -> None:  # noqa: N802
    if make.random.random() < 0.6:
        make.target("StreamsGroupHeartbeat", streams_heartbeat(make))
    else:
        first = make.setup("StreamsGroupHeartbeat", streams_heartbeat(make))
        kept: dict[str, Json] = {"memberEpoch": ref(first, "memberEpoch"), "topology": None}
        make.target("StreamsGroupHeartbeat", streams_heartbeat(make, **kept))
    probe_streams_group(make)


@base
def StreamsGroupDescribe(make: Maker) -> None:  # noqa: N802
    make.setup("StreamsGroupHeartbeat", streams_heartbeat(make))
    described = make.random.random() < 0.3
    make.target("StreamsGroupDescribe", {"groupIds": [GROUP], "includeTopologyDescription": described})


@base
def StreamsGroupTopologyDescriptionUpdate(make: Maker) -> None:  # noqa: N802
    make.setup("StreamsGroupHeartbeat", streams_heartbeat(make))
    node = {"name": "source", "nodeType": 1, "sourceTopics": [ONE], "sinkTopic": None, "stores": [], "successors": []}
    described = {"subtopologies": [{"subtopologyId": "0", "nodes": [node]}], "globalStores": []}
    body = {"groupId": GROUP, "memberId": MEMBER, "topologyEpoch": 0, "topologyDescription": described}
    make.target("StreamsGroupTopologyDescriptionUpdate", body)
    make.probe("StreamsGroupDescribe", {"groupIds": [GROUP], "includeTopologyDescription": True})
