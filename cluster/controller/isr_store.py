"""A leader's ISR changes, written to the registry and told to the controller (C4).

Owns: `RegistryIsrStore`. The write is conditional on the version that the leader knows; the leader epoch in it
is its own. A write that was refused because an earlier try of it had been applied (its answer was lost) is
recognised by its content. Notifications for the controller are gathered for a moment and written as one
`/isr_change_notification/isr_change_N`.

What may fail: RegistryError: the outcome is unknown, the same write may be repeated.
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
from .state import state_json

GATHER_MS = 50
"""How long changes are gathered for one notification; Kafka's manager waits up to 2.5 s."""
RETRY_MS = 200


class RegistryIsrStore:
    """`IsrStore` of replication over a registry session."""

    def __init__(self, host: Host, registry: RegistryClient) -> None:
        self._host = host
        self._registry = registry
        self._changed: dict[TopicPartition, None] = {}
        self._telling = False

    async def write_isr(
        self,
        tp: TopicPartition,
        leader: NodeId,
        leader_epoch: LeaderEpoch,
        isr: Sequence[NodeId],
        controller_epoch: ControllerEpoch,
        expected_version: int,
    ) -> int | None:
        """The new version of the state node; None when somebody else changed it."""
        path = state_path(tp)
        data = state_json(leader, leader_epoch, isr, controller_epoch)
        try:
            version = (await self._registry.set(path, data, expected_version)).version
        except NoNodeError:
            return None
        except BadVersionError:
            there = (await self._registry.get_many([path]))[0]
            # only the very next version can be an earlier try of this write
            if there is None or there[0] != data or there[1].version != expected_version + 1:
                return None
            version = there[1].version
        self._tell(tp)
        return version

    def _tell(self, tp: TopicPartition) -> None:
        self._changed[tp] = None
        if not self._telling:
            self._telling = True
            self._host.tasks.call_later(GATHER_MS, self._spawn)

    def _spawn(self) -> None:
        self._host.tasks.spawn(self._tell_controller(), name="isr-change-notification")

    async def _tell_controller(self) -> None:
        changed, self._changed = self._changed, {}
        value = {
            "version": 1,
            "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in changed],
        }
        data = json.dumps(value, separators=(",", ":"))
        try:
            await self._registry.create(ISR_CHANGE, data, sequential=True, make_parents=True)
        except RegistryError as error:
            # telling twice does no harm: the controller reads the states themselves
            self._host.trace.log("info", f"ISR changes not told yet: {error}")
            self._changed = {**changed, **self._changed}
            self._host.tasks.call_later(RETRY_MS, self._spawn)
            return
        self._telling = bool(self._changed)
        if self._telling:
            self._host.tasks.call_later(GATHER_MS, self._spawn)
