"""A leader's ISR changes: written to the registry, and reported to the controller (C4).

Owns: `RegistryIsrStore`. A write is conditional on the version that the leader knows, and carries the leader's own
epoch. When an earlier try of the same write was applied and its response was lost, the write is refused; the store
recognises its own data and reports success. Changes are collected for a moment and reported to the controller by one
node `/isr_change_notification/isr_change_N`.

What may fail: RegistryError: the result is unknown, and the same write may be repeated.
Source: Kafka's ReplicationUtils.updateLeaderAndIsr, ZkIsrManager.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..errors import RegistryError
from ..host.seam import Host
from ..ids import ControllerEpoch, LeaderEpoch, NodeId, TopicPartition
from ..registry import BadVersionError, NoNodeError, RegistryClient
from ..registry.paths import ISR_CHANGE, state_path
from .state_node import state_json

GATHER_MS = 50
"""How long changes are collected for one notification; Kafka's manager waits up to 2.5 s."""
RETRY_MS = 200


class RegistryIsrStore:
    """`IsrStore` of replication over a registry session."""

    def __init__(self, host: Host, registry: RegistryClient) -> None:
        self._host = host
        self._registry = registry
        self._changed: dict[TopicPartition, None] = {}
        self._notification_due = False

    async def write_isr(
        self,
        tp: TopicPartition,
        leader: NodeId,
        leader_epoch: LeaderEpoch,
        isr: Sequence[NodeId],
        controller_epoch: ControllerEpoch,
        expected_version: int,
    ) -> int | None:
        """The new version of the state node; None when another component changed it."""
        assert expected_version >= 0, f"{tp}: an ISR is written at the version that was read"
        assert leader in isr, f"{tp}: leader {leader} proposes ISR {list(isr)} without itself"
        path = state_path(tp)
        data = state_json(leader, leader_epoch, isr, controller_epoch)
        try:
            version = (await self._registry.set(path, data, expected_version)).version
        except NoNodeError:
            return None
        except BadVersionError:
            node = (await self._registry.get_many([path]))[0]
            # only the very next version can be an earlier try of this write
            if node is None or node[0] != data or node[1].version != expected_version + 1:
                return None
            version = node[1].version
        self._notify_later(tp)
        return version

    def _notify_later(self, tp: TopicPartition) -> None:
        self._changed[tp] = None
        if not self._notification_due:
            self._notification_due = True
            self._host.tasks.call_later(GATHER_MS, self._spawn)

    def _spawn(self) -> None:
        self._host.tasks.spawn(self._notify_controller(), name="isr-change-notification")

    async def _notify_controller(self) -> None:
        changed, self._changed = self._changed, {}
        value = {
            "version": 1,
            "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in changed],
        }
        data = json.dumps(value, separators=(",", ":"))
        try:
            await self._registry.create(ISR_CHANGE, data, sequential=True, make_parents=True)
        except RegistryError as error:
            # a repeated notification does no harm: the controller reads the states themselves
            self._host.trace.log("info", f"ISR changes are not reported yet: {error}")
            self._changed = {**changed, **self._changed}
            self._host.tasks.call_later(RETRY_MS, self._spawn)
            return
        self._notification_due = bool(self._changed)
        if self._notification_due:
            self._host.tasks.call_later(GATHER_MS, self._spawn)
