"""Fetch sessions of followers (KIP-227): what a fetch names, what a response carries, and what ends a session."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode, StorageError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.batches import build_batch
from harrow.cluster.wire.fetch import FetchPartition, FetchRequest, decode_fetch, encode_fetch_request
from harrow.cluster.wire.fetch_response import FetchResponse, decode_fetch_response
from harrow.cluster.wire.request import Request

from .simulation import SimBroker, Simulation

TPS = [TopicPartition("orders", index) for index in range(5)]
LAG_MS = 300


class FetchRecorder:
    """Records the follower fetches that a broker serves, and the responses."""

    def __init__(self, broker: SimBroker) -> None:
        self.fetches: list[tuple[FetchRequest, FetchResponse]] = []
        self._serve = broker.serve
        setattr(broker, "serve", self.serve)  # noqa: B010 - records, then calls the real method

    def serve(self, request: Request) -> None:
        if request.api_key != 1:
            self._serve(request)
            return
        fetch = decode_fetch(request)

        def complete(parts: Any, on_send: Any) -> None:
            body = b"".join(bytes(part) for part in parts)
            self.fetches.append((fetch, decode_fetch_response(request.version, body)))
            request.respond_parts(parts, on_send=on_send)

        recorded = Request(
            request.api_key,
            request.version,
            request.correlation_id,
            request.client_id,
            request.frame,
            request.body_at,
            request.context,
            request.received_ns,
            complete,
        )
        self._serve(recorded)

    def of(self, node: int) -> list[tuple[FetchRequest, FetchResponse]]:
        return [row for row in self.fetches if row[0].replica_id == node]


def cluster(**config: object) -> Simulation:
    sim = Simulation(3, seed=3, config={"replica.lag.time.max.ms": LAG_MS, **config})
    for tp in TPS:
        sim.create(tp, [1, 2, 3])
    sim.loop.run_for(700)  # every follower has a session with one completed wait
    return sim


def produced(sim: Simulation, tp: TopicPartition, leader: int = 1) -> None:
    results = sim.produce(leader, tp, [b"a"])
    assert sim.loop.run_until(lambda: bool(results), 5_000)
    assert results[0].error is ErrorCode.none


def test_session_fetches_and_responses_carry_only_changed_partitions() -> None:
    sim = cluster()
    recorder = FetchRecorder(sim.brokers[1])
    produced(sim, TPS[2])
    sim.loop.run_for(1_200)
    fetches = recorder.of(2)
    assert len(fetches) >= 2
    assert len({fetch.session_id for fetch, _ in fetches}) == 1
    assert all(fetch.session_id > 0 for fetch, _ in fetches)
    epochs = [fetch.session_epoch for fetch, _ in fetches]
    assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))
    named = [row.partition for fetch, _ in fetches for row in fetch.partitions]
    sent = [row.partition for _, response in fetches for row in response.partitions]
    assert named == [2]  # once, after the follower appended the record
    assert sent == [2]  # the high watermark; the earlier fetch's response carried the record
    assert all(sim.partition(node, TPS[2]).high_watermark == 1 for node in (1, 2, 3))


def test_idle_partitions_stay_in_sync() -> None:
    """An append finds each follower caught up at its session's last fetch, although no fetch named the partition."""
    sim = cluster()
    sim.loop.run_for(20 * LAG_MS)
    for tp in TPS:
        sim.produce(1, tp, [b"a"], acks=1)
        remotes = [sim.partition(1, tp).remote(node) for node in (2, 3)]
        assert [remote.log_end_offset for remote in remotes] == [0, 0], "no fetch has named the partition since"
        assert all(sim.loop.now_ms - remote.last_caught_up_ms <= 502 for remote in remotes)
    sim.loop.run_for(3 * LAG_MS)
    assert [sim.registry.states[tp].isr for tp in TPS] == [[1, 2, 3]] * len(TPS)


def test_session_fetch_visits_only_the_changed_partitions() -> None:
    sim = cluster()
    sim.loop.run_for(1_200)
    sessions = [sim.partition(1, TPS[0]).remote(node).session_row.session for node in (2, 3)]
    assert [len(session) for session in sessions] == [len(TPS)] * 2
    assert [list(session.changed_rows) for session in sessions] == [[], []]
    assert [list(session.rows_outside_isr) for session in sessions] == [[], []]
    sim.produce(1, TPS[3], [b"a"], acks=1)
    changed = [[row.row.partition for row in s.changed_rows.values()] for s in sessions]
    assert changed == [[3], [3]]
    sim.loop.run_for(1_200)
    assert [list(session.changed_rows) for session in sessions] == [[], []]


