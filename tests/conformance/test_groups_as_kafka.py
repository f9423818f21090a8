"""Classic groups answer each request as those of Apache Kafka 4.2 (G1, G2, G4).

Each script sends requests and notes the answers. `kafka_files/group_answers.json` has the answers of Apache Kafka: on
both sides the notes must equal them. HARROW_RECORD=1 beside HARROW_APACHE=1 writes the file again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from group_scripts import Script, check_answers
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from kafka.admin import KafkaAdminClient
from raw_groups import RANGE, SUBSCRIBES_NOTHING, RawGroup
from raw_transactions import RawProducer
from waiting import until

Code = ErrorCode


def subscription(topic: str) -> bytes:
    name = topic.encode()
    return b"\x00\x00\x00\x00\x00\x01" + len(name).to_bytes(2) + name + b"\xff\xff\xff\xff"


def requests_to_groups_that_do_not_exist(script: Script[RawGroup]) -> None:
    group, note, topic = script.group, script.note, script.topic
    note("join with an unknown id", group.join("m", "made-up"))
    note("join, session too short", group.join("m", session_ms=10))
    note("join, session too long", group.join("m", session_ms=2_000_000))
    for name in ("GROUP", ""):
        at = None if name else ""
        note(f"sync {name}", group.sync("made-up", 1, group=at))
        note(f"heartbeat {name}", group.heartbeat("made-up", 1, group=at))
        note(f"leave {name}", group.leave(("made-up", None), ("", "i"), group=at))
        note(f"delete offsets {name}", group.delete_offsets((topic, 0), group=at))
    for version in (5, 6):
        note(f"describe v{version}", group.describe(version))
    note("leave v2", group.leave_alone("made-up"))
    note("join the empty name", group.join("m", group=""))
    note("join the empty name, session too short", group.join("m", group="", session_ms=10))
    note("commit, generation 3, v8", group.commit(topic, 1, "made-up", 3, 8))
    note("commit, generation 3, v9", group.commit(topic, 1, "made-up", 3, 9))
    note("fetch", group.fetch(group.name, topics={topic: [0, 3]}))
    note("fetch everything", group.fetch(group.name))
    note("delete", group.delete(group.name, group.name))
    note("listed", group.listed())


def a_member_from_its_first_join_to_the_end(script: Script[RawGroup]) -> None:
    group, note, topic = script.group, script.note, script.topic
    protocols = (("range", subscription(topic)), ("sticky", subscription(topic)))
    more: dict[str, Any] = {"protocols": protocols}
    note("join without id", group.join("a", **more))
    note("heartbeat before the join", group.heartbeat("a", 0))
    note("sync before the join", group.sync("a", 0))
    note("commit before the join", group.commit(topic, 1, "a", 0))
    until(lambda: group.state() == "Empty", "the new group is in the log")
    note("described", group.describe())
    note("listed", group.listed())
    note("join of another type", group.join("a", "a", protocol_type=""))
    note("join without protocols", group.join("a", "a", protocols=()))
    note("join", group.join("a", "a", **more))
    note("described", group.describe())
    note("heartbeat", group.heartbeat("a", 1))
    note("heartbeat, older generation", group.heartbeat("a", 0))
    note("heartbeat, unknown member", group.heartbeat("made-up", 1))
    note("join again", group.join("a", "a", **more))
    note("join of another type", group.join("x", "", protocol_type="connect"))
    note("join without a common protocol", group.join("x", "", protocols=(("new", b""),)))
    note("join by an unknown id", group.join("x", "made-up", **more))
    note("commit while completing", group.commit(topic, 1, "a", 1))
    note("simple commit while completing", group.commit(topic, 1))
    note("sync, older generation", group.sync("a", 0))
    note("sync, newer generation", group.sync("a", 2))
    note("sync, unknown member", group.sync("made-up", 1))
    note("sync, another type", group.sync("a", 1, protocol=("connect", "range")))
    note("sync, another protocol", group.sync("a", 1, protocol=("consumer", "sticky")))
    note("sync, neither type nor protocol", group.sync("a", 1, protocol=(None, None)))
    note("sync, no protocol", group.sync("a", 1, protocol=("consumer", None)))
    note("sync", group.sync("a", 1, gives={"a": b"one"}))
    note("sync again", group.sync("a", 1, 5))
    note("sync again v4", group.sync("a", 1, 4))
    note("heartbeat", group.heartbeat("a", 1))
    note("described", group.describe())
    note("described v5", group.describe(5))
    note("listed", group.listed())
    for states in (("stable",), (" Stable ",), ("Empty", "nonsense")):
        note(f"listed {states}", group.listed(states=states))
    for types in (("Classic",), ("consumer",), ("nonsense",)):
        note(f"listed {types}", group.listed(types=types))
    note("commit", group.commit(topic, 5, "a", 1))
    note("commit, older generation", group.commit(topic, 6, "a", 0))
    note("commit, no generation", group.commit(topic, 6, "a", -1))
    note("commit, unknown member", group.commit(topic, 6, "made-up", 1))
    note("simple commit", group.commit(topic, 6))
    note("commit, unknown instance", group.commit(topic, 6, "a", 1, instance="i"))
    note("fetch", group.fetch(group.name, topics={topic: [0]}))
    note("delete offsets", group.delete_offsets((topic, 0)))
    note("delete", group.delete(group.name))
    note("leave with an instance", group.leave(("a", "i")))
    note("leave", group.leave(("a", None), ("a", None), ("made-up", None)))
    note("described", group.describe())
    note("listed", group.listed())
    note("heartbeat", group.heartbeat("a", 1))
    note("heartbeat of the next generation", group.heartbeat("a", 2))
    note("join by the old id", group.join("a", "a", **more))
    note("commit of the old member", group.commit(topic, 6, "a", 1))
    note("simple commit", group.commit(topic, 7))
    note("fetch everything", group.fetch(group.name))
    note("delete", group.delete(group.name))
    note("fetch everything", group.fetch(group.name))
    note("listed", group.listed())


def two_members_while_the_group_rebalances(script: Script[RawGroup]) -> None:
    group, note, topic = script.group, script.note, script.topic
    links = group.stable("a", "b")
    third = group.begin("c")["c"]
    script.await_heartbeat("a", 1, Code.rebalance_in_progress)
    note("described", group.describe())
    note("heartbeat", group.heartbeat("b", 1))
    note("sync", group.sync("a", 1))
    note("commit", group.commit(topic, 3, "a", 1))
    note("commit, unknown member", group.commit(topic, 3, "made-up", 1))
    note("simple commit", group.commit(topic, 3))
    note("delete", group.delete(group.name))
    note("delete offsets", group.delete_offsets((topic, 0)))
    for name, link in links.items():
        group.send_join(link, name)
    members = {**links, "c": third}
    group.take_joins(members)
    note("described while completing", group.describe())
    note("commit while completing", group.commit(topic, 3, "a", 2))
    group.sync_all(members, 2)
    note("described", group.describe())
    note("follower joins again", group.join("b", "b"))
    note("still stable", group.heartbeat("a", 2))
    changed: dict[str, Any] = {"protocols": (("range", SUBSCRIBES_NOTHING), ("sticky", b""))}
    group.send_join(links["b"], "b", **changed)
    script.await_heartbeat("a", 2, Code.rebalance_in_progress)
    group.send_join(links["a"], "a")
    group.send_join(third, "c")
    note("generation", group.complete(members))
    group.send_join(links["a"], "a")
    script.await_heartbeat("b", 3, Code.rebalance_in_progress)
    note("leave while others join", group.leave(("b", None), ("c", None), ("made-up", None)))
    note("the member that is left", group.take_join(links["a"], "a"))
    note("leave", group.leave(("a", None)))
    note("described", group.describe())


def members_that_come_and_leave_before_they_join(script: Script[RawGroup]) -> None:
    group, note = script.group, script.note
    links = group.stable("a", "b")
    note("join without id", group.join("c"))
    note("heartbeat", group.heartbeat("a", 1))
    note("leave", group.leave(("c", None)))
    note("state", group.state())
    note("heartbeat", group.heartbeat("a", 1))
    for name, link in links.items():
        group.send_join(link, name)
    note("generation", group.complete(links))
    note("leave v1", group.leave_alone("b", 1))
    note("leave v1 again", group.leave_alone("b", 1))
    note("heartbeat", group.heartbeat("a", 2))


def static_members(script: Script[RawGroup]) -> None:
    group, note, topic = script.group, script.note, script.topic
    links = {name: group.member_link() for name in ("leader", "follower")}
    for number, (name, link) in enumerate(links.items()):
        group.send_join(link, "", instance=f"i-{name}")
        group.await_size(number + 1)
    group.take_joins(links)
    for name in links:
        note(f"join of {name}", group.join(name, name, instance=f"i-{name}"))
    group.send_sync(links["follower"], "follower", 1, instance="i-follower")
    gives = {"leader": b"first", "follower": b"second"}
    group.send_sync(links["leader"], "leader", 1, gives=gives, instance="i-leader")
    note("sync", [group.take_sync(link) for link in links.values()])
    instance: dict[str, Any] = {"instance": "i-follower"}
    note("unknown id", group.join("x", "made-up", **instance))
    note("unknown instance", group.heartbeat("follower", 1, instance="i-x"))
    note("the follower restarts", group.join("follower-2", **instance))
    note("its older id: heartbeat", group.heartbeat("follower", 1, **instance))
    note("its older id: heartbeat without instance", group.heartbeat("follower", 1))
    note("its older id: sync", group.sync("follower", 1, **instance))
    note("its older id: commit", group.commit(topic, 1, "follower", 1, **instance))
    note("its older id: leave", group.leave(("follower", "i-follower"))[1][0][2])
    note("its older id: join", group.join("x", "follower", **instance)[0])
    note("its assignment", group.sync("follower-2", 1, **instance))
    note("heartbeat", group.heartbeat("follower-2", 1, **instance))
    instance = {"instance": "i-leader"}
    again = group.join("leader-2", version=8, **instance)
    note("the leader restarts v8", again)
    note("the leader restarts v9", group.join("leader-3", **instance))
    note("its assignment", group.sync("leader-3", 1, **instance))
    note("described", [group.state(), len(group.describe()[4])])
    note("commit", group.commit(topic, 1, "leader-3", 1, **instance))
    changed = (*RANGE, ("sticky", b""))
    note("restart with another subscription", group.join("leader-4", protocols=changed, **instance))
    note("state", group.state())
    note("leave by instance", group.leave(("", "i-follower"), ("", "i-x")))
    note("heartbeat", group.heartbeat("leader-4", 1, **instance))


def offsets_of_a_simple_group(script: Script[RawGroup]) -> None:
    group, note, topic = script.group, script.note, script.topic
    other = script.another("other")
    script.aliases[other.name] = "OTHER"
    note("commit", group.commit(topic, 5, metadata="five"))
    note("commit, generation 0", group.commit(topic, 6, "", 0))
    note("commit, named member", group.commit(topic, 6, "me"))
    note("commit, unknown topic", group.commit("nowhere", 1))
    note("commit, unknown partition", group.commit(topic, 1, partition=9))
    note("commit, negative partition", group.commit(topic, 1, partition=-1))
    note("commit, negative offset", group.commit(topic, -1))
    note("commit, long metadata", group.commit(topic, 1, metadata="x" * 5_000))
    note("commit, long metadata, unknown topic", group.commit("nowhere", 1, metadata="x" * 5_000))
    note("commit, stranger, unknown topic", group.commit("nowhere", 1, "made-up", 3))
    for version in (2, 3, 5, 7, 9):
        note(f"commit v{version}", group.commit(topic, version, version=version))
    note("listed", group.listed())
    note("described", group.describe())
    note("fetch", group.fetch(group.name, topics={topic: [0, 9], "nowhere": [0]}))
    note("fetch stable", group.fetch(group.name, stable=True))
    note("fetch of two", group.fetch(group.name, "no-such-group", topics={topic: [0]})[group.name])
    note("delete, nothing there", group.delete_offsets((topic, 9), ("nowhere", 0)))
    note("delete", group.delete_offsets((topic, 0)))
    note("delete again", group.delete_offsets((topic, 0)))
    note("listed", group.listed())
    note("delete the group", group.delete(group.name))
    note("listed", group.listed())
    note("delete unknown offsets of no group", group.delete_offsets((topic, 9), ("nowhere", 0)))
    note("delete no offsets of no group", group.delete_offsets())
    note("commit nothing", group.commit_rows([], "made-up", 3))


def offsets_of_a_topic_that_is_deleted(script: Script[RawGroup]) -> None:
    group, note = script.group, script.note
    first = script.kafka.topic("first", 1)
    script.aliases[first] = "FIRST"
    note("commit", group.commit(first, 5))
    note("commit", group.commit(script.topic, 6))
    admin: Any = KafkaAdminClient(bootstrap_servers=[f"127.0.0.1:{port}" for port in script.kafka.ports.values()])
    admin.delete_topics([first])
    admin.close()
    until(lambda: len(group.fetch(group.name)[group.name]) < 2, "the offset is deleted")
    note("fetch", group.fetch(group.name))


def groups_whose_subscriptions_the_broker_cannot_read(script: Script[RawGroup]) -> None:
    group, note, topic = script.group, script.note, script.topic
    group.stable("a", protocols=(("range", b"?"),))
    note("commit", group.commit(topic, 5, "a", 1))
    note("delete offsets", group.delete_offsets((topic, 0)))
    note("fetch", group.fetch(group.name))
    workers = script.another("workers")
    workers.stable("w", protocol_type="connect")
    note("commit of a worker", workers.commit(topic, 5, "w", 1))
    note("delete offsets of workers", workers.delete_offsets((topic, 0)))
    note("listed", workers.listed())
    note("leave", workers.leave(("w", None))[0])
    note("delete offsets of no worker", workers.delete_offsets((topic, 0)))
    note("listed", workers.listed())


def offsets_that_are_pending_in_a_transaction(script: Script[RawGroup]) -> None:
    group, note, topic = script.group, script.note, script.topic
    client = RawProducer(script.kafka.raw, f"t-{uuid4().hex[:8]}", min(script.kafka.ports))
    client.init()

    def commit(offset: int) -> ErrorCode:
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        answer = group.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            5,
            transactional_id=client.name,
            group_id=group.name,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            generation_id=-1,
            topics=({"name": topic, "partitions": (row,)},),
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    until(lambda: commit(5) is Code.none, "the offset is in the transaction")
    note("listed", group.listed())
    note("fetch", group.fetch(group.name, topics={topic: [0]}))
    note("fetch stable", group.fetch(group.name, topics={topic: [0]}, stable=True))
    note("fetch everything", group.fetch(group.name, stable=True))
    note("delete offsets", group.delete_offsets((topic, 0)))
    note("fetch stable", group.fetch(group.name, topics={topic: [0]}, stable=True))
    note("end", client.end(commit=True).error_code)
    client.await_state("CompleteCommit")
    note("fetch", group.fetch(group.name, topics={topic: [0]}))
    until(lambda: commit(7) is Code.none, "the offset is in the transaction")
    note("delete the group", group.delete(group.name))
    note("fetch stable", group.fetch(group.name, topics={topic: [0]}, stable=True))
    note("end", client.end(commit=True).error_code)
    client.await_state("CompleteCommit")
    note("fetch", group.fetch(group.name, topics={topic: [0]}))
    note("listed", group.listed())
    until(lambda: commit(9) is Code.none, "the offset is in the transaction")
    note("end without a commit", client.end(commit=False).error_code)
    client.await_state("CompleteAbort")
    note("fetch", group.fetch(group.name, topics={topic: [0]}))
    note("listed", group.listed())


def members_that_are_too_late(script: Script[RawGroup]) -> None:
    group, note, topic = script.group, script.note, script.topic
    short: dict[str, Any] = {"session_ms": 1_500, "rebalance_ms": 1_500}
    links = group.stable("a", "b", **short)
    group.send_join(links["a"], "a", **short)
    note("the rebalance ends without b", group.take_join(links["a"], "a"))
    note("b", [group.heartbeat("b", 1), group.sync("b", 1), group.commit(topic, 1, "b", 1)])
    until(lambda: group.heartbeat("a", 2) is Code.unknown_member_id, "a does not sync in time")
    note("described", group.describe())
    links = group.stable("c", **short)
    until(lambda: group.state() == "Empty", "the session of c times out")
    note("c", [group.heartbeat("c", 4), group.heartbeat("c", 5), group.sync("c", 4)])


def joins_of_every_version(script: Script[RawGroup]) -> None:
    for version in range(10):
        group = script.group = script.another(f"v{version}")
        first = group.join("a", version=version)
        script.note(f"join v{version}", first)
        if first[0] is Code.member_id_required:
            script.note(f"join v{version}", group.join("a", "a", version=version))


SCRIPTS: list[Callable[[Script[RawGroup]], None]] = [
    requests_to_groups_that_do_not_exist,
    a_member_from_its_first_join_to_the_end,
    two_members_while_the_group_rebalances,
    members_that_come_and_leave_before_they_join,
    static_members,
    offsets_of_a_simple_group,
    offsets_of_a_topic_that_is_deleted,
    groups_whose_subscriptions_the_broker_cannot_read,
    offsets_that_are_pending_in_a_transaction,
    members_that_are_too_late,
    joins_of_every_version,
]


@pytest.mark.parametrize("play", SCRIPTS, ids=lambda play: play.__name__)
def test_a_group_answers_as_in_kafka(kafka: Any, play: Callable[[Script[RawGroup]], None]) -> None:
    script = Script(kafka, RawGroup)
    play(script)
    check_answers(script, play.__name__, "group_answers.json")
