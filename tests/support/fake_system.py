"""A cluster for faults to break, without a process in it: plain state under the fault layer's `System`.

Actions take effect at once, unless a test says otherwise: `start_fails` (so many starts end in death), `ends_slowly`
(a terminated broker runs on), `held` and `delayed` (what link rules do to traffic).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harrow.cluster.errors import ClusterError
from harrow.cluster.view import ClusterView, PartitionView
from harrow.faults.system import (
    CAPABILITIES,
    DEAD,
    PAUSED,
    RUNNING,
    STARTING,
    HasTraffic,
    LinkControl,
    LinkStatus,
    ProcessStatus,
    ProgramControl,
    RuleStatus,
)


class FakeProcess:
    """A process that is nothing but its state."""

    def __init__(self) -> None:
        self.state = RUNNING
        self.incarnation = 1
        self.start_fails = 0
        self.ends_slowly = False
        self.start_turns = 0
        """How many times `time_passes` until a started process runs."""
        self.turns_left = 0
        self.actions: list[str] = []

    def status(self) -> ProcessStatus:
        return ProcessStatus(state=self.state, incarnation=self.incarnation)

    def kill(self) -> None:
        self.actions.append("kill")
        self.state = DEAD

    def terminate(self) -> None:
        self.actions.append("terminate")
        if not self.ends_slowly:
            self.state = DEAD

    def pause(self) -> None:
        self.actions.append("pause")
        self.state = PAUSED

    def resume(self) -> None:
        self.actions.append("resume")
        if self.state == PAUSED:
            self.state = STARTING if self.turns_left else RUNNING

    def forget(self) -> None:
        """A new incarnation has nothing of the earlier one's memory."""

    def start(self) -> None:
        self.actions.append("start")
        if self.state != DEAD:
            return
        self.incarnation += 1
        self.forget()
        if self.start_fails:
            self.start_fails -= 1
            raise ClusterError("it did not start")
        self.turns_left = self.start_turns
        self.state = STARTING if self.turns_left else RUNNING

    def time_passes(self) -> None:
        if self.state == STARTING:
            self.turns_left -= 1
            if not self.turns_left:
                self.state = RUNNING


@dataclass(kw_only=True)
class FakeRule:
    """A rule that a test fires by hand."""

    what: dict[str, Any]
    armed: bool = True
    fired: int = 0

    def fire(self) -> None:
        self.fired += 1

    def status(self) -> RuleStatus:
        return RuleStatus(armed=self.armed, fired=self.fired, facts=self.what)

    def disarm(self) -> None:
        self.armed = False


@dataclass(kw_only=True)
class FakeLinks:
    """The link rules of one broker."""

    rules: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    held: int = 1
    delayed: int = 1
    open: int = 3


class FakeProgram(FakeProcess):
    """A program of the user's."""

    def last_words(self) -> str:
        return "exit code 7; last output: boom"