def test_changed_log_start_is_sent_to_the_followers_and_named_by_them() -> None:
    sim = cluster()
    produced(sim, TPS[2])
    sim.loop.run_for(1_200)
    sim.partition(1, TPS[2]).log.increment_log_start_offset(1)
    sim.loop.run_for(1_200)
    assert [sim.partition(node, TPS[2]).log.log_start_offset for node in (1, 2, 3)] == [1, 1, 1]
    assert sim.partition(1, TPS[2]).low_watermark == 1
    # A follower's own retention counts, too.
    produced(sim, TPS[2])
    sim.loop.run_for(1_200)
    sim.partition(3, TPS[2]).log.increment_log_start_offset(2)
    sim.loop.run_for(1_200)
    assert sim.partition(1, TPS[2]).remote(3).log_start_offset == 2


def test_follower_joins_the_isr_without_a_fetch_that_names_the_partition() -> None:
    """The follower's broker becomes alive for metadata after it caught up: the session rechecks the partition."""
    sim = cluster()
    sim.missing_in_metadata.add(3)
    sim.elect(TPS[0], 1, [1, 2])
    sim.loop.run_for(1_200)
    assert sim.registry.states[TPS[0]].isr == [1, 2]
    assert sim.brokers[1].traced("partition.isr-expansion") == []
    sim.missing_in_metadata.clear()
    sim.loop.run_for(1_200)
    assert sim.registry.states[TPS[0]].isr == [1, 2, 3]
    [row] = sim.brokers[1].traced("partition.isr-expansion")
    assert (row["leader"], row["isr"], row["added"], row["live"]) == (1, [1, 2, 3], 3, [1, 2, 3])


def test_new_leader_of_one_partition_ends_the_session_and_the_others_continue() -> None:
    sim = cluster()
    recorder = FetchRecorder(sim.brokers[1])
    sim.elect(TPS[0], 2)
    sim.loop.run_for(200)
    for tp in TPS:
        produced(sim, tp, 2 if tp is TPS[0] else 1)
    sim.loop.run_for(1_200)
    full = [fetch for fetch, _ in recorder.of(3) if fetch.session_id == 0 and fetch.partitions]
    assert full
    last = recorder.of(3)[-1][0]
    assert last.session_id > 0
    assert [sim.partition(n, tp).log_end_offset for tp in TPS for n in (1, 2, 3)] == [1] * 15


def test_new_epoch_of_the_same_leader_ends_the_session() -> None:
    sim = cluster()
    recorder = FetchRecorder(sim.brokers[1])
    sim.elect(TPS[0], 1)
    sim.loop.run_for(1_200)
    fulls = [fetch for fetch, _ in recorder.of(2) if fetch.session_epoch == 0]
    assert {row.current_leader_epoch for row in fulls[-1].partitions if row.partition == 0} == {1}
    produced(sim, TPS[0])


def test_full_fetch_follows_a_restart_of_the_leader() -> None:
    sim = cluster()
    sim.brokers[1].kill()
    sim.loop.run_for(100)
    sim.brokers[1].start()
    for tp in TPS:
        sim.elect(tp, 1, [1, 2, 3])
    sim.loop.run_for(1_500)
    for tp in TPS:
        produced(sim, tp)


def test_full_responses_starve_no_partition() -> None:
    sim = cluster(**{"replica.fetch.response.max.bytes": 400, "replica.fetch.max.bytes": 400})
    for _ in range(20):
        for tp in TPS:
            sim.produce(1, tp, [b"x" * 300], acks=1)
    sim.loop.run_for(3_000)
    assert [sim.partition(n, tp).log_end_offset for tp in TPS for n in (2, 3)] == [20] * 10


ROW = FetchPartition("", 0, -1, 0, -1, 0, 1000)
SESSION_FETCH = FetchRequest(-1, -1, 0, 0, 1000, 0, 7, 1, [], [], "")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"session_id": 7}, ErrorCode.fetch_session_id_not_found),  # a consumer never has a session
        ({"replica_id": 3, "session_id": 10_000}, ErrorCode.fetch_session_id_not_found),
        ({"replica_id": 2, "wrong": "epoch"}, ErrorCode.invalid_fetch_session_epoch),
        ({"replica_id": 2, "wrong": "incarnation"}, ErrorCode.fetch_session_id_not_found),
        ({"replica_id": 2, "wrong": "row"}, ErrorCode.fetch_session_id_not_found),
    ],
)
def test_fetch_that_is_not_the_next_of_its_session_is_refused(changed: dict[str, Any], code: ErrorCode) -> None:
    sim = cluster()
    recorder = FetchRecorder(sim.brokers[1])
    produced(sim, TPS[0])
    sim.loop.run_for(700)  # the next fetch waits at the leader now
    known = recorder.of(2)[-1][0]
    wrong = changed.pop("wrong", "")
    fetch = SESSION_FETCH._replace(**changed)
    if wrong:
        fetch = fetch._replace(
            session_id=known.session_id,
            session_epoch=known.session_epoch + (5 if wrong == "epoch" else 2),
            replica_epoch=known.replica_epoch + (wrong == "incarnation"),
            partitions=[ROW._replace(topic=sim.topic_id("orders"), partition=77)],
        )
    promise = sim.loop_promise()
    body = encode_fetch_request(17, fetch)
    sim.send(sim.brokers[1], 1, 17, body, "test", promise)
    assert sim.loop.run_until(promise.done, 1_000)
    assert decode_fetch_response(17, bytes(promise.result())).error == code
    produced(sim, TPS[1])  # the follower continues, with a full fetch if necessary


