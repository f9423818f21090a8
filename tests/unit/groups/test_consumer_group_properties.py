"""Random runs of a consumer group: no partition has two owners, epochs grow, everything is assigned at last (G2).

Clients lose responses, stop without leaving, and join again; subscriptions, topics and the interval between assignments
change; writes fail with and without their batch in the log; the coordinator moves.
"""

from __future__ import annotations

from consumer_group_requests import REBALANCE_MS, ModelConsumer, described
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME
from harrow.cluster.config.group_table import INTERVAL
from harrow.cluster.errors import ErrorCode
from harrow.cluster.groups.consumer.group_state import GroupData
from harrow.cluster.groups.consumer.members import each
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

NAMES = ("a", "b", "c", "d")
TOPICS = ("orders", "bills")
FAILURES = (ErrorCode.not_enough_replicas, ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append)
SESSION_MS = 45_000


class GroupRuns(RuleBasedStateMachine):
    """Clients that follow the protocol, and everything that may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.bed = GroupTestBed()
        self.bed.lead(HOME)
        self.clients: dict[str, ModelConsumer] = {}
        self.heard_ms: dict[str, int] = {}
        self.made = 0
        self.epoch = 0

    @rule(name=st.sampled_from(NAMES), both=st.booleans())
    def start(self, name: str, *, both: bool) -> None:
        if name not in self.clients:
            self.made += 1
            topics = TOPICS if both else TOPICS[:1]
            self.clients[name] = ModelConsumer(self.bed, f"{name}{self.made}", *topics)
            self._beat(name)

    @rule(name=st.sampled_from(NAMES), lose=st.booleans())
    def heartbeat(self, name: str, *, lose: bool) -> None:
        if name in self.clients:
            self._beat(name, lose_response=lose)

    def _beat(self, name: str, *, lose_response: bool = False) -> None:
        client = self.clients[name]
        if client.beat(lose_response=lose_response) is ErrorCode.none:
            self.heard_ms[name] = self.bed.host.now_ms
        epochs = client.epochs
        assert epochs == sorted(epochs), "the epoch of a member never decreases"

    @rule(name=st.sampled_from(NAMES), both=st.booleans())
    def subscribe(self, name: str, *, both: bool) -> None:
        client = self.clients.get(name)
        if client is not None:
            client.resubscribe(*(TOPICS if both else TOPICS[:1]))
            self._beat(name)

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        client = self.clients.pop(name, None)
        if client is not None:
            client.leave()

    @rule(name=st.sampled_from(NAMES))
    def die(self, name: str) -> None:
        self.clients.pop(name, None)

    @rule(by_ms=st.sampled_from((100, 5_000, 15_000)))
    def time_passes(self, by_ms: int) -> None:
        self.bed.host.advance(by_ms)
        # a client that cannot reach the coordinator for so long gives up its partitions by itself
        for name, client in self.clients.items():
            if self.bed.host.now_ms - self.heard_ms.get(name, 0) >= min(SESSION_MS / 2, REBALANCE_MS):
                client.owned, client.epoch = {}, 0
                client.epochs.clear()

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(0, 5))
    def topics_change(self, topic: str, count: int) -> None:
        present = self.bed.cache.partition_count(topic)
        self.bed.cache.change(**{topic: 0 if count == 0 else max(count, present)})

    @rule(interval_ms=st.sampled_from((0, 7_000)))
    def interval_changes(self, interval_ms: int) -> None:
        self.bed.coordinator.service.config.groups[GROUP] = {INTERVAL: interval_ms}

    @rule(error=st.sampled_from(FAILURES))
    def next_write_fails(self, error: ErrorCode) -> None:
        if error is ErrorCode.not_enough_replicas:
            self.bed.replicas.next_error = error
            return
        self.bed.replicas.automatic = False
        for name in self.clients:
            self._beat(name, lose_response=True)
        while self.bed.replicas.waiting:
            self.bed.replicas.acknowledge(error)
        self.bed.replicas.automatic = True

    @precondition(lambda self: self.bed.replicas.automatic)
    @rule()
    def coordinator_moves(self) -> None:
        before = described(self.bed)
        self.bed.resign(HOME)
        self.bed.lead(HOME)
        assert described(self.bed) == before, "a replay gives the same state"

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        held = [p for client in self.clients.values() for p in client.partitions()]
        assert len(held) == len(set(held)), "clients"
        data = self._data()
        if data is None:
            return
        stored = [p for member in data.members.values() for p in member.held()]
        assert len(stored) == len(set(stored)), "members"
        assert set(stored) == set(data.owners), "owners"
        targets = [p for target in data.targets.values() for p in each(target)]
        assert len(targets) == len(set(targets)), "targets"

    @invariant()
    def group_epoch_never_decreases(self) -> None:
        data = self._data()
        if data is not None:
            assert data.target_epoch <= data.epoch
            assert data.epoch >= self.epoch
            self.epoch = data.epoch

    def _data(self) -> GroupData | None:
        (shard,) = self.bed.coordinator.service.shards()
        hosted = shard.find(GROUP)
        return None if hosted is None or hosted.consumer is None else hosted.consumer.data

    def teardown(self) -> None:
        """Quiet: those that died are fenced, and those that live share every partition."""
        self.bed.replicas.next_error = ErrorCode.none
        for _ in range(14):
            self.bed.host.advance(SESSION_MS / 10)
            for client in self.clients.values():
                client.beat()
                self.no_partition_has_two_owners()
        subscribed = {topic for client in self.clients.values() for topic in client.topics}
        wanted = {(topic, number) for topic in subscribed for number in range(self.bed.cache.partition_count(topic))}
        held = {p for client in self.clients.values() for p in client.partitions()}
        assert held == wanted
        assert not self.clients or described(self.bed).group_state == "Stable"


TestGroupRuns = GroupRuns.TestCase
TestGroupRuns.settings = settings(max_examples=40, stateful_step_count=30)