class FakeBroker(FakeProcess):
    """A broker that is nothing but its state."""

    def __init__(self) -> None:
        super().__init__()
        self.power_losses: list[tuple[str, float | None]] = []
        self.wipes = 0
        self.reaches_places = True
        """Whether a start reaches the failpoint that is armed for it."""
        self.link_state = FakeLinks()
        self.rules: list[FakeRule] = []
        self.damages: list[tuple[str, str, str]] = []
        self.held_by_peer: dict[str, int] = {}

    def forget(self) -> None:
        self.rules.clear()
        self.link_state.rules.clear()

    def _asked(self) -> None:
        if self.state != RUNNING:
            raise ClusterError(f"the broker is {self.state} and does not respond")

    def lose_power(self, *, seed: str, kept_fraction: float | None = None) -> None:
        self.state = DEAD
        self.power_losses.append((seed, kept_fraction))

    def power_lost(self) -> Mapping[str, int] | None:
        return {"lost_bytes": 7} if self.power_losses else None

    def wipe(self) -> None:
        self.state = DEAD
        self.wipes += 1

    def wiped(self) -> int | None:
        return 3 if self.wipes else None

    def block(self, peers: Sequence[str], direction: str) -> None:
        self._asked()
        self.link_state.rules += [{"peers": peer, "direction": direction} for peer in peers]

    def slow(self, peers: Sequence[str], delay_ms: int) -> None:
        self._asked()
        self.link_state.rules += [{"peers": peer, "delay_ms": delay_ms} for peer in peers]

    def throttle(self, peers: Sequence[str], bytes_per_s: int) -> None:
        self._asked()
        self.link_state.rules += [{"peers": peer, "bytes_per_s": bytes_per_s} for peer in peers]

    def heal_links(self, mode: str, peers: Sequence[str] | None = None) -> None:
        self._asked()
        self.actions.append(f"heal links: {mode}")
        kept = self.link_state.rules if peers is not None else []
        self.link_state.rules[:] = [rule for rule in kept if rule.get("peers") not in (peers or ())]

    def reset_links(self, peers: Sequence[str]) -> int:
        self._asked()
        self.actions.append(f"reset {', '.join(peers)}")
        return self.link_state.open

    def freeze_links(self, peers: Sequence[str]) -> int:
        self._asked()
        self.link_state.rules += [{"frozen": peer} for peer in peers]
        return self.link_state.open

    def links(self) -> LinkStatus:
        self._asked()
        rules = self.link_state.rules
        slow = any("delay_ms" in rule or "bytes_per_s" in rule for rule in rules)
        return LinkStatus(
            rules=len(rules),
            held=0 if slow else self.link_state.held * len(rules),
            delayed=self.link_state.delayed if slow else 0,
            facts={"rules": list(rules)},
            held_by_peer=self.held_by_peer,
            patterns=tuple(rule["peers"] for rule in rules if "peers" in rule),
        )

    def _arm(self, **what: Any) -> FakeRule:
        self._asked()
        self.rules.append(FakeRule(what=what))
        return self.rules[-1]

    def fault_request(
        self,
        *,
        action: str,
        api_key: int,
        nth: int,
        client: str,
        error: int = 0,
        delay_ms: int = 0,
        count: int = 1,
        probability: float = 1.0,
        seed: int = 0,
        where: Mapping[str, Any] | None = None,
    ) -> FakeRule:
        return self._arm(
            action=action,
            api_key=api_key,
            nth=nth,
            client=client,
            error=error,
            delay_ms=delay_ms,
            count=count,
            probability=probability,
            seed=seed,
            where=where,
        )

    def arm_failpoint(self, *, name: str, action: str, nth: int, delay_ms: int) -> FakeRule:
        return self._arm(name=name, action=action, nth=nth, delay_ms=delay_ms)

    def start_armed(self, *, name: str, action: str, nth: int, delay_ms: int) -> FakeRule:
        self.start()
        rule = FakeRule(what={"name": name, "action": action, "nth": nth, "delay_ms": delay_ms}, fired=0)
        self.rules.append(rule)
        if self.reaches_places:
            rule.fired, rule.armed = 1, False
            self.state = {"crash": DEAD, "error": DEAD, "stop": PAUSED}.get(action, self.state)
        return rule

    def fail_disk(self, *, operation: str, error: str, nth: int, count: int, path: str, delay_ms: int) -> FakeRule:
        return self._arm(operation=operation, error=error, nth=nth, count=count, path=path, delay_ms=delay_ms)

    def damage_disk(self, *, damages: Sequence[str], partitions: Sequence[str], seed: str, clean: bool) -> None:
        end = self.terminate if clean else self.kill
        end()
        self.damages.append((damages[0], partitions[0], seed))

    def disk_damaged(self) -> Mapping[str, Any] | None:
        if not self.damages:
            return None
        return {"partition": self.damages[-1][1], "files": {"a file": self.damages[-1][0]}}

    def limit_descriptors(self) -> FakeRule:
        return self._arm(limit="descriptors")

    def fill_connections(self, most: int) -> FakeRule:
        return self._arm(most=most)

    def limit_memory(self, spare_bytes: int) -> FakeRule:
        return self._arm(limit="memory", spare_bytes=spare_bytes)

    def set_clock(self, *, kind: str, by_ms: int = 0, rate: float = 1.0, period_ms: int = 0) -> FakeRule:
        return self._arm(kind=kind, by_ms=by_ms, rate=rate, period_ms=period_ms)

    def slow_disk(self, delay_ms: int) -> FakeRule:
        return self._arm(delay_ms=delay_ms)


