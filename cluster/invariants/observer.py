"""What looks at a simulated cluster after each event of its loop.

Owns: `ClusterInvariants`: which process an event belonged to, which of its replicas changed, and which rules that
concerns. An event of the registry concerns the transactions it committed; one of a broker its controller and replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from ..broker import Broker
from ..host.simulated.host import Machine
from ..host.simulated.loop import Incarnation
from ..ids import NodeId, TopicPartition
from ..wire.topic_ids import UUID
from .leader_completeness import CommittedPrefixes
from .registry_invariants import ObservedStore, RegistryInvariants
from .replica_invariants import ObservedReplica, check_log_bounds, check_replica
from .violation import InvariantViolation

EVENTS_PER_FULL_CHECK = 1_000
REPLICAS_PER_EVENT = 16


class ObservedProcess(Protocol):
    """A broker's process, across its incarnations."""

    @property
    def machine(self) -> Machine:
        """Where it runs."""
        ...

    @property
    def server(self) -> object:
        """The broker of the present incarnation, or of the last one; None before the first."""
        ...


class _ObservedBroker:
    """What was seen of one broker's present incarnation."""

    __slots__ = (
        "broker",
        "cache_epoch",
        "controller_epoch",
        "incarnation",
        "next",
        "node_id",
        "owner",
        "process",
        "replicas",
        "replicas_epoch",
        "topics",
    )

    def __init__(self, node_id: NodeId, process: ObservedProcess) -> None:
        self.node_id = node_id
        self.process = process
        self.incarnation: Incarnation | None = None
        self.broker: Broker | None = None
        self.owner = ""
        self.replicas: dict[TopicPartition, ObservedReplica] = {}
        self.forget()

    def forget(self) -> None:
        """Another incarnation begins: nothing was seen of it."""
        self.replicas.clear()
        self.controller_epoch = -1
        self.replicas_epoch = -1
        self.cache_epoch = -1
        self.topics: dict[UUID, str] = {}
        self.next = 0

    def broker_of(self, incarnation: Incarnation) -> Broker | None:
        """The broker of `incarnation`; None until the process has made it."""
        if self.incarnation is not incarnation:
            server = self.process.server
            if server is None or server is self.broker:
                return None
            assert isinstance(server, Broker), f"{incarnation.name} is no broker"
            self.forget()
            self.incarnation, self.broker = incarnation, server
            self.owner = f"{incarnation.name} (incarnation {self.process.machine.network_node.incarnations})"
        return self.broker

    @property
    def live(self) -> bool:
        """True while the observed incarnation goes on."""
        return self.incarnation is not None and self.incarnation.alive


