"""Random kills, isolations, elections and lost registry responses lose no acknowledged record.

acks=all, min.insync.replicas=2, clean elections (spec H4). One idempotent producer retries until its batch is
acknowledged; the other producers send each record once and store which records were acknowledged. At the end all
faults heal. Then every acknowledged record is at its acknowledged offset in every replica, the replicas are equal
byte for byte, and the records of the idempotent producer are stored once and in order.
"""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.batches import headers

from .simulation import Simulation

TP = TopicPartition("orders", 0)
CONFIG: dict[str, object] = {
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 200,
    "replica.fetch.wait.max.ms": 50,
    "replica.fetch.backoff.ms": 50,
    "replica.socket.timeout.ms": 300,
}


class Nemesis:
    """Causes random faults one after another, acts as the controller, and runs the producers."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.random = sim.random
        self.isolated: set[int] = set()
        self.acked: dict[int, bytes] = {}
        self.sent = 0
        self.sequence = 0
        self.pending: list[Any] | None = None
        self.pending_value = b""

    # --- controller

    def usable(self, node: int) -> bool:
        return self.sim.brokers[node].alive and node not in self.isolated

    def session_ended(self, node: int) -> None:
        """D4: a broker without a session leaves the ISR, unless it is the last member; the next live replica leads."""
        state = self.sim.registry.states[TP]
        if node not in state.isr and state.leader != node:
            return
        isr = [replica for replica in state.isr if replica != node] or state.isr
        leader = state.leader
        if leader == node or leader < 0:
            alive = [
                replica for replica in state.replicas if replica in isr and self.usable(replica)
            ]
            leader = alive[0] if alive else -1
        self.elect(leader, isr)

    def joined(self, node: int) -> None:
        state = self.sim.registry.states[TP]
        if state.leader < 0 and node in state.isr:
            self.elect(node, state.isr)
        self.sim.send_leader_and_isr(TP, [node])

    def elect(self, leader: int, isr: list[int]) -> None:
        state = self.sim.registry.states[TP]
        state.leader, state.isr = leader, list(isr)
        state.leader_epoch += 1
        state.version += 1
        self.sim.send_leader_and_isr(TP, [node for node in state.replicas if self.usable(node)])

    # --- faults

    def kill(self) -> None:
        up = [node for node in self.sim.brokers if self.usable(node)]
        if len(up) < 2:
            return
        node = self.random.choice(up)
        self.sim.brokers[node].kill()
        self.later(self.random.uniform(1, 60), lambda: self.session_ended(node))
        self.later(self.random.uniform(2, 400), lambda: self.restart(node))

    def restart(self, node: int) -> None:
        broker = self.sim.brokers[node]
        if broker.alive:
            return
        broker.start()
        self.session_ended(node)  # a quick restart is a failure followed by a start (D6)
        self.joined(node)

    def isolate(self) -> None:
        up = [node for node in self.sim.brokers if self.usable(node)]
        if len(up) < 2:
            return
        node = self.random.choice(up)
        self.isolated.add(node)
        self.sim.registry.unreachable_from.add(node)
        for other in self.sim.brokers:
            self.sim.blocked |= {(node, other), (other, node)}
        self.later(self.random.uniform(20, 80), lambda: self.session_ended_if_isolated(node))
        self.later(self.random.uniform(30, 500), lambda: self.rejoin(node))

    def session_ended_if_isolated(self, node: int) -> None:
        if node in self.isolated:
            self.session_ended(node)

    def rejoin(self, node: int) -> None:
        if node not in self.isolated:
            return
        self.isolated.discard(node)
        self.sim.registry.unreachable_from.discard(node)
        self.sim.blocked = {pair for pair in self.sim.blocked if node not in pair}
        for other in self.isolated:
            self.sim.blocked |= {(node, other), (other, node)}
        broker = self.sim.brokers[node]
        if broker.alive:
            broker.register()
            self.session_ended(node)
            self.joined(node)

    def elect_another_leader(self) -> None:
        """Run a preferred election, sometimes two at once, so that a broker may miss an epoch."""
        state = self.sim.registry.states[TP]
        for _ in range(self.random.choice((1, 1, 2))):
            able = [replica for replica in state.isr if self.usable(replica)]
            if able:
                self.elect(self.random.choice(able), state.isr)

    def flaky_registry(self) -> None:
        self.sim.registry.lose_responses += 1
        self.sim.registry.delay_ms = self.random.choice((0.5, 1.0, 20.0))

    # --- clients

    def leaders(self) -> list[int]:
        """Return every broker that acts as leader, including zombies."""
        found: list[int] = []
        for node, broker in self.sim.brokers.items():
            partition = self.sim.partition(node, TP)
            if broker.alive and partition is not None and partition.is_leader:
                found.append(node)
        return found

    def produce_once(self) -> None:
        leaders = self.leaders()
        if not leaders:
            return
        node = self.random.choice(leaders)
        self.sent += 1
        value = b"produce_once-%d" % self.sent
        timeout = self.random.choice((5, 50, 500))

        def record_acknowledgement() -> None:
            if results and results[0].error is ErrorCode.none:
                self.acked[results[0].base_offset] = value

        results: list[Any] = self.sim.produce(node, TP, [value], timeout_ms=timeout)
        broker, incarnation = self.sim.brokers[node], self.sim.brokers[node].incarnations

        def check() -> None:
            if results:
                record_acknowledgement()
            elif broker.alive and broker.incarnations == incarnation:
                self.later(1, check)

        check()

    def produce_idempotently(self) -> None:
        """Send the idempotent producer's batch again until it is acknowledged."""
        if self.pending and self.pending[0].error is ErrorCode.none:
            self.acked[self.pending[0].base_offset] = self.pending_value
            self.sequence += 1
            self.pending_value = b""
        self.pending = None
        self.pending_value = b"once-%d" % self.sequence
        leaders = self.leaders()
        if leaders:
            self.pending = self.sim.produce(
                self.random.choice(leaders), TP, [self.pending_value],
                timeout_ms=30, producer_id=7, producer_epoch=0, base_sequence=self.sequence,
            )  # fmt: skip

    # --- the run

    def later(self, delay_ms: float, call: Any) -> None:
        self.sim.later(delay_ms, call)

    def run(self, steps: int) -> None:
        faults = [self.kill, self.isolate, self.elect_another_leader, self.flaky_registry]
        for _ in range(steps):
            draw = self.random.random()
            if draw < 0.12:
                self.random.choice(faults)()
            elif draw < 0.5:
                self.produce_idempotently()
            else:
                self.produce_once()
            self.sim.loop.run_for(self.random.uniform(0, 12))

    def heal(self) -> None:
        self.sim.registry.lose_responses = 0
        self.sim.registry.delay_ms = 1.0
        for node in list(self.isolated):
            self.rejoin(node)
        for node in self.sim.brokers:
            self.restart(node)
        converged = self.sim.loop.run_until(self.converged, 30_000)
        assert converged, [self.sim.partition(n, TP) for n in self.sim.brokers]
        self.produce_idempotently()
        self.sim.loop.run_for(200)
        self.produce_idempotently()
        assert self.sim.loop.run_until(self.converged, 30_000)

    def converged(self) -> bool:
        state = self.sim.registry.states[TP]
        if sorted(state.isr) != sorted(state.replicas):
            return False
        partitions = [self.sim.partition(node, TP) for node in self.sim.brokers]
        ends = {partition.log_end_offset for partition in partitions}
        return len(ends) == 1 and all(partition.high_watermark in ends for partition in partitions)


