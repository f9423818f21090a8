"""A leader's ISR changes: written to the registry, and reported to the controller (C4).

Owns: `RegistryIsrStore`. A write is conditional on the version that the leader knows and on the registrations of the
members (KIP-903), and carries the leader's own epoch. When an earlier try of the same write was applied and its
response was lost, the write is refused; the store recognises its own data and reports success. Changes are collected
for a moment and reported to the controller by one node `/isr_change_notification/isr_change_N`.

What may fail: RegistryError: the result is unknown, and the same write may be repeated.
Source: Kafka's ReplicationUtils.updateLeaderAndIsr, ZkIsrManager.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..errors import IsrMemberChangedError, RegistryError
from ..host.seam import Host
from ..ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId, TopicPartition
from ..registry import BadVersionError, Check, NoNodeError, RegistryClient, Set, Stat
from ..registry.paths import ISR_CHANGE, broker_path, state_path
from .state_node import state_json

GATHER_MS = 50
"""How long changes are collected for one notification; Kafka's manager waits up to 2.5 s."""
RETRY_MS = 200


class RegistryIsrStore:
    """`IsrStore` of replication over a registry session."""

    def __init__(self, host: Host, registry: RegistryClient) -> None:
        self._host = host
        self._registry = registry
        self.broker_epoch = BrokerEpoch(-1)
        """Of this broker's registration; the broker sets it when it has registered."""
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
        registrations: Mapping[NodeId, BrokerEpoch],
    ) -> int | None:
        """The new version of the state node; None when another component changed it.

        IsrMemberChangedError when a member is not registered with its broker epoch in `registrations`.
        """
        assert expected_version >= 0, f"{tp}: an ISR is written at the version that was read"
        assert leader in isr, f"{tp}: leader {leader} proposes ISR {list(isr)} without itself"
        assert len(set(isr)) == len(isr), f"{tp}: a replica stands twice in ISR {list(isr)}"
        path = state_path(tp)
        data = state_json(leader, leader_epoch, isr, controller_epoch)
        try:
            checks = self.checks({leader: self.broker_epoch, **registrations})
            version = await self._set(Set(path, data, expected_version), checks)
        except (NoNodeError, BadVersionError) as error:
            node = (await self._registry.get_many([path]))[0]
            if node is None:
                return None
            # only the very next version can be an earlier try of this write
            if node[0] != data or node[1].version != expected_version + 1:
                if error.index > 0:
                    what = f"{tp}: ISR {list(isr)} is withdrawn, a member has registered again: {error}"
                    raise IsrMemberChangedError(what) from error
                return None
            version = node[1].version
        assert version == expected_version + 1, f"{tp}: version {version} written over {expected_version}"
        self._notify_later(tp)
        return version

    async def _set(self, state: Set, checks: Sequence[Check]) -> int:
        """Write the state, first in its transaction: its error comes before those of `checks`; its new version."""
        written: Stat = (await self._registry.multi([state, *checks]))[0]
        return written.version

    def checks(self, registrations: Mapping[NodeId, BrokerEpoch]) -> list[Check]:
        """Rule of KIP-903: an ISR is written only while its members are registered as when they fetched.

        A member that has restarted may have lost its log since. So may the leader: a write of its earlier process that
        arrives late would be newer than the registration, and the controller would not see the restart.
        """
        return [Check(broker_path(node), created=epoch) for node, epoch in registrations.items() if epoch >= 0]

    def _notify_later(self, tp: TopicPartition) -> None:
        self._changed[tp] = None
        if not self._notification_due:
            self._notification_due = True
            self._host.tasks.call_later(GATHER_MS, self._spawn)

    def _spawn(self) -> None:
        self._host.tasks.spawn(self._notify_controller(), name="isr-change-notification")

    async def _notify_controller(self) -> None:
        changed, self._changed = self._changed, {}
        value = {"version": 1, "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in changed]}
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
