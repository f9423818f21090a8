"""Random runs of a streams group: no task is active twice, no process has one twice, every task is active at last (G2).

Clients lose responses, stop without leaving, and join again; static members restart; writes fail with and without their
batch in the log; the coordinator moves; the number of standbys and the interval between assignments change.

A client that lost the response with its tasks learns of them when they change or when it joins again: Kafka's rule. If
that response took a task away, the client keeps the task until its rebalance timeout; then the coordinator removes the
member and gives the task away, and the client learns that in its next heartbeat. In between two clients have the
task, and the coordinator accepts offsets of one of them only.
"""

from __future__ import annotations

from collections import Counter

from group_fakes import GroupTestBed
from group_requests import GROUP, HOME
from harrow.cluster.config import Value
from harrow.cluster.config.group_table import STREAMS_INTERVAL
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.groups.streams.group_state import StreamsData
from harrow.cluster.groups.streams.member_checks import MEMBER_EPOCH_FROM, check_commit
from harrow.cluster.ids import TopicPartition
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from streams_group_requests import CHANGELOG, REBALANCE_MS, REPARTITION, ModelStreams, streams_described

NAMES = ("a", "b", "c", "d")
STATIC = ("c", "d")
PROCESSES = ("p", "q")
FAILURES = (ErrorCode.not_enough_replicas, ErrorCode.request_timed_out, ErrorCode.not_enough_replicas_after_append)
SESSION_MS = 45_000


SOURCES = {"0": "orders", "1": REPARTITION}


def may_commit(data: StreamsData, client: ModelStreams, task: tuple[str, int]) -> bool:
    """True when the coordinator accepts an offset of the client for the source of the task."""
    subtopology, number = task
    source = TopicPartition(SOURCES[subtopology], number)
    try:
        check_commit(data, GROUP, client.member_id, client.epoch, MEMBER_EPOCH_FROM, (source,))
    except KafkaError:
        return False
    return True


