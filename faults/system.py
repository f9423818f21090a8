"""`System`: what a fault may ask of the cluster that it breaks. Every backend implements it.

    local       processes on this machine         `harness/backends/local.py`
    simulated   machines on a virtual clock       `harness/simulation/system.py`
    apache      Apache Kafka behind a proxy       `harness/backends/apache/system.py`
    docker      the same in containers            `harness/backends/apache/system.py`
    external    brokers behind a proxy            `harness/backends/external/system.py`

Rules of every implementation:

* An action begins something and returns at once; it never waits for its effect. A later observation (`status`, `links`,
  `ArmedRule.status`) shows whether it took effect. Repeating an action that has taken effect does nothing.
* An observation that cannot be made (the process is dead or paused) raises ClusterError; the nemesis tries again later.
* What a backend cannot do is missing from its `capabilities`. Each fault names what it needs (`Fault.needs`).

Peers are named by patterns: `broker 2`, `registry`, `client *`, `client orders-*`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from harrow.cluster.view import ClusterView

from .errors import CapabilityError

DEFAULT_SESSION_TIMEOUT_MS = 1_500
DEFAULT_OFFSETS_PARTITIONS = 50

REQUEST_ACTIONS = ("refuse", "lose", "drop", "delay", "duplicate", "lose_response", "hold_response", "fail_response")
"""What `BrokerControl.fault_request` can do with a request, or (the last three) with its response."""

DEAD, STARTING, RUNNING, PAUSED = "dead", "starting", "running", "paused"

CAPABILITIES: Mapping[str, str] = {
    "process": "use a backend that starts the brokers itself",
    "pause": "use a backend that starts the brokers itself",
    "links": "use a backend that controls the links between brokers: local, simulated, or apache on Linux",
    "registry-links": "use a backend whose brokers have sessions at a registry: local or simulated",
    "half-open": "use a backend whose brokers' connections pass through Harrow",
    "client-links": "use a backend whose brokers' connections with clients pass through Harrow",
    "responses": "use a backend whose brokers' connections with clients pass through Harrow",
    "failpoints": "use a backend that runs Harrow's own brokers: local or simulated",
    "disk-errors": "use a backend that runs Harrow's own brokers: local or simulated",
    "disk-delays": "use the local backend, or leave `delay_ms` out",
    "slow-disk": "use a backend that runs Harrow's own brokers: local or simulated",
    "clocks": "use a backend that runs Harrow's own brokers: local or simulated",
    "disk-damage": "use a backend that runs Harrow's own brokers: local or simulated",
    "descriptors": "use the local backend",
    "connections": "use a backend with real brokers",
    "memory": "use the local backend",
    "power-loss": "start the cluster with config={'harrow.power.loss': True}",
    "power-loss-kept-fraction": "use the local backend, or leave `kept_fraction` out",
    "wipe": "use a backend that runs Harrow's own brokers: local or simulated",
    "registry-operations": "leave zookeeper.connect empty, so that Harrow starts a registry of its own",
    "reassignments": "use a backend whose brokers Harrow starts, or may reassign",
    "more-brokers": "use the local backend",
    "registry": "leave zookeeper.connect empty, so that Harrow starts a registry of its own",
    "client-requests": "use a backend of real processes: local, apache, docker or external",
    "programs": "use a backend of real processes: local, apache, docker or external",
    "dependencies": "use a backend of real processes: local, apache, docker or external",
}
"""Everything that a backend may be able to do, and the remedy where it is not."""

HasTraffic = Callable[[], bool]
"""Called repeatedly by the nemesis; returns at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One process at one moment."""

    state: str
    """`starting`, `running`, `paused` or `dead`."""
    incarnation: int
    """How often it has been started: it grows by 1 with each start, so that a restart can be proved."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Details of the backend, such as a pid: for reports."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"state": self.state, "incarnation": self.incarnation, **self.facts}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """The link rules of one broker, and what they did since they were set."""

    rules: int
    """How many are in force."""
    held: int = 0
    """How much a rule holds back at this moment: bytes, and connections that wait to be opened."""
    delayed: int = 0
    """How much left late: bytes or frames, more than 0 where anything did."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    held_by_peer: Mapping[str, int] = field(default_factory=dict[str, int])
    """Bytes held back on the open links, by peer: 0 for a peer from which nothing is held back. Empty where a backend
    does not know it."""
    patterns: tuple[str, ...] = ()
    """The patterns of peers of the rules in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleStatus:
    """An armed rule (a response to lose, a failpoint, a disk that errs) or a client of Harrow's, and what it did."""

    armed: bool
    """Whether it may act again."""
    fired: int
    """How often it acted."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    failed: str = ""
    """Why it cannot act any more, although it did not do what it was armed for."""


class ArmedRule(Protocol):
    """The handle of a rule that waits in a broker."""

    def status(self) -> RuleStatus:
        """Return whether the rule is armed and what it did; ClusterError when the broker does not respond."""
        ...

    def disarm(self) -> None:
        """Disarm the rule; no error when it fired, or when the broker runs in a later incarnation."""
        ...


class ProcessControl(Protocol):
    """One process: the registry's, or a broker's."""

    def status(self) -> ProcessStatus:
        """Return its state now."""
        ...

    def kill(self) -> None:
        """Kill the process (SIGKILL): its memory is lost, its page cache is not."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM: a broker then performs a controlled shutdown."""
        ...

    def pause(self) -> None:
        """Pause the process (SIGSTOP)."""
        ...

    def resume(self) -> None:
        """Let a paused process continue (SIGCONT)."""
        ...

    def start(self) -> None:
        """Start it; nothing happens while it is alive."""
        ...