def test_failed_log_ends_the_session() -> None:
    sim = cluster()
    partition = sim.partition(1, TPS[0])
    partition.fail()
    sim.brokers[1].replicas.wake_ups.roles_changed((partition,))
    sim.loop.run_for(100)
    for tp in TPS[1:]:
        produced(sim, tp)


@pytest.mark.parametrize("data", [True, False])
def test_log_failure_caused_by_an_acknowledgement_ends_the_session_at_once(data: bool) -> None:
    """The fetch advances one HW; the acknowledged producer then makes another partition's log fail."""
    sim = cluster()
    recorder = FetchRecorder(sim.brokers[1])
    manager, other = sim.brokers[1].replicas, sim.partition(1, TPS[3])
    acknowledged: list[float] = []

    def fail(_results: object) -> None:
        acknowledged.append(sim.loop.now_ms)
        if data:
            sim.produce(1, TPS[3], [b"a"], acks=1)
        manager.log_failures.log_failed(other, StorageError("the disk failed"))

    records = build_batch([(None, b"a", ())], timestamp_ms=1)
    manager.append({TPS[0]: records}, acks=-1, timeout_ms=5_000, done=fail)
    assert sim.loop.run_until(lambda: bool(acknowledged), 1_000)
    sim.loop.run_for(50)
    for node in (2, 3):
        ended = [response for _, response in recorder.of(node) if response.error]
        assert [response.error for response in ended] == [ErrorCode.fetch_session_id_not_found]
    served = [row for _, response in recorder.fetches for row in response.partitions if not row.error]
    assert not [row for row in served if row.partition == 3 and len(row.records)]
    for tp in (TPS[1], TPS[2]):
        produced(sim, tp)


def test_end_of_a_session_keeps_the_time_at_which_idle_followers_were_caught_up() -> None:
    """A link fails shortly after a session ended: the follower has the whole lag time from its last fetch on."""
    sim = cluster(**{"replica.lag.time.max.ms": 3_000})
    sim.loop.run_for(20_000)
    sim.blocked.add((3, 1))
    sim.elect(TPS[0], 1)  # ends all sessions of this leader
    sim.loop.run_for(20)
    sim.produce(1, TPS[1], [b"a"], acks=1)
    assert sim.loop.now_ms - sim.partition(1, TPS[1]).remote(3).last_caught_up_ms <= 525
    sim.loop.run_for(1_600)  # a check of the ISR, half a lag time after the last
    assert sim.registry.states[TPS[1]].isr == [1, 2, 3]
    sim.loop.run_for(5_000)
    assert sim.registry.states[TPS[1]].isr == [1, 2]


def test_a_restarted_follower_without_its_last_records_keeps_the_lag_time() -> None:
    """Its new registration voids its offsets (KIP-903), but not when the idle partition was caught up."""
    sim = cluster()
    recorder = FetchRecorder(sim.brokers[1])
    produced(sim, TPS[1])
    sim.loop.run_for(20 * LAG_MS)
    last = recorder.of(3)[-1][0]
    row = ROW._replace(topic=sim.topic_id("orders"), partition=1, current_leader_epoch=0)
    full = last._replace(session_id=0, session_epoch=0, replica_epoch=last.replica_epoch + 1, partitions=[row])
    sim.send(sim.brokers[1], 1, 17, encode_fetch_request(17, full), "3", sim.loop_promise())
    remote = sim.partition(1, TPS[1]).remote(3)
    assert sim.loop.run_until(lambda: remote.broker_epoch == full.replica_epoch, 100)
    assert remote.log_end_offset == 0, "the leader's log ends at 1"
    assert sim.loop.now_ms - remote.last_caught_up_ms <= 510
