"""Controlled shutdown of a broker (D4): its leaderships move away before it stops.

Owns: `shut_down`, the active controller's part. Source: Kafka's KafkaController.doControlledShutdown.
"""

from __future__ import annotations

from ..errors import ErrorCode, KafkaError
from ..ids import BrokerEpoch, NodeId, TopicPartition
from . import partition_states as rules
from .controller_core import ControllerCore


async def shut_down(core: ControllerCore, node_id: NodeId, epoch: BrokerEpoch) -> list[TopicPartition]:
    """Move leaderships away from a broker that is to stop; returns the partitions that it still leads.

    KafkaError: BROKER_NOT_AVAILABLE for a broker without registration, STALE_BROKER_EPOCH for an earlier one.
    """
    context = core.context
    broker = context.brokers.get(node_id)
    if broker is None:
        raise KafkaError(ErrorCode.broker_not_available, f"broker {node_id} is not registered")
    if epoch not in (-1, broker.epoch):
        raise KafkaError(ErrorCode.stale_broker_epoch, f"broker {node_id} has epoch {broker.epoch}, not {epoch}")
    context.shutting_down.add(node_id)
    electable = context.electable()

    def leads(tp: TopicPartition) -> bool:
        state = context.partitions.get(tp)
        return state is not None and state.leader == node_id

    replicated = [tp for tp in context.of_brokers((node_id,)) if len(context.assignments[tp]) > 1]
    followed = {tp: None for tp in replicated if not leads(tp)}
    changed = await core.writer.change(
        replicated, lambda tp, state: rules.state_after_shutdown(context.assignments[tp], state, node_id, electable)
    )
    batch = core.new_batch()
    # a follower that continued to fetch would enter the ISR again
    batch.stop(followed, only=(node_id,), delete=False)
    batch.leader_and_isr(tp for tp in changed if tp not in followed)
    batch.leader_and_isr([tp for tp in changed if tp in followed], only=electable)
    batch.metadata(changed)
    batch.flush()
    return [tp for tp in replicated if leads(tp)]
