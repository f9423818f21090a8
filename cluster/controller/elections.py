"""Elections that nobody's death asks for: preferred leaders, by request or by imbalance, and unclean ones (D4).

Owns: `Elections` of one term: what ElectLeaders asks for (KIP-183, KIP-460) and the periodic check of
`auto.leader.rebalance.enable`, by which a broker that leads fewer than its share of the partitions it is
preferred for (`leader.imbalance.per.broker.percentage`) gets them back. The rules are in `partition_states.py`.

What may fail: as `Term`. Source: Kafka's KafkaController.processReplicaLeaderElection,
checkAndTriggerAutoLeaderRebalance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError
from ..host.seam import Timer
from ..ids import NO_NODE, NodeId, TopicPartition
from . import partition_states as rules
from .state import PartitionState

if TYPE_CHECKING:
    from .term import Term

Results = dict[TopicPartition, KafkaError | None]

FIRST_CHECK_MS = 5_000
"""The first check comes so soon after an election, as Kafka's, unless the period is shorter."""


class Elections:
    """Leaders moved without need."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._timer: Timer | None = None

    # ------------------------------------------------------------- by request

    async def elect(self, partitions: Iterable[TopicPartition] | None, *, unclean: bool) -> Results:
        """Preferred or unclean elections; for each partition None (a new leader), or why there is none.

        Without `partitions`: for all that there are, without those that need none.
        """
        state = self._term.state
        asked = list(state.kept()) if partitions is None else list(dict.fromkeys(partitions))
        results: Results = {tp: self._refusal(tp) for tp in asked}
        known = [tp for tp in asked if results[tp] is None]
        changed = set(await self._change(known, unclean=unclean))
        for tp in known:
            if tp not in changed:
                results[tp] = self._why_not(tp, unclean=unclean)
            elif state.partitions[tp].leader == NO_NODE:
                results[tp] = _not_available(tp)
        if partitions is None:
            return {tp: found for tp, found in results.items() if not _not_needed(found)}
        return results

    def _refusal(self, tp: TopicPartition) -> KafkaError | None:
        state = self._term.state
        if tp.topic in state.deleting:
            return KafkaError(ErrorCode.invalid_topic_exception, "The topic is being deleted.")
        if tp not in state.partitions:
            return KafkaError(ErrorCode.unknown_topic_or_partition, "The partition does not exist.")
        return None

    async def _change(
        self, partitions: Sequence[TopicPartition], *, unclean: bool
    ) -> list[TopicPartition]:
        state = self._term.state
        # a leader's note of its new ISR may still be on its way: who was let in again may lead (as Kafka reads)
        await self._term.writer.refresh(partitions)
        electable = state.electable()
        live = {node: broker.epoch for node, broker in state.brokers.items()}

        def decide(tp: TopicPartition, now: PartitionState) -> PartitionState | None:
            replicas = state.assignments[tp]
            if unclean:
                return rules.unclean(replicas, now, live, state.shutting_down)
            return rules.preferred(replicas, now, electable)

        changed = await self._term.writer.change(partitions, decide)
        self._term.tell(changed)
        return changed

    def _why_not(self, tp: TopicPartition, *, unclean: bool) -> KafkaError:
        state = self._term.state
        now = state.partitions.get(tp)
        wanted = state.assignments[tp][0] if not unclean else None
        if now is not None and (now.leader in state.brokers if unclean else now.leader == wanted):
            return KafkaError(
                ErrorCode.election_not_needed,
                f"Leader election not needed for topic partition {tp}.",
            )
        if unclean:
            return _not_available(tp)
        return KafkaError(
            ErrorCode.preferred_leader_not_available,
            f"Failed to elect leader for partition {tp} under strategy PreferredReplica: broker "
            f"{wanted} is not alive or not in the ISR.",
        )

    # ----------------------------------------------------------- by imbalance

    def schedule(self) -> None:
        """Begin the periodic check, once a term, where it is enabled."""
        config = self._term.config
        if self._timer is None and config.flag("auto.leader.rebalance.enable"):
            period_ms = config.number("leader.imbalance.check.interval.seconds") * 1000
            self._arm(min(period_ms, FIRST_CHECK_MS), period_ms)

    def stop(self) -> None:
        """The term is over."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, delay_ms: int, period_ms: int) -> None:
        def due() -> None:
            self._term.enqueue("preferred", self.rebalance)
            self._arm(period_ms, period_ms)

        self._timer = self._term.host.tasks.call_later(delay_ms, due)

    async def rebalance(self) -> None:
        """Give leadership back to preferred leaders of brokers that lead too few of theirs."""
        state = self._term.state
        allowed = self._term.config.number("leader.imbalance.per.broker.percentage")
        preferred: dict[NodeId, list[TopicPartition]] = {}
        for tp in state.kept():
            if tp in state.partitions:
                preferred.setdefault(state.assignments[tp][0], []).append(tp)
        wanted: list[TopicPartition] = []
        for node_id, partitions in preferred.items():
            away = [tp for tp in partitions if state.partitions[tp].leader != node_id]
            if node_id in state.electable() and 100 * len(away) > allowed * len(partitions):
                wanted += [tp for tp in away if tp not in state.moving]
        await self._change(wanted, unclean=False)


def _not_needed(found: KafkaError | None) -> bool:
    return found is not None and found.code is ErrorCode.election_not_needed


def _not_available(tp: TopicPartition) -> KafkaError:
    return KafkaError(
        ErrorCode.eligible_leaders_not_available,
        f"Failed to elect leader for partition {tp} under strategy Unclean: no replica is alive.",
    )
