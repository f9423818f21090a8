"""Leader elections without a broker failure: preferred leaders, by request or by imbalance, and unclean ones (D4).

Owns: `LeaderElections`: ElectLeaders requests (KIP-183, KIP-460), and the periodic check of
`auto.leader.rebalance.enable`. The check gives leadership back to a broker that does not lead more than
`leader.imbalance.per.broker.percentage` of the partitions whose preferred leader it is. The rules are in
`partition_states.py`.

What may fail: as `ActiveController`. Source: Kafka's KafkaController.processReplicaLeaderElection,
checkAndTriggerAutoLeaderRebalance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import ErrorCode, KafkaError
from ..host.seam import Timer
from ..ids import NO_NODE, NodeId, TopicPartition
from . import partition_states as rules
from .controller_core import ControllerCore
from .state_node import LeaderAndIsr

ElectionResults = dict[TopicPartition, KafkaError | None]
"""For each partition None (it has a new leader), or why it has not."""


class LeaderElections:
    """Elections of one active controller."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core
        self._timer: Timer | None = None

    # ------------------------------------------------------------- by request

    async def elect(self, partitions: Iterable[TopicPartition] | None, *, unclean: bool) -> ElectionResults:
        """Hold preferred or unclean elections for `partitions`.

        Without `partitions`: for all partitions; those that need no election are left out of the result.
        """
        context = self._core.context
        asked = list(context.kept()) if partitions is None else list(dict.fromkeys(partitions))
        results: ElectionResults = {tp: self._refusal(tp) for tp in asked}
        known = [tp for tp in asked if results[tp] is None]
        changed = set(await self._change(known, unclean=unclean))
        for tp in known:
            if tp not in changed:
                results[tp] = self._why_not(tp, unclean=unclean)
            elif context.partitions[tp].leader == NO_NODE:
                results[tp] = _not_available(tp)
        if partitions is None:
            return {tp: found for tp, found in results.items() if not _not_needed(found)}
        return results

    def _refusal(self, tp: TopicPartition) -> KafkaError | None:
        context = self._core.context
        if tp.topic in context.deleting:
            return KafkaError(ErrorCode.invalid_topic_exception, "The topic is being deleted.")
        if tp not in context.partitions:
            return KafkaError(ErrorCode.unknown_topic_or_partition, "The partition does not exist.")
        return None

    async def _change(self, partitions: Sequence[TopicPartition], *, unclean: bool) -> list[TopicPartition]:
        context = self._core.context
        # the notification of an ISR change may not have arrived: a broker that entered the ISR may lead (as in Kafka)
        await self._core.writer.refresh(partitions)
        electable = context.electable()
        live = {node: broker.epoch for node, broker in context.brokers.items()}

        def decide(tp: TopicPartition, now: LeaderAndIsr) -> LeaderAndIsr | None:
            replicas = context.assignments[tp]
            if unclean:
                return rules.unclean_state(replicas, now, live, context.shutting_down)
            return rules.preferred_state(replicas, now, electable)

        changed = await self._core.writer.change(partitions, decide)
        self._core.send_partition_changes(changed)
        return changed

    def _why_not(self, tp: TopicPartition, *, unclean: bool) -> KafkaError:
        context = self._core.context
        now = context.partitions.get(tp)
        wanted = context.assignments[tp][0] if not unclean else None
        if now is not None and (now.leader in context.brokers if unclean else now.leader == wanted):
            return KafkaError(ErrorCode.election_not_needed, f"Leader election not needed for topic partition {tp}.")
        if unclean:
            return _not_available(tp)
        return KafkaError(
            ErrorCode.preferred_leader_not_available,
            f"Failed to elect leader for partition {tp} under strategy PreferredReplica: broker "
            f"{wanted} is not alive or not in the ISR.",
        )

    # ----------------------------------------------------------- by imbalance

    def schedule(self) -> None:
        """Start the periodic check, once for each active controller, if it is enabled.

        The first check is one period after the controller's election, as in Kafka's PeriodicTaskControlManager. (The
        controller of Kafka 3 with ZooKeeper checked after five seconds: a leader that had just moved moved back.)
        """
        config = self._core.config
        if self._timer is None and config.flag("auto.leader.rebalance.enable"):
            self._arm(config.number("leader.imbalance.check.interval.seconds") * 1000)

    def stop(self) -> None:
        """End the periodic check."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, period_ms: int) -> None:
        def due() -> None:
            self._core.enqueue("preferred", self.rebalance)
            self._arm(period_ms)

        self._timer = self._core.host.tasks.call_later(period_ms, due)

    async def rebalance(self) -> None:
        """Give leadership back to preferred leaders that do not lead too many of their partitions."""
        context = self._core.context
        allowed = self._core.config.number("leader.imbalance.per.broker.percentage")
        preferred: dict[NodeId, list[TopicPartition]] = {}
        for tp in context.kept():
            if tp in context.partitions:
                preferred.setdefault(context.assignments[tp][0], []).append(tp)
        electable = context.electable()
        wanted: list[TopicPartition] = []
        for node_id, partitions in preferred.items():
            led_elsewhere = [tp for tp in partitions if context.partitions[tp].leader != node_id]
            if node_id in electable and 100 * len(led_elsewhere) > allowed * len(partitions):
                wanted += [tp for tp in led_elsewhere if tp not in context.reassigned]
        await self._change(wanted, unclean=False)


def _not_needed(found: KafkaError | None) -> bool:
    return found is not None and found.code is ErrorCode.election_not_needed


def _not_available(tp: TopicPartition) -> KafkaError:
    return KafkaError(
        ErrorCode.eligible_leaders_not_available,
        f"Failed to elect leader for partition {tp} under strategy Unclean: no replica is alive.",
    )