class FakeSystem:
    """Three brokers; `orders` has three partitions, led by 1, 2, 3; broker 2 is the controller."""

    backend = "fake"
    session_timeout_ms = 100
    offsets_partitions = 50

    def __init__(self, brokers: int = 3) -> None:
        self.brokers = {node: FakeBroker() for node in range(1, brokers + 1)}
        self.registry = FakeProcess()
        self.capabilities = frozenset(CAPABILITIES)
        self.names: dict[str, set[str]] = {}
        self.controller: int | None = 2
        self.controller_epoch = 1
        self.operations: list[tuple[object, ...]] = []
        self.dead_are_gone = False
        """Whether the registry has noticed which brokers are dead."""
        self.traffic = True
        self.asked_for_traffic = 0
        self.billing = FakeProgram()
        self.programs: Mapping[str, ProgramControl] = {"billing": self.billing}
        self.store = FakeBroker()
        self.dependencies: Mapping[str, LinkControl] = {"store": self.store}
        self.clients: list[FakeRule] = []
        nodes = self.nodes
        self.topics = {
            "orders": {
                number: PartitionView(leader=nodes[number % len(nodes)], leader_epoch=0, isr=nodes, replicas=nodes)
                for number in range(3)
            }
        }

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(self.brokers)

    def broker(self, node: int) -> FakeBroker:
        return self.brokers[node]

    def expire_session(self, node: int) -> int:
        self.operations.append(("expire", node))
        return 1

    def depose_controller(self) -> None:
        self.operations.append(("depose",))
        self.controller_epoch += 1

    def reassign_all(self, moves: Sequence[tuple[str, int, Sequence[int]]]) -> None:
        for topic, partition, replicas in moves:
            self.reassign(topic, partition, replicas)

    def add_broker(self) -> int:
        node = max(self.brokers) + 1
        self.brokers[node] = FakeBroker()
        return node

    def remove_added_broker(self, node: int) -> None:
        self.operations.append(("remove", node))
        del self.brokers[node]

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        self.operations.append(("reassign", topic, partition, tuple(replicas)))
        row = self.topics[topic][partition]
        leader = row.leader if row.leader in replicas else replicas[0]
        self.topics[topic][partition] = replace(
            row, replicas=tuple(replicas), isr=tuple(sorted(replicas)), leader=leader
        )

    def elect_preferred_leader(self, topic: str, partition: int) -> None:
        self.operations.append(("elect", topic, partition))
        row = self.topics[topic][partition]
        self.topics[topic][partition] = replace(row, leader=row.replicas[0])

    def elect_unclean_leader(self, topic: str, partition: int) -> None:
        self.operations.append(("elect unclean", topic, partition))
        row = self.topics[topic][partition]
        running = [node for node in row.replicas if self.brokers[node].state == RUNNING]
        if running and row.leader not in running:
            epoch = row.leader_epoch + 1
            self.topics[topic][partition] = replace(row, leader=running[0], isr=(running[0],), leader_epoch=epoch)

    def _client(self, **what: Any) -> FakeRule:
        self.clients.append(FakeRule(what=what))
        return self.clients[-1]

    def hijack_transactional_id(self, transactional_id: str) -> FakeRule:
        return self._client(hijack=transactional_id)

    def rebalance_group(self, group: str, *, every_ms: tuple[int, int], seed: int) -> FakeRule:
        return self._client(storm=group, every_ms=every_ms, seed=seed)

    def join_group(self, group: str) -> FakeRule:
        return self._client(stuck=group)

    def describe(self) -> ClusterView:
        if self.registry.state != RUNNING:
            raise ClusterError("the registry does not respond")
        return ClusterView(
            live=frozenset(
                node for node, broker in self.brokers.items() if not self.dead_are_gone or broker.state == RUNNING
            ),
            controller=self.controller,
            topics=self.topics,
            controller_epoch=self.controller_epoch,
        )

    def created(self, kind: str) -> Collection[str] | None:
        return self.names.get(kind)

    def watch_traffic(self) -> HasTraffic:
        def has_traffic() -> bool:
            self.asked_for_traffic += 1
            return self.traffic

        return has_traffic

    def undisturbed(self) -> bool:
        """Whether nothing is left of any fault."""
        everything = (*self.brokers.values(), self.registry, self.billing)
        running = all(process.state == RUNNING for process in everything)
        rules = any(broker.link_state.rules for broker in self.brokers.values())
        armed = any(rule.armed for broker in self.brokers.values() for rule in broker.rules)
        clients = any(client.armed for client in self.clients)
        return running and not rules and not armed and not clients