class ProgramControl(ProcessControl, Protocol):
    """One program of the user's: `harrow.program(name, command)`."""

    def last_words(self) -> str:
        """Return how the program ended (its exit code), and the last lines of its output."""
        ...


class LinkControl(Protocol):
    """The links of one process: a broker's, or those of the relay in front of a dependency."""

    def block(self, peers: Sequence[str], direction: str) -> None:
        """Hold back what these peers send ("in"), what they are sent ("out"), or both."""
        ...

    def slow(self, peers: Sequence[str], delay_ms: int) -> None:
        """Send late to these peers."""
        ...

    def throttle(self, peers: Sequence[str], bytes_per_s: int) -> None:
        """Send no more than `bytes_per_s` to all these peers together."""
        ...

    def heal_links(self, mode: str, peers: Sequence[str] | None = None) -> None:
        """Remove every link rule, or those of `peers`: "deliver" what was held back, or "reset" its connections."""
        ...

    def reset_links(self, peers: Sequence[str]) -> int:
        """Reset the connections with these peers; return how many there were."""
        ...

    def freeze_links(self, peers: Sequence[str]) -> int:
        """Hold back everything on the connections that are open now with these peers; return how many there were.

        `heal_links` releases them.
        """
        ...

    def links(self) -> LinkStatus:
        """Return the link rules and what they did."""
        ...