def check(nemesis: Nemesis) -> None:
    sim = nemesis.sim
    contents = [sim.content(node, TP) for node in sim.brokers]
    assert contents[0] == contents[1] == contents[2], "the replicas are equal"
    by_offset = {base: body for base, _, body in contents[0]}
    for offset, value in nemesis.acked.items():
        assert offset in by_offset, f"acked {value!r} at {offset} is lost"
        assert value in by_offset[offset], f"at {offset} is not {value!r}"
    log = sim.partition(1, TP).log
    data = b"".join(log.read(0, 1 << 30, log.log_end_offset, at_least_one=True).parts)
    sequences = [h.base_sequence for _, _, h in headers(data) if h.producer_id == 7]
    assert sequences == sorted(set(sequences)), (
        "the idempotent producer's batches are stored once and in order"
    )
    assert set(range(nemesis.sequence)) <= set(sequences)


@pytest.mark.parametrize("seed", range(12))
def test_random_faults_lose_no_acknowledged_record_and_replicas_agree(seed: int) -> None:
    sim = Simulation(3, seed=seed, config=CONFIG)
    sim.create(TP, [1, 2, 3])
    sim.loop.run_for(50)
    nemesis = Nemesis(sim)
    nemesis.run(150)
    nemesis.heal()
    check(nemesis)
    assert nemesis.acked, "no record was acknowledged, so the run checks nothing"