class StreamsRuns(RuleBasedStateMachine):
    """Clients that follow the protocol, and everything that may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.bed = GroupTestBed()
        self.bed.lead(HOME)
        self.clients: dict[str, ModelStreams] = {}
        self.heard_ms: dict[str, int] = {}
        self.made = 0
        self.epoch = 0

    @rule(name=st.sampled_from(NAMES), process=st.sampled_from(PROCESSES))
    def start(self, name: str, process: str) -> None:
        if name not in self.clients:
            self.made += 1
            self.clients[name] = ModelStreams(self.bed, f"{name}{self.made}", process, name if name in STATIC else None)
            self._beat(name)

    @rule(name=st.sampled_from(NAMES), lose=st.booleans())
    def heartbeat(self, name: str, *, lose: bool) -> None:
        if name in self.clients:
            self._beat(name, lose_response=lose)

    def _beat(self, name: str, *, lose_response: bool = False) -> None:
        if self.clients[name].beat(lose_response=lose_response) is ErrorCode.none:
            self.heard_ms[name] = self.bed.host.now_ms

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        client = self.clients.pop(name, None)
        if client is not None:
            client.leave()

    @rule(name=st.sampled_from(STATIC))
    def restart(self, name: str) -> None:
        client = self.clients.get(name)
        if client is not None:
            client.restart()

    @rule(name=st.sampled_from(NAMES))
    def die(self, name: str) -> None:
        self.clients.pop(name, None)

    @rule(by_ms=st.sampled_from((100, 5_000, 15_000)))
    def time_passes(self, by_ms: int) -> None:
        self.bed.host.advance(by_ms)
        # a client that cannot reach the coordinator for so long gives up its tasks by itself
        for name, client in self.clients.items():
            if self.bed.host.now_ms - self.heard_ms.get(name, 0) >= min(SESSION_MS / 2, REBALANCE_MS):
                client.abandon()

    @rule(standbys=st.integers(0, 2))
    def standbys_change(self, standbys: int) -> None:
        self._settings()["streams.num.standby.replicas"] = standbys

    @rule(interval_ms=st.sampled_from((0, 7_000)))
    def interval_changes(self, interval_ms: int) -> None:
        self._settings()[STREAMS_INTERVAL] = interval_ms

    def _settings(self) -> dict[str, Value]:
        return self.bed.coordinator.service.config.groups.setdefault(GROUP, {})

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
        before = self._data()
        self.bed.resign(HOME)
        self.bed.lead(HOME)
        after = self._data()
        if before is None:
            assert after is None
            return
        assert after is not None, "a replay gives the same state"
        for name in StreamsData.__slots__:
            assert getattr(after, name) == getattr(before, name), name

    @invariant()
    def no_task_is_active_twice(self) -> None:
        data = self._data()
        if data is None:
            assert not any(client.tasks() for client in self.clients.values())
            return
        removed = {
            client.member_id
            for client in self.clients.values()
            if client.is_behind and client.member_id not in data.members
        }
        held = Counter(
            task for client in self.clients.values() if client.member_id not in removed for task in client.tasks()
        )
        assert all(count == 1 for count in held.values()), held
        commit = Counter(
            task for client in self.clients.values() for task in client.tasks() if may_commit(data, client, task)
        )
        assert all(count == 1 for count in commit.values()), commit
        active: Counter[object] = Counter()
        of_process: Counter[object] = Counter()
        for member in data.members.values():
            for tasks in (member.current.assigned, member.current.revoking):
                active.update(tasks.active.keys())
                of_process.update((member.process_id, task) for task in (*tasks.active, *tasks.standby))
        assert all(count == 1 for count in active.values()), active
        assert all(count == 1 for count in of_process.values()), of_process
        targets = Counter(task for target in data.targets.values() for task in target.active)
        assert all(count == 1 for count in targets.values()), targets

    @invariant()
    def epochs_never_decrease(self) -> None:
        data = self._data()
        if data is not None:
            assert data.target_epoch <= data.epoch
            assert data.epoch >= self.epoch
            self.epoch = data.epoch

    def _data(self) -> StreamsData | None:
        (shard,) = self.bed.coordinator.service.shards()
        hosted = shard.find(GROUP)
        return None if hosted is None or hosted.streams is None else hosted.streams.data

    def teardown(self) -> None:
        """Quiet: those that died are fenced, and those that live have every task, and standbys in other processes.

        Clients that are behind join again before that.
        """
        self.bed.replicas.next_error = ErrorCode.none
        for _ in range(20):
            self.bed.host.advance(SESSION_MS / 10)
            for client in self.clients.values():
                client.beat()
                self.no_task_is_active_twice()
        data = self._data()
        for client in self.clients.values():
            assert data is not None
            assigned = data.members[client.member_id].current.assigned
            if client.is_behind:
                assert assigned.active.keys() >= set(client.tasks())
                if client.instance_id is None:
                    client.abandon()
                else:
                    client.restart()  # its instance id is not released before
            else:
                assert assigned.active.keys() == set(client.tasks())
        for _ in range(2):
            for client in self.clients.values():
                assert client.beat() is ErrorCode.none
                self.no_task_is_active_twice()
        if not self.clients:
            return
        assert {topic.name for topic in self.bed.topics.created} == {REPARTITION, CHANGELOG}
        held = sorted(task for client in self.clients.values() for task in client.tasks())
        assert held == [(name, number) for name in ("0", "1") for number in range(3)]
        assert streams_described(self.bed).group_state == "Stable"
        wanted = self.bed.coordinator.service.config.group_number(GROUP, "streams.num.standby.replicas")
        processes = {client.process_id for client in self.clients.values()}
        standbys = Counter(n for client in self.clients.values() for n in client.standby.get("1", ()))
        expected = min(wanted, len(processes) - 1)
        assert standbys == (Counter(dict.fromkeys(range(3), expected)) if expected else Counter())


TestStreamsRuns = StreamsRuns.TestCase
TestStreamsRuns.settings = settings(max_examples=40, stateful_step_count=30)
