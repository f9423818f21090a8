"""Random runs of a coordinator: no acknowledged count decreases, and every request gets one response (G3).

The model of one counter is an interval: at least the highest count that was acknowledged, at most the highest count
that was ever appended (a refused write may be in the log).
"""

from __future__ import annotations

from counting_coordinator import PARTITIONS, CountingCoordinator, Increment
from harrow.cluster.errors import ErrorCode
from harrow.cluster.internal_topics import partition_for
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

KEYS = ("a", "b", "c")
NUMBERS = st.integers(0, PARTITIONS - 1)
LOG_ERRORS = st.sampled_from([ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append])
REFUSED = {
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.concurrent_transactions,
}


class CoordinatorLife(RuleBasedStateMachine):
    """Increments, acknowledgements, refusals, and leadership that comes and goes."""

    @initialize()
    def start(self) -> None:
        self.bed = CountingCoordinator(idle_ms=10**9)
        self.bed.replicas.automatic = False
        self.requests: list[Increment] = []
        for number in range(PARTITIONS):
            self.bed.replicas.lead(number)

    def _leads(self, number: int) -> bool:
        partition = self.bed.replicas.partitions.get(number)
        return partition is not None and partition.is_leader

    @rule(key=st.sampled_from(KEYS))
    def increment_and_commit(self, key: str) -> None:
        self.requests.append(self.bed.increment(key))
        self.bed.replicas.acknowledge()

    @rule(key=st.sampled_from(KEYS))
    def increment(self, key: str) -> None:
        self.requests.append(self.bed.increment(key))

    @precondition(lambda self: self.bed.replicas.waiting)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.bed.replicas.waiting)))
        self.bed.replicas.acknowledge(count=count)

    @precondition(lambda self: self.bed.replicas.waiting)
    @rule(error=LOG_ERRORS)
    def refuse_after_the_append(self, error: ErrorCode) -> None:
        self.bed.replicas.acknowledge(error, count=1)

    @rule(number=NUMBERS, lag=st.integers(0, 3))
    def lead(self, number: int, lag: int) -> None:
        """Begin to lead; the HW may lag behind everything that was acknowledged."""
        if not self._leads(number):
            log = self.bed.replicas.logs.get(number)
            end = 0 if log is None else log.log_end_offset
            self.bed.replicas.lead(number, high_watermark=max(0, end - lag))

    @rule(number=NUMBERS, lag=st.integers(0, 3), data=st.data())
    def fail_over_and_back(self, number: int, lag: int, data: st.DataObject) -> None:
        self.resign(number, data)
        self.lead(number, lag)

    @rule(number=NUMBERS)
    def high_watermark_reaches_the_epoch_start(self, number: int) -> None:
        if self._leads(number):
            partition = self.bed.replicas.partitions[number]
            to = max(partition.high_watermark, partition.epoch_start)
            self.bed.replicas.advance_high_watermark(partition, to)

    @rule(number=NUMBERS, data=st.data())
    def resign(self, number: int, data: st.DataObject) -> None:
        """Stop leading; another leader keeps what is below the HW, and any part of what is above."""
        if not self._leads(number):
            return
        replicas = self.bed.replicas
        partition = replicas.partitions[number]
        replicas.resign(number)
        # The appends of that generation are answered by replication, after the unload.
        mine = [row for row in replicas.waiting if row[0] is partition]
        others = [row for row in replicas.waiting if row[0] is not partition]
        replicas.waiting = mine
        replicas.acknowledge(ErrorCode.not_leader_or_follower)
        replicas.waiting = others
        log = partition.log
        low = max(partition.high_watermark, partition.epoch_start)
        keep = data.draw(st.integers(min(low, len(log.batches)), len(log.batches)))
        del log.batches[keep:]  # each batch is one record

    @rule(by_ms=st.sampled_from([1, 500, 2_000]))
    def time_passes(self, by_ms: int) -> None:
        self.bed.host.advance(by_ms)

    @invariant()
    def acknowledged_counts_never_go_back(self) -> None:
        for key in KEYS:
            served = self.bed.count(key)
            if isinstance(served, ErrorCode):
                continue
            acknowledged = max((r.count or 0 for r in self.requests if r.key == key), default=0)
            sent = sum(r.key == key for r in self.requests)
            assert acknowledged <= served <= sent, f"{key}: {acknowledged} <= {served} <= {sent}"

    @invariant()
    def acknowledged_counts_are_distinct_and_refusals_are_known(self) -> None:
        for key in KEYS:
            counts = [r.count for r in self.requests if r.key == key and r.count is not None]
            assert counts == sorted(set(counts))
        assert {r.error for r in self.requests if r.error is not None} <= REFUSED

    @invariant()
    def requests_without_answer_wait_on_an_active_shard(self) -> None:
        waiting = sum(not request.is_answered for request in self.requests)
        in_progress = sum(m.shard.writes_in_progress for m in self.bed.made if m.shard.is_active)
        assert waiting == in_progress

    def teardown(self) -> None:
        self.bed.runtime.close()
        assert all(request.is_answered for request in self.requests)
        assert all(machine.life[-1:] == ["unloaded"] for machine in self.bed.made)


CoordinatorLife.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestCoordinatorLife = CoordinatorLife.TestCase


def test_keys_of_the_property_live_in_both_partitions() -> None:
    assert {partition_for(key, PARTITIONS) for key in KEYS} == set(range(PARTITIONS))