class BrokerControl(ProcessControl, LinkControl, Protocol):
    """One broker: its process, its links, its disk and the rules that wait in it."""

    def lose_power(self, *, seed: str, kept_fraction: float | None = None) -> None:
        """Kill the broker and remove unsynced writes from its disk.

        The disk keeps about `kept_fraction` of them; None: as many as `seed` draws.
        """
        ...

    def power_lost(self) -> Mapping[str, int] | None:
        """Return counts of what the last power loss removed; None until the roll-back is done."""
        ...

    def wipe(self) -> None:
        """Kill the broker and remove everything from its data folders."""
        ...

    def wiped(self) -> int | None:
        """Return how many files the last wipe removed; None until that is done."""
        ...

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
    ) -> ArmedRule:
        """Arm: `action` happens to requests of `api_key`, from the `nth` on: one of `REQUEST_ACTIONS`.

        `error` is that of a refusal or of a failed response, `delay_ms` a delay's. Which requests count, and on which
        of them the rule acts: `cluster/host/knobs/request_rules.py`.
        """
        ...

    def arm_failpoint(self, *, name: str, action: str, nth: int, delay_ms: int) -> ArmedRule:
        """Arm: at the `nth` time that the broker's code reaches `name`, do `action`."""
        ...

    def start_armed(self, *, name: str, action: str, nth: int, delay_ms: int) -> ArmedRule:
        """Start it with a failpoint that is armed before its code runs; nothing happens while it is alive."""
        ...

    def fail_disk(self, *, operation: str, error: str, nth: int, count: int, path: str, delay_ms: int) -> ArmedRule:
        """Arm: from the `nth` call of `operation` below `path` on, `count` times (0: always), an error or a delay."""
        ...

    def damage_disk(self, *, damages: Sequence[str], partitions: Sequence[str], seed: str, clean: bool) -> None:
        """End the broker (`clean`: by SIGTERM) and damage a replica of one of `partitions` before it starts.

        The first of `damages` (`faults/damage_faults.py`) that finds a file is done, in the first of `partitions`
        ("orders-0") that has such a file; `seed` draws the place.
        """
        ...

    def disk_damaged(self) -> Mapping[str, Any] | None:
        """Return `damage`, `partition` and `files` of the last damage; None until it is done."""
        ...

    def limit_descriptors(self) -> ArmedRule:
        """Lower the limit of open files to those that are open; `fired` while none is left. `descriptors`."""
        ...

    def fill_connections(self, most: int) -> ArmedRule:
        """Open up to `most` connections, until it serves no further one; `fired` while it is full. `connections`."""
        ...

    def limit_memory(self, spare_bytes: int) -> ArmedRule:
        """Lower the limit of its memory to what it has and `spare_bytes`. `memory`."""
        ...

    def set_clock(self, *, kind: str, by_ms: int = 0, rate: float = 1.0, period_ms: int = 0) -> ArmedRule:
        """Let its wall clock be wrong; `fired` counts reads. `cluster/host/knobs/clock_faults.py` has the kinds."""
        ...

    def slow_disk(self, delay_ms: int) -> ArmedRule:
        """Arm: every write and fsync takes about `delay_ms` longer."""
        ...


GROUPS, TRANSACTIONAL_IDS = "consumer group", "transactional id"


