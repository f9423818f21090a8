"""`System`: what a fault may ask of the cluster that it breaks. Every backend has one.

    local       processes on this machine         `harness/backends/local.py`
    simulated   machines on a virtual clock       `harness/backends/simulated/system.py`
    apache      Apache Kafka behind a proxy       `harness/backends/apache/system.py`
    docker      the same in containers            `harness/backends/apache/system.py`
    external    brokers behind a proxy            `harness/backends/external/system.py`

A `System` and its `Broker`s have what every backend can tell, and the parts that it can control (`controls.py`). A
capability is the name of a part, or of what a part can do (`CAPABILITIES`). A fault says what it needs
(`Fault.needs`), and the nemesis checks that before anything is broken.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from harrow.cluster.view import ClusterView

from .controls import (
    RUNNING,
    AclRevocation,
    CertificateChange,
    CredentialChange,
    CredentialControl,
    DiskChange,
    DiskControl,
    DiskPowerLoss,
    EmptyFolders,
    FileDamage,
    LinkControl,
    MembershipControl,
    OperatorControl,
    Part,
    PartialPowerLoss,
    PasswordChange,
    PeerKind,
    ProcessControl,
    ProcessStatus,
    ProgramControl,
    RegistryControl,
    RuleControl,
    ShareControl,
    has_part,
)
from .errors import CapabilityError
from .rule_kinds import (
    ClockRule,
    ConnectionRule,
    DescriptorRule,
    DiskRule,
    LateDiskRule,
    LoginRule,
    MemoryRule,
    RequestRule,
    Rule,
    SlowDiskRule,
    StartFailpointRule,
    TokenRule,
)

DEFAULT_SESSION_TIMEOUT_MS = 1_500
DEFAULT_OFFSETS_PARTITIONS = 50
GROUPS, TRANSACTIONAL_IDS = "consumer group", "transactional id"

HasTraffic = Callable[[], bool]
"""Called repeatedly by the nemesis; returns at once."""


class Broker:
    """One broker, and those of its parts that its backend controls."""

    process = Part[ProcessControl]()
    links = Part[LinkControl]()
    disk = Part[DiskControl]()
    rules = Part[RuleControl]()
    shares = Part[ShareControl]()

    def __init__(self, node: int) -> None:
        self.node = node

    def __str__(self) -> str:
        return f"broker {self.node}"

    def status(self) -> ProcessStatus:
        """Return the state of its process now."""
        return self.process.status()


class System(abc.ABC):
    """A cluster that can be broken."""

    backend: str
    """Its name, for error messages: `local`, `simulated`."""
    session_timeout_ms: int
    """Time without a heartbeat after which the registry expires a broker's session."""
    offsets_partitions: int
    """How many partitions `__consumer_offsets` gets."""
    client_frames: Callable[[], int] | None = None
    """How many frames clients and brokers have delivered to each other so far; None where it is not counted."""
    own_capabilities: frozenset[str] = frozenset()
    """Capabilities of an extension's backend, for faults of the same extension."""

    registry = Part[RegistryControl]()
    operator = Part[OperatorControl]()
    membership = Part[MembershipControl]()
    clients = Part[RuleControl]()
    credentials = Part[CredentialControl]()
    programs = Part[Mapping[str, ProgramControl]]()
    """The user's programs by name."""
    dependencies = Part[Mapping[str, LinkControl]]()
    """The links of the user's dependencies by name, such as a store; their peers are `client *`."""

    def __str__(self) -> str:
        return "the cluster"

    @property
    @abc.abstractmethod
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id in order, dead ones too."""

    @abc.abstractmethod
    def broker(self, node: int) -> Broker:
        """Return one broker; KeyError for a node id that is not in `nodes`."""

    @abc.abstractmethod
    def describe(self) -> ClusterView:
        """Return leaders, ISRs, controller; ClusterError when the registry does not respond."""

    @abc.abstractmethod
    def created(self, kind: str) -> Collection[str] | None:
        """Return the names of the consumer groups (GROUPS) or TRANSACTIONAL_IDS that exist now; None: not known."""

    @abc.abstractmethod
    def watch_traffic(self) -> HasTraffic:
        """Return a traffic detector: whether a record was acknowledged, or a high watermark moved, since this call."""

    @property
    def capabilities(self) -> frozenset[str]:
        """The names of `CAPABILITIES` that this cluster has, and `own_capabilities`."""
        return self.own_capabilities.union(filter(self.can, CAPABILITIES))

    def can(self, capability: str) -> bool:
        """Whether it has this capability."""
        known = CAPABILITIES.get(capability)
        return capability in self.own_capabilities or (known is not None and known.is_there(self))


# ----------------------------------------------------------------------------------- capabilities


@dataclass(frozen=True, slots=True)
class Capability:
    """Something that a backend may be able to do."""

    is_there: Callable[[System], bool]
    remedy: str
    """What a user does where it is not there."""


def _of_brokers(has: Callable[[Broker], bool]) -> Callable[[System], bool]:
    """All brokers of a system are alike: the first one has it."""
    return lambda system: any(has(system.broker(node)) for node in system.nodes[:1])


def _links(peers: PeerKind) -> Callable[[System], bool]:
    return _of_brokers(lambda broker: has_part(broker, Broker.links) and peers in broker.links.peers)


def _change(kind: type[DiskChange]) -> Callable[[System], bool]:
    return _of_brokers(lambda broker: has_part(broker, Broker.disk) and kind in broker.disk.kinds)


def _rule(kind: type[Rule]) -> Callable[[System], bool]:
    return _of_brokers(lambda broker: has_part(broker, Broker.rules) and kind in broker.rules.kinds)


def _part(part: Part[Any]) -> Callable[[System], bool]:
    return lambda system: has_part(system, part)


def _credentials(kind: type[CredentialChange]) -> Callable[[System], bool]:
    return lambda system: has_part(system, System.credentials) and kind in system.credentials.kinds


_OWN_BROKERS = "use a backend that runs Harrow's own brokers: local or simulated"
_REAL_PROCESSES = "use a backend of real processes: local, apache, docker or external"
_PASSING = "use a backend whose brokers' connections with clients pass through Harrow"
_LOCAL = "use the local backend"
_SASL = "use the backend local or apache, with a listener with SASL (security=)"

CAPABILITIES: Mapping[str, Capability] = {
    "process": Capability(
        _of_brokers(lambda broker: has_part(broker, Broker.process)),
        "use a backend that starts the brokers itself",
    ),
    "links": Capability(
        _links(PeerKind.BROKER),
        "use a backend that controls the links between brokers: local, simulated, or apache on Linux",
    ),
    "registry-links": Capability(
        _links(PeerKind.REGISTRY), "use a backend whose brokers have sessions at a registry: local or simulated"
    ),
    "client-links": Capability(_links(PeerKind.CLIENT), _PASSING),
    "responses": Capability(_rule(RequestRule), _PASSING),
    "failpoints": Capability(_rule(StartFailpointRule), _OWN_BROKERS),
    "disk-errors": Capability(_rule(DiskRule), _OWN_BROKERS),
    "disk-delays": Capability(_rule(LateDiskRule), "use the local backend, or leave `delay_ms` out"),
    "slow-disk": Capability(_rule(SlowDiskRule), _OWN_BROKERS),
    "clocks": Capability(_rule(ClockRule), _OWN_BROKERS),
    "descriptors": Capability(_rule(DescriptorRule), _LOCAL),
    "connections": Capability(_rule(ConnectionRule), "use a backend with real brokers"),
    "memory": Capability(_rule(MemoryRule), _LOCAL),
    "disk-damage": Capability(_change(FileDamage), _OWN_BROKERS),
    "wipe": Capability(_change(EmptyFolders), _OWN_BROKERS),
    "power-loss": Capability(_change(DiskPowerLoss), "start the cluster with config={'harrow.power.loss': True}"),
    "power-loss-kept-fraction": Capability(
        _change(PartialPowerLoss), "use the local backend, or leave `kept_fraction` out"
    ),
    "share-locks": Capability(_of_brokers(lambda broker: has_part(broker, Broker.shares)), _OWN_BROKERS),
    "registry": Capability(
        _part(System.registry), "leave zookeeper.connect empty, so that Harrow starts a registry of its own"
    ),
    "reassignments": Capability(_part(System.operator), "use a backend whose brokers Harrow starts, or may reassign"),
    "more-brokers": Capability(_part(System.membership), _LOCAL),
    "logins": Capability(_rule(LoginRule), _SASL),
    "tokens": Capability(_rule(TokenRule), "use the local backend, with a listener with the mechanism OAUTHBEARER"),
    "passwords": Capability(
        _credentials(PasswordChange),
        f"{_SASL} and SCRAM; Apache Kafka reads the passwords of PLAIN when a listener starts, so PLAIN needs local",
    ),
    "acls": Capability(
        _credentials(AclRevocation),
        "use the backend local or apache, with an authorizer: security=Security(…, acls=True)",
    ),
    "certificates": Capability(
        _credentials(CertificateChange),
        "use the backend local or apache, with a listener with TLS and Harrow's certificates (security=)",
    ),
    "client-requests": Capability(_part(System.clients), _REAL_PROCESSES),
    "programs": Capability(_part(System.programs), _REAL_PROCESSES),
    "dependencies": Capability(_part(System.dependencies), _REAL_PROCESSES),
}
"""Everything that a backend may be able to do, by the name that faults use."""


def check_capabilities(system: System, fault: object, needs: frozenset[str]) -> None:
    """Raise CapabilityError for the first thing that `fault` needs and `system` cannot do."""
    for name in sorted(needs):
        if system.can(name):
            continue
        known = CAPABILITIES.get(name)
        remedy = known.remedy if known else "use the backend of the extension that has it"
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

    def __post_init__(self) -> None:
        assert self.running <= set(self.brokers), f"{sorted(self.running)} run, the brokers are {self.brokers}"
        assert list(self.brokers) == sorted(set(self.brokers)), f"brokers {self.brokers} are not in order"


def take_snapshot(
    system: System, disturbed: frozenset[int] = frozenset(), *, view: ClusterView | None = None
) -> ClusterSnapshot:
    """Take the snapshot now, with `view` where it is given; ClusterError while the registry does not respond."""
    running = (node for node in system.nodes if system.broker(node).status().state == RUNNING)
    own = has_part(system, System.registry)
    return ClusterSnapshot(
        view=system.describe() if view is None else view,
        brokers=tuple(sorted(system.nodes)),
        running=frozenset(running),
        registry_runs=not own or system.registry.status().state == RUNNING,
        registry_links=system.can("registry-links"),
        session_timeout_ms=system.session_timeout_ms,
        offsets_partitions=system.offsets_partitions,
        disturbed=disturbed,
        programs=tuple(sorted(system.programs)) if has_part(system, System.programs) else (),
        dependencies=tuple(sorted(system.dependencies)) if has_part(system, System.dependencies) else (),
    )
