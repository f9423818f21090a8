"""The state node of a partition: its leader, leader epoch and ISR, as the registry stores them.

Owns: `LeaderAndIsr` and its JSON (Kafka's TopicPartitionStateZNode).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..ids import NO_NODE, ControllerEpoch, LeaderEpoch, NodeId
from ..registry import Stat


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    """The state of one partition. `leader` is -1 while the partition has no leader.

    `version` is the version of the node that was read, `written` the registry transaction that wrote it. A proposed
    state carries both of the state that it is to replace.
    """

    leader: NodeId
    leader_epoch: LeaderEpoch
    isr: tuple[NodeId, ...]
    controller_epoch: ControllerEpoch
    version: int = 0
    written: int = 0

    @property
    def has_leader(self) -> bool:
        """False while no broker leads the partition."""
        return self.leader != NO_NODE

    def to_json(self) -> str:
        """The data of the node. Asserts what every stored state must satisfy."""
        assert self.isr, f"{self}: an ISR is never empty"
        assert len(set(self.isr)) == len(self.isr), f"{self}: the ISR names a broker twice"
        assert not self.has_leader or self.leader in self.isr, f"{self}: leader outside the ISR"
        return state_json(self.leader, self.leader_epoch, self.isr, self.controller_epoch)


def state_json(leader: NodeId, leader_epoch: LeaderEpoch, isr: Iterable[NodeId], epoch: ControllerEpoch) -> str:
    """The data of a state node."""
    value = {"controller_epoch": epoch, "leader": leader, "version": 1, "leader_epoch": leader_epoch, "isr": list(isr)}
    return json.dumps(value, separators=(",", ":"))


def parse_state(data: str, stat: Stat) -> LeaderAndIsr:
    """The state that a node holds."""
    value: dict[str, Any] = json.loads(data)
    return LeaderAndIsr(
        leader=NodeId(value["leader"]),
        leader_epoch=LeaderEpoch(value["leader_epoch"]),
        isr=tuple(NodeId(node) for node in value["isr"]),
        controller_epoch=ControllerEpoch(value["controller_epoch"]),
        version=stat.version,
        written=stat.mzxid,
    )
