"""A cluster for faults to break, without a process in it: plain state under the fault layer's `System`.

Actions take effect at once, unless a test says otherwise: `start_fails` (so many starts end in death), `ends_slowly`
(a terminated broker runs on), `held` and `delayed` (what link rules do to traffic).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from harrow.cluster.errors import ClusterError, ConfigError
from harrow.cluster.view import ClusterView, PartitionView
from harrow.faults import rule_kinds
from harrow.faults.controls import (
    DEAD,
    PAUSED,
    RUNNING,
    STARTING,
    AclRevocation,
    CertificateChange,
    ChangeStatus,
    CredentialChange,
    DiskChange,
    DiskPowerLoss,
    EmptyFolders,
    FileDamage,
    LinkStatus,
    Part,
    PartialPowerLoss,
    PasswordChange,
    PeerKind,
    ProcessStatus,
)
from harrow.faults.rule_kinds import Rule, RuleStatus, StartFailpointRule
from harrow.faults.system import Broker, HasTraffic, System


def remove_part(owner: object, part: Part[Any]) -> None:
    """Let a system or a broker be one whose backend does not have this part."""
    del vars(owner)[part.name]


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


class FakeLinkControl:
    """The links of a fake broker, or of a fake dependency."""

    peers = frozenset(PeerKind)

    def __init__(self, actions: list[str], asked: Callable[[], None] = lambda: None) -> None:
        self.state = FakeLinks()
        self.held_by_peer: dict[str, int] = {}
        self._actions = actions
        self._asked = asked

    def block(self, peers: Sequence[str], direction: str) -> None:
        self._asked()
        self.state.rules += [{"peers": peer, "direction": direction} for peer in peers]

    def slow(self, peers: Sequence[str], delay_ms: int) -> None:
        self._asked()
        self.state.rules += [{"peers": peer, "delay_ms": delay_ms} for peer in peers]

    def throttle(self, peers: Sequence[str], bytes_per_s: int) -> None:
        self._asked()
        self.state.rules += [{"peers": peer, "bytes_per_s": bytes_per_s} for peer in peers]

    def heal(self, mode: str, peers: Sequence[str] | None = None) -> None:
        self._asked()
        self._actions.append(f"heal links: {mode}")
        kept = self.state.rules if peers is not None else []
        self.state.rules[:] = [rule for rule in kept if rule.get("peers") not in (peers or ())]

    def reset(self, peers: Sequence[str]) -> int:
        self._asked()
        self._actions.append(f"reset {', '.join(peers)}")
        return self.state.open

    def freeze(self, peers: Sequence[str]) -> int:
        self._asked()
        self.state.rules += [{"frozen": peer} for peer in peers]
        return self.state.open

    def status(self) -> LinkStatus:
        self._asked()
        rules = self.state.rules
        slow = any("delay_ms" in rule or "bytes_per_s" in rule for rule in rules)
        return LinkStatus(
            rules=len(rules),
            held=0 if slow else self.state.held * len(rules),
            delayed=self.state.delayed if slow else 0,
            facts={"rules": list(rules)},
            held_by_peer=self.held_by_peer,
            patterns=tuple(rule["peers"] for rule in rules if "peers" in rule),
        )


class FakeDisk:
    """The disk of a fake broker: each change is made at once."""

    kinds: frozenset[type[DiskChange]] = frozenset({DiskPowerLoss, PartialPowerLoss, EmptyFolders, FileDamage})

    def __init__(self, process: FakeProcess) -> None:
        self._process = process
        self.changes: list[DiskChange] = []

    def end_with(self, change: DiskChange, *, clean: bool = False) -> None:
        end = self._process.terminate if clean else self._process.kill
        end()
        self.changes.append(change)

    def changed(self, kind: type[DiskChange]) -> Mapping[str, Any] | None:
        made = [change for change in self.changes if isinstance(change, kind)]
        if not made:
            return None
        match made[-1]:
            case FileDamage(damages=damages, partitions=partitions):
                return {"partition": partitions[0], "files": {"a file": damages[0]}}
            case EmptyFolders():
                return {"removed_files": 3}
            case _:
                return {"lost_bytes": 7}


class FakeRules:
    """What arms rules in a fake broker, or clients beside it: every kind, to be fired by the test."""

    kinds = frozenset(kind for kind in vars(rule_kinds).values() if isinstance(kind, type) and issubclass(kind, Rule))

    def __init__(self) -> None:
        self.armed: list[FakeRule] = []

    def arm(self, rule: Rule) -> FakeRule:
        self.armed.append(FakeRule(what=asdict(rule)))
        return self.armed[-1]


@dataclass(kw_only=True)
class FakeChange:
    """A change of credentials, made and undone at once."""

    what: CredentialChange
    undone: bool = False

    def status(self) -> ChangeStatus:
        return ChangeStatus(made=True, undone=self.undone)

    def undo(self) -> None:
        self.undone = True


class FakeCredentials:
    """Users, ACLs and certificates of a fake system: alice is a user, and every change can be made."""

    kinds: frozenset[type[CredentialChange]] = frozenset({PasswordChange, AclRevocation, CertificateChange})

    def __init__(self) -> None:
        self.begun: list[FakeChange] = []
        self.closed: list[tuple[int, str | None]] = []

    def check(self, change: CredentialChange) -> None:
        if isinstance(change, PasswordChange) and change.user != "alice":
            raise ConfigError(f"there is no user {change.user}")

    def begin(self, change: CredentialChange) -> FakeChange:
        self.begun.append(FakeChange(what=change))
        return self.begun[-1]

    def close_connections(self, node: int, user: str | None) -> int:
        self.closed.append((node, user))
        return 2


class FakeBroker(FakeProcess, Broker):
    """A broker that is nothing but its state."""

    def __init__(self, node: int = 1) -> None:
        FakeProcess.__init__(self)
        Broker.__init__(self, node)
        self.reaches_places = True
        """Whether a start reaches the failpoint that is armed for it."""
        self.process = self
        self.links = self.own_links = FakeLinkControl(self.actions, self.check_running)
        self.disk = self.own_disk = FakeDisk(self)
        self.rules = self.own_rules = FakeBrokerRules(self)
        self.shares = self
        self.locks: dict[tuple[str, str], int] = {}
        """How many records a member of a share group has locked here, by group and member."""

    def forget(self) -> None:
        self.own_rules.armed.clear()
        self.own_links.state.rules.clear()

    def end_locks(self, group: str, member: str) -> int:
        self.check_running()
        ended = [key for key in self.locks if key[0] == group and member in ("", key[1])]
        return sum(self.locks.pop(key) for key in ended)

    def check_running(self) -> None:
        if self.state != RUNNING:
            raise ClusterError(f"the broker is {self.state} and does not respond")

    def status(self) -> ProcessStatus:
        return FakeProcess.status(self)


class FakeBrokerRules(FakeRules):
    """Rules of a fake broker: it must run, unless it is to be started with an armed failpoint."""

    def __init__(self, broker: FakeBroker) -> None:
        super().__init__()
        self._broker = broker

    def arm(self, rule: Rule) -> FakeRule:
        if not isinstance(rule, StartFailpointRule):
            self._broker.check_running()
            return super().arm(rule)
        self._broker.start()
        armed = super().arm(rule)
        if self._broker.reaches_places:
            armed.fired, armed.armed = 1, False
            states = {"crash": DEAD, "error": DEAD, "stop": PAUSED}
            self._broker.state = states.get(rule.action, self._broker.state)
        return armed


class FakeSystem(System):
    """Three brokers; `orders` has three partitions, led by 1, 2, 3; broker 2 is the controller."""

    backend = "fake"
    session_timeout_ms = 100
    offsets_partitions = 50

    def __init__(self, brokers: int = 3) -> None:
        self.brokers = {node: FakeBroker(node) for node in range(1, brokers + 1)}
        self.own_registry = FakeRegistry(self)
        self.registry = self.own_registry
        self.operator = self
        self.membership = self
        self.own_clients = FakeRules()
        self.clients = self.own_clients
        self.credentials = self.own_credentials = FakeCredentials()
        self.names: dict[str, set[str]] = {}
        self.controller: int | None = 2
        self.controller_epoch = 1
        self.operations: list[tuple[object, ...]] = []
        self.dead_are_gone = False
        """Whether the registry has noticed which brokers are dead."""
        self.traffic = True
        self.asked_for_traffic = 0
        self.billing = FakeProgram()
        self.programs = {"billing": self.billing}
        self.store = FakeLinkControl([])
        self.dependencies = {"store": self.store}
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

    def add_broker(self) -> int:
        node = max(self.brokers) + 1
        self.brokers[node] = FakeBroker(node)
        return node

    def remove_added_broker(self, node: int) -> None:
        self.operations.append(("remove", node))
        del self.brokers[node]

    def reassign(self, moves: Sequence[tuple[str, int, Sequence[int]]]) -> None:
        for topic, partition, replicas in moves:
            self.operations.append(("reassign", topic, partition, tuple(replicas)))
            row = self.topics[topic][partition]
            leader = row.leader if row.leader in replicas else replicas[0]
            self.topics[topic][partition] = replace(
                row, replicas=tuple(replicas), isr=tuple(sorted(replicas)), leader=leader
            )

    def elect(self, topic: str, partition: int, *, unclean: bool = False) -> None:
        self.operations.append(("elect unclean" if unclean else "elect", topic, partition))
        row = self.topics[topic][partition]
        if not unclean:
            self.topics[topic][partition] = replace(row, leader=row.replicas[0])
            return
        running = [node for node in row.replicas if self.brokers[node].state == RUNNING]
        if running and row.leader not in running:
            epoch = row.leader_epoch + 1
            self.topics[topic][partition] = replace(row, leader=running[0], isr=(running[0],), leader_epoch=epoch)

    def describe(self) -> ClusterView:
        if self.own_registry.state != RUNNING:
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
        everything = (*self.brokers.values(), self.own_registry, self.billing)
        running = all(process.state == RUNNING for process in everything)
        rules = any(broker.own_links.state.rules for broker in self.brokers.values())
        armed = any(rule.armed for broker in self.brokers.values() for rule in broker.own_rules.armed)
        clients = any(client.armed for client in self.own_clients.armed)
        changes = any(not change.undone for change in self.own_credentials.begun)
        return running and not rules and not armed and not clients and not changes


class FakeRegistry(FakeProcess):
    """The registry of a fake system."""

    def __init__(self, system: FakeSystem) -> None:
        super().__init__()
        self._system = system

    def expire_session(self, node: int) -> int:
        self._system.operations.append(("expire", node))
        return 1

    def depose_controller(self) -> None:
        self._system.operations.append(("depose",))
        self._system.controller_epoch += 1