class ClusterInvariants:
    """All invariants of one simulated cluster."""

    def __init__(self, brokers: Mapping[int, ObservedProcess], store: ObservedStore) -> None:
        self.registry = RegistryInvariants()
        self.committed = CommittedPrefixes()
        self.registry.on_unclean_election = self._unclean_election
        self.unclean_epochs: dict[TopicPartition, int] = {}
        """The leader epoch that the last unclean election of a partition began."""
        self._store = store
        self._controllers: dict[int, str] = {}
        self._events = 0
        self._brokers: dict[str, _ObservedBroker] = {}
        self._by_node: dict[NodeId, _ObservedBroker] = {}
        for number, process in brokers.items():
            node_id = NodeId(number)
            observed = _ObservedBroker(node_id, process)
            self._brokers[process.machine.name] = self._by_node[node_id] = observed
            process.machine.on_power_loss.append(partial(self._power_cut, observed))

    def _power_cut(self, observed: _ObservedBroker) -> None:
        for replica in observed.replicas.values():
            self.committed.power_lost(replica)

    def _unclean_election(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.unclean_epochs[tp] = leader_epoch
        self.committed.unclean_election(tp, leader_epoch)

    # ------------------------------------------------------------ each event

    def after_event(self, incarnation: Incarnation | None) -> None:
        """An event of `incarnation` has ended; InvariantViolation for the first rule that does not hold."""
        self._events += 1
        if self._store.committed:
            committed, self._store.committed = self._store.committed, []
            for changes in committed:
                self.registry.committed(changes)
            self._check_seat()
        observed = None if incarnation is None else self._brokers.get(incarnation.name)
        if observed is not None and incarnation is not None and incarnation.alive:
            broker = observed.broker_of(incarnation)
            if broker is not None:
                self._check_broker(observed, broker)
        if self._events % EVENTS_PER_FULL_CHECK == 0:
            self.check_everything()

    def _check_broker(self, observed: _ObservedBroker, broker: Broker) -> None:
        self._check_epochs(observed, broker)
        self._check_topics(observed, broker)
        partitions = tuple(broker.replicas.partitions())
        if len(partitions) > REPLICAS_PER_EVENT:
            first = observed.next % len(partitions)
            observed.next = first + REPLICAS_PER_EVENT
            partitions = partitions[first : observed.next]
        known = observed.replicas
        for partition in partitions:
            replica = known.get(partition.topic_partition)
            if replica is None or replica.partition is not partition:
                replica = ObservedReplica(partition, broker, observed.owner)
                known[partition.topic_partition] = replica
            elif replica.unchanged:
                continue
            self._check_replica(replica)

    def _check_replica(self, replica: ObservedReplica) -> None:
        check_replica(replica, self.registry)
        self.committed.observed(replica)
        elected = False
        if replica.partition.is_leader:
            elected = not replica.is_leader or replica.leader_epoch != replica.partition.leader_epoch
            self.committed.check_leader(replica)
        replica.note()
        self.committed.check_in_sync(self._replicas_of(replica.partition.topic_partition), epochs=elected)

    def _replicas_of(self, tp: TopicPartition) -> dict[NodeId, ObservedReplica]:
        return {
            observed.node_id: replica
            for observed in self._brokers.values()
            if observed.live and (replica := observed.replicas.get(tp)) is not None
        }

    # ----------------------------------------------------- controller epochs

    def _check_epochs(self, observed: _ObservedBroker, broker: Broker) -> None:
        own = broker.controller.epoch
        if own != observed.controller_epoch:
            observed.controller_epoch = own
            self._check_controller(own, observed.owner)
        heard = broker.replicas.controller_epoch
        if heard != observed.replicas_epoch:
            self._check_heard(observed.owner, observed.replicas_epoch, heard)
            observed.replicas_epoch = heard
        heard = broker.cache.controller_epoch
        if heard != observed.cache_epoch:
            self._check_heard(observed.owner, observed.cache_epoch, heard)
            observed.cache_epoch = heard

    def _check_controller(self, epoch: int, owner: str) -> None:
        if epoch < 0:
            return  # it has resigned
        self._check_heard(owner, -1, epoch)
        first = self._controllers.setdefault(epoch, owner)
        if first != owner:
            raise InvariantViolation(
                "one-controller-per-epoch", f"{first} and {owner} are controllers of epoch {epoch}"
            )
        self._check_seat()

    def _check_heard(self, owner: str, before: int, now: int) -> None:
        if now < before:
            raise InvariantViolation("controller-epoch-order", f"{owner} knew controller epoch {before}, now {now}")
        if now > self.registry.controller_epoch:
            raise InvariantViolation(
                "controller-epoch-order",
                f"{owner} knows controller epoch {now}, the registry {self.registry.controller_epoch}",
            )

    def _check_seat(self) -> None:
        """Whose epoch is the registry's must be the broker that `/controller` names."""
        owner, seat = (self._controllers.get(self.registry.controller_epoch), self.registry.controller_id)
        if owner is None or seat is None:
            return
        observed = self._by_node.get(NodeId(seat))
        name = f"broker {seat}" if observed is None else observed.process.machine.name
        if owner.partition(" ")[0] != name:
            raise InvariantViolation(
                "one-controller-per-epoch",
                f"/controller names {name} in epoch {self.registry.controller_epoch}, which {owner} won",
            )

    # ---------------------------------------------------------------- topics

    def _check_topics(self, observed: _ObservedBroker, broker: Broker) -> None:
        now = broker.cache.topic_ids()
        if now == observed.topics:
            return
        for topic_id, name in observed.topics.items():
            lost = topic_id not in now and self.registry.topic_id(name) == topic_id
            if lost and not self.registry.is_being_deleted(name):
                raise InvariantViolation(
                    "known-topics", f"{observed.owner} does not know {name} any more, which the registry has"
                )
        observed.topics = dict(now)

    # ------------------------------------------------------------ everything

    def check_everything(self) -> None:
        """Check every replica of every live broker, changed or not."""
        partitions: dict[TopicPartition, None] = {}
        for observed in self._brokers.values():
            incarnation = observed.process.machine.incarnation
            if incarnation is None or not incarnation.alive:
                continue
            broker = observed.broker_of(incarnation)
            if broker is None:
                continue
            self._check_epochs(observed, broker)
            hosted = {replica.topic_partition: replica for replica in broker.replicas.partitions()}
            for tp in [tp for tp in observed.replicas if tp not in hosted]:
                del observed.replicas[tp]
            for tp, partition in hosted.items():
                replica = observed.replicas.get(tp)
                if replica is None or replica.partition is not partition:
                    replica = observed.replicas[tp] = ObservedReplica(partition, broker, observed.owner)
                if replica.sound:
                    check_log_bounds(replica)
                self._check_replica(replica)
                partitions[tp] = None
        for tp in partitions:
            self.committed.check_in_sync(self._replicas_of(tp), epochs=True)