class System(Protocol):
    """A cluster that can be broken."""

    @property
    def backend(self) -> str:
        """Its name, for error messages: `local`, `simulated`."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """Names of `CAPABILITIES` that this cluster has."""
        ...

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id in order, dead ones too."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """Time without a heartbeat after which the registry expires a broker's session."""
        ...

    @property
    def offsets_partitions(self) -> int:
        """How many partitions `__consumer_offsets` gets."""
        ...

    def broker(self, node: int) -> BrokerControl:
        """Return one broker; KeyError for a node id that is not in `nodes`."""
        ...

    @property
    def registry(self) -> ProcessControl:
        """The registry's process; only with the capability `registry`."""
        ...

    def expire_session(self, node: int) -> int:
        """End the sessions of a broker at the registry; return how many there were. `registry-operations`."""
        ...

    def depose_controller(self) -> None:
        """Remove the node `/controller` from the registry, where there is one. `registry-operations`."""
        ...

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Begin to reassign a partition; a request that is lost or refused changes nothing. `reassignments`."""
        ...

    def reassign_all(self, moves: Sequence[tuple[str, int, Sequence[int]]]) -> None:
        """Begin to reassign several partitions (topic, number, replicas) by one request. `reassignments`."""
        ...

    def add_broker(self) -> int:
        """Begin to start one more broker; return its node id. It has no replica. `more-brokers`."""
        ...

    def remove_added_broker(self, node: int) -> None:
        """Forget an added broker that has ended; its files stay. `more-brokers`."""
        ...

    def elect_preferred_leader(self, topic: str, partition: int) -> None:
        """Begin a preferred election; a request that is lost or refused changes nothing. `reassignments`."""
        ...

    def elect_unclean_leader(self, topic: str, partition: int) -> None:
        """Begin an unclean election; a request that is lost or refused changes nothing. `reassignments`."""
        ...

    programs: Mapping[str, ProgramControl]
    """The user's programs by name. `programs`."""
    dependencies: Mapping[str, LinkControl]
    """The links of the user's dependencies by name, such as a store; their peers are `client *`. `dependencies`."""

    def hijack_transactional_id(self, transactional_id: str) -> ArmedRule:
        """Begin a client that sends InitProducerId for this id, once; `fired` is 1 when it has a response.

        `client-requests`; the same for the methods below. Each client acts in the background until it is disarmed; it
        is `armed` until nothing of it is left.
        """
        ...

    def rebalance_group(self, group: str, *, every_ms: tuple[int, int], seed: int) -> ArmedRule:
        """Begin a client that joins the group and leaves it again and again; `fired` counts the group's rebalances.

        It stays, and stays away, for times from `every_ms`, which `seed` draws.
        """
        ...

    def join_group(self, group: str) -> ArmedRule:
        """Begin a member that reads nothing and commits nothing; `fired` is how many partitions it is assigned."""
        ...

    def describe(self) -> ClusterView:
        """Leaders, ISRs, controller; ClusterError when the registry does not respond."""
        ...

    def created(self, kind: str) -> Collection[str] | None:
        """Return the names of the consumer groups (GROUPS) or TRANSACTIONAL_IDS that exist now; None: not known."""
        ...

    def watch_traffic(self) -> HasTraffic:
        """Return a traffic detector: whether a record was acknowledged, or a high watermark moved, since this call."""
        ...


def check_capabilities(system: System, fault: object, needs: frozenset[str]) -> None:
    """Raise CapabilityError for the first thing that `fault` needs and `system` cannot do."""
    for name in sorted(needs - system.capabilities):
        remedy = CAPABILITIES.get(name, "use the backend of the extension that has it")
        raise CapabilityError(
            f"{fault} needs the capability {name!r}, which this cluster of the backend {system.backend!r} lacks; "
            f"{remedy}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The cluster at one moment, as targets and faults resolve against it."""

    view: ClusterView
    brokers: tuple[int, ...]
    running: frozenset[int]
    """Brokers that a fault can affect: alive and not paused."""
    registry_runs: bool = True
    registry_links: bool = True
    """Whether the brokers have links to a registry."""
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    offsets_partitions: int = DEFAULT_OFFSETS_PARTITIONS
    disturbed: frozenset[int] = field(default=frozenset())
    """Brokers that another fault disturbs."""
    programs: tuple[str, ...] = ()
    """Names of the user's programs, in order."""
    dependencies: tuple[str, ...] = ()
    """Names of the user's dependencies, in order."""


def take_snapshot(
    system: System, disturbed: frozenset[int] = frozenset(), *, view: ClusterView | None = None
) -> ClusterSnapshot:
    """Take the snapshot now, with `view` where it is given; ClusterError while the registry does not respond."""
    running = (node for node in system.nodes if system.broker(node).status().state == RUNNING)
    own = "registry" in system.capabilities
    return ClusterSnapshot(
        view=system.describe() if view is None else view,
        brokers=tuple(sorted(system.nodes)),
        running=frozenset(running),
        registry_runs=not own or system.registry.status().state == RUNNING,
        registry_links="registry-links" in system.capabilities,
        session_timeout_ms=system.session_timeout_ms,
        offsets_partitions=system.offsets_partitions,
        disturbed=disturbed,
        programs=tuple(sorted(system.programs)),
        dependencies=tuple(sorted(system.dependencies)),
    )
