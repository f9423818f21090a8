"""One term of a controller: from a won election to its resignation.

Owns: `Term`: the picture of the cluster (`ClusterState`), the channels, the watches, and what is done at each
event. The controller calls one of its handlers at a time; each reads what changed, decides by the pure
rules of `partition_states.py`, writes conditionally, and tells the brokers. A term that is over writes
nothing (each write checks its epoch) and sends nothing (its channels are closed), whatever it still believes.

What may fail: `ControllerMovedError` (resign), `RegistryUnavailableError` (load again when it is back: loading
settles everything, so an event that was cut in two needs no memory), `SessionExpiredError` (resign).

Source: Kafka's KafkaController.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from ..config import BrokerConfig
from ..errors import ErrorCode, KafkaError
from ..host.seam import Host
from ..ids import BrokerEpoch, NodeId, TopicPartition
from ..registry import (
    Children,
    Delete,
    DeleteTree,
    Event,
    NodeError,
    ReadTree,
    RegistryClient,
    Tree,
)
from ..registry.client import settled, value_of
from ..registry.paths import (
    BROKER_IDS,
    BROKERS,
    DELETIONS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    TOPIC_CONFIGS,
    TOPICS,
    config_path,
    deletion_path,
    topic_path,
)
from ..wire.api_keys import ApiKey
from . import partition_states as rules
from .channels import Channels, ClientFactory
from .election import Mandate
from .elections import Elections
from .log_dir_events import OfflineReplicas
from .partition_writer import PartitionWriter
from .reassignments import Reassignments
from .requests import RequestBatch
from .state import ClusterState, PartitionState, brokers_of, no_leader
from .topic_deletion import TopicDeletions

UNCLEAN = "unclean.leader.election.enable"

TERM_EVENTS = frozenset(
    (
        "brokers", "topics", "deletions", "isr", "deleted", "preferred", "load", "moved", "offline", "log-dirs",
        "offline-replicas",
    )
)  # fmt: skip
"""Names of the events that belong to one term and end with it."""

Handler = Callable[[], Coroutine[Any, Any, None]]
Enqueue = Callable[[str, Handler], None]
"""`enqueue(name, handler)`: run it after the events before it; one of that name that waits is enough."""


class Term:
    """What an elected controller does."""

    def __init__(
        self,
        host: Host,
        node_id: NodeId,
        config: BrokerConfig,
        registry: RegistryClient,
        factory: ClientFactory,
        mandate: Mandate,
        enqueue: Enqueue,
        on_moved: Callable[[], None],
    ) -> None:
        self.host = host
        self._node_id = node_id
        self.config = config
        self._registry = registry
        self.enqueue = enqueue
        self.mandate = mandate
        self.state = ClusterState()
        self.writer = PartitionWriter(registry, mandate, self.state)
        self._deletions = TopicDeletions()
        self._channels = Channels(
            host,
            factory,
            config.number("controller.socket.timeout.ms"),
            self._answered,
            on_moved,
        )
        self.elections = Elections(self)
        self._offline = OfflineReplicas(self)
        self.reassignments = Reassignments(self)
        self._over = False

    def close(self) -> None:
        """The term is over."""
        self._over = True
        self._channels.end()
        self.elections.stop()

    # --------------------------------------------------------------- loading

    async def load(self) -> None:
        """Read everything, settle every partition, tell every broker. At the start, and after an outage."""
        answers = await settled(
            self._watch(BROKER_IDS, "brokers", self.brokers_changed),
            self._watch(TOPICS, "topics", self.topics_changed),
            self._watch(DELETIONS, "deletions", self.deletions_changed),
            self._watch(ISR_CHANGES, "isr", self.isr_changed),
            self._watch(LOG_DIR_EVENTS, "log-dirs", self.log_dirs_changed),
            # before the states: a note that is read here is of a state that is read below
            self._registry.submit(ReadTree(ISR_CHANGES)),
            self._registry.submit(ReadTree(BROKERS)),
            self._registry.submit(ReadTree(TOPIC_CONFIGS)),
        )
        _, _, deletions, _, _, isr_changes, brokers, configs = (value_of(one) for one in answers)
        before = self.state
        self.state = ClusterState(brokers=brokers_of(brokers))
        self.state.shutting_down = before.still_shutting_down(self.state.brokers)
        self.writer = PartitionWriter(self._registry, self.mandate, self.state)
        self._deletions = TopicDeletions()
        self._offline = OfflineReplicas(self)  # those that are will be told of again
        self._channels.close_all()
        self.state.read_topics(brokers)
        self._read_configs(configs)
        self.state.deleting = set(deletions) & self.state.topics.keys()
        for broker in self.state.brokers.values():
            self._channels.open(broker)
        everyone = list(self.state.brokers)
        batch = self.batch()
        batch.metadata(())  # who is alive, so that followers can find their leaders
        batch.flush()
        await self._settle(list(self.state.kept()))
        created = await self._create_missing()
        batch = self.batch()
        batch.leader_and_isr(created, new=True)
        batch.leader_and_isr(self.state.kept())
        batch.full_metadata(everyone)
        for node_id, left in self.reassignments.removals.left_on(everyone).items():
            batch.stop(left, only=(node_id,), delete=True)
        batch.flush()
        await self._forget_isr_changes(isr_changes)
        await self._begin_deletions(set(deletions))
        await self.reassignments.complete(list(self.state.moving))
        self.elections.schedule()

    def _watch(self, path: str, name: str, handler: Handler) -> Any:
        def changed(_event: Event) -> None:
            if not self._over:
                self.enqueue(name, handler)

        return self._registry.submit(Children(path, watch=True), changed)

    async def _watched_tree(self, path: str, name: str, handler: Handler) -> tuple[list[str], Tree]:
        answers = await settled(
            self._watch(path, name, handler), self._registry.submit(ReadTree(path))
        )
        return value_of(answers[0]), value_of(answers[1])

    def batch(self) -> RequestBatch:
        """A new collection of what brokers are to be told."""
        return RequestBatch(self.state, self._node_id, self.mandate.epoch, self._channels.send)

    def tell(self, changed: Sequence[TopicPartition]) -> None:
        """Tell replicas and everybody else of partitions whose state was changed."""
        if changed:
            batch = self.batch()
            batch.leader_and_isr(changed)
            batch.metadata(changed)
            batch.flush()

    # --------------------------------------------------------------- brokers

    async def brokers_changed(self) -> None:
        """Brokers came, went or bounced (D4, D6)."""
        _, tree = await self._watched_tree(BROKER_IDS, "brokers", self.brokers_changed)
        now, before = brokers_of(tree), self.state.brokers
        gone = before.keys() - now.keys()
        came = {n for n, b in now.items() if n not in before or before[n].epoch != b.epoch}
        if not gone and not came:
            return
        self.state.brokers = now
        self.state.shutting_down -= gone | came
        self._offline.registered(gone | came)
        for node_id in gone:
            self._channels.close(node_id)
        for node_id in sorted(came):
            self._channels.open(now[node_id])
        self.host.trace.log(
            "info",
            f"controller: brokers came {sorted(came)}, went {sorted(gone)}, live {sorted(now)}",
        )
        if came:
            batch = self.batch()
            batch.metadata(())  # first of all, where everybody is
            batch.full_metadata(came)
            batch.flush()
        affected = self.state.of_brokers(gone | came)
        changed = await self._settle(affected)
        created = await self._create_missing() if came else []
        batch = self.batch()
        batch.leader_and_isr(created, new=True)
        batch.leader_and_isr(changed)
        batch.leader_and_isr(affected, only=came)
        batch.metadata([*affected, *created])
        for leaving in (self._deletions, self.reassignments.removals):
            for node_id, left in leaving.left_on(came).items():
                batch.stop(left, only=(node_id,), delete=True)
        batch.flush()
        await self.reassignments.complete(affected)

    async def _settle(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        live = {node: broker.epoch for node, broker in self.state.brokers.items()}
        await self._refresh_unclean(partitions)

        def decide(tp: TopicPartition, state: PartitionState) -> PartitionState | None:
            return rules.settle(
                self.state.assignments[tp],
                state,
                self._offline.live(tp, live),
                self.state.shutting_down,
                unclean=self.state.unclean.get(tp.topic, self.config.flag(UNCLEAN)),
            )

        return await self.writer.change(partitions, decide)

    async def _refresh_unclean(self, partitions: Iterable[TopicPartition]) -> None:
        """The setting matters only where no ISR member is alive: there it is read anew."""
        electable = self.state.electable()
        topics = {
            tp.topic
            for tp in partitions
            if (state := self.state.partitions.get(tp)) and electable.isdisjoint(state.isr)
        }
        await self._load_configs(sorted(topics))

    async def _load_configs(self, topics: Sequence[str]) -> None:
        if topics:
            paths = [config_path(topic) for topic in topics]
            found = await self._registry.get_many(paths)
            self._read_configs({p: one for p, one in zip(paths, found, strict=True) if one})

    def _read_configs(self, tree: Tree) -> None:
        for path, (data, _) in tree.items():
            if path != TOPIC_CONFIGS and data:
                raw: dict[str, str] = json.loads(data)["config"]
                value = raw.get(UNCLEAN)
                unclean = self.config.flag(UNCLEAN) if value is None else value == "true"
                self.state.unclean[path.rpartition("/")[2]] = unclean

    # ---------------------------------------------------------------- topics

    async def topics_changed(self) -> None:
        """Topics were created, or removed by somebody's hand."""
        names = value_of((await settled(self._watch(TOPICS, "topics", self.topics_changed)))[0])
        for topic in self.state.topics.keys() - set(names):
            self.state.forget_topic(topic)
            self._deletions.end(topic)
        new = sorted(set(names) - self.state.topics.keys())
        if not new:
            return
        trees = await settled(
            *[self._registry.submit(ReadTree(topic_path(topic))) for topic in new]
        )
        for tree in trees:
            self.state.read_topics(value_of(tree))
        await self._load_configs(new)
        created = await self._create_missing()
        batch = self.batch()
        batch.leader_and_isr(created, new=True)
        batch.metadata(tp for topic in new for tp in self.state.of_topic(topic))
        batch.flush()

    async def _create_missing(self) -> list[TopicPartition]:
        """First states of partitions that have none and a live replica."""
        electable = self.state.electable()
        wanted = {
            tp: state
            for tp in self.state.without_state()
            if (state := rules.initial(self.state.assignments[tp], electable, self.mandate.epoch))
        }
        return await self.writer.create(wanted)

    async def create_missing(self, topic: str) -> None:
        """Partitions were added to a topic: lead them, tell everybody."""
        created = await self._create_missing()
        batch = self.batch()
        batch.leader_and_isr(created, new=True)
        batch.metadata(self.state.of_topic(topic))
        batch.flush()

    async def offline_changed(self) -> None:
        """Settings changed: partitions without a leader may be allowed an unclean one now."""
        offline = [tp for tp, one in self.state.partitions.items() if no_leader(one)]
        self.tell(await self._settle([tp for tp in offline if tp.topic not in self.state.deleting]))

    async def deletions_changed(self) -> None:
        """Topics were marked for deletion."""
        names = value_of(
            (await settled(self._watch(DELETIONS, "deletions", self.deletions_changed)))[0]
        )
        if not set(names) <= self.state.topics.keys():
            await self.topics_changed()  # one that was created a moment ago
        await self._begin_deletions(set(names) - self.state.deleting)

    async def _begin_deletions(self, topics: set[str]) -> None:
        unknown = topics - self.state.topics.keys()
        for topic in sorted(unknown):
            await self._remove_quietly([Delete(deletion_path(topic))])
        known = sorted(topics & self.state.topics.keys())
        if not known:
            return
        partitions = [tp for topic in known for tp in self.state.of_topic(topic)]
        self.state.deleting |= set(known)
        batch = self.batch()
        batch.metadata(partitions)
        for topic in known:
            self._deletions.begin(topic, self.state)
        for node_id, left in self._deletions.left_on(self.state.brokers).items():
            batch.stop(left, only=(node_id,), delete=True)
        batch.flush()

    async def _finish_deletions(self) -> None:
        for topic in self._deletions.finished():
            await self._remove_quietly(
                [
                    DeleteTree(topic_path(topic)),
                    DeleteTree(config_path(topic)),
                    DeleteTree(deletion_path(topic)),
                ]
            )
            self._deletions.end(topic)
            self.state.forget_topic(topic)
            self.host.trace.log("info", f"controller: topic {topic} is deleted")

    async def _remove_quietly(self, operations: Sequence[Delete | DeleteTree]) -> None:
        try:
            await self.writer.remove(operations)
        except NodeError as error:
            self.host.trace.log("info", f"controller: already removed: {error}")

    def _answered(self, node_id: NodeId, api_key: int, response: Any) -> None:
        if api_key == ApiKey.LEADER_AND_ISR and self._offline.answered(node_id, response):
            self.enqueue("offline-replicas", self._replicas_went_offline)
        if api_key == ApiKey.STOP_REPLICA and not self._over:
            self._deletions.confirmed(node_id, response)
            self.reassignments.removals.confirmed(node_id, response)
            if self._deletions.finished():
                self.enqueue("deleted", self._finish_deletions)

    # -------------------------------------------------------- offline replicas

    async def log_dirs_changed(self) -> None:
        """Data folders of live brokers went offline (B13)."""
        _, tree = await self._watched_tree(LOG_DIR_EVENTS, "log-dirs", self.log_dirs_changed)
        await self._offline.told(tree)

    async def _replicas_went_offline(self) -> None:
        self.tell(await self._settle(self._offline.take_news()))

    # ------------------------------------------------------------------- ISR

    async def isr_changed(self) -> None:
        """Leaders changed ISRs: read them, tell everybody, clear the notes."""
        _, tree = await self._watched_tree(ISR_CHANGES, "isr", self.isr_changed)
        partitions: dict[TopicPartition, None] = {}
        for path, (data, _) in tree.items():
            if path != ISR_CHANGES:
                for row in json.loads(data)["partitions"]:
                    partitions[TopicPartition(row["topic"], row["partition"])] = None
        known = [tp for tp in partitions if tp in self.state.partitions]
        if known:
            await self.writer.refresh(known)
            batch = self.batch()
            batch.metadata(tp for tp in known if tp.topic not in self.state.deleting)
            batch.flush()
            await self.reassignments.complete(known)
        await self._forget_isr_changes(tree)

    async def _forget_isr_changes(self, tree: Tree) -> None:
        notes = [DeleteTree(path) for path in tree if path != ISR_CHANGES]
        if notes:
            await self.writer.remove(notes)

    # ----------------------------------------------------- controlled shutdown

    async def shut_down(self, node_id: NodeId, epoch: BrokerEpoch) -> list[TopicPartition]:
        """Move leadership away from a broker that wants to end; what it still leads.

        KafkaError: BROKER_NOT_AVAILABLE, or STALE_BROKER_EPOCH from a former registration.
        """
        broker = self.state.brokers.get(node_id)
        if broker is None:
            raise KafkaError(ErrorCode.broker_not_available, f"broker {node_id} is not registered")
        if epoch not in (-1, broker.epoch):
            raise KafkaError(
                ErrorCode.stale_broker_epoch,
                f"broker {node_id} has epoch {broker.epoch}, not {epoch}",
            )
        self.state.shutting_down.add(node_id)
        electable = self.state.electable()
        replicated = [
            tp for tp in self.state.of_brokers((node_id,)) if len(self.state.assignments[tp]) > 1
        ]
        followed = [tp for tp in replicated if not self._leads(node_id, tp)]
        changed = await self.writer.change(
            replicated,
            lambda tp, state: rules.leave(self.state.assignments[tp], state, node_id, electable),
        )
        batch = self.batch()
        # a follower that went on fetching would be taken back into the ISR
        batch.stop(followed, only=(node_id,), delete=False)
        batch.leader_and_isr(tp for tp in changed if tp not in set(followed))
        batch.leader_and_isr([tp for tp in changed if tp in set(followed)], only=electable)
        batch.metadata(changed)
        batch.flush()
        return [tp for tp in replicated if self._leads(node_id, tp)]

    def _leads(self, node_id: NodeId, tp: TopicPartition) -> bool:
        state = self.state.partitions.get(tp)
        return state is not None and state.leader == node_id
