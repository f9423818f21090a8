"""Which broker is the controller (D1).

The broker that creates the ephemeral node `/controller` first is elected. The same transaction raises
`/controller_epoch` by a conditional write, so two elections never have the same epoch; and the registry deletes the
node of a broker whose session has expired.

A campaign reads both nodes, one after the other, and another broker may be elected in between. So a broker that finds
its own seat is the controller only when the transaction that made the seat also wrote the epoch: else it would take the
epoch, and with its version the right to write, of its successor.

Owns: `campaign`, `delete_seat`, `WonElection`, `ControllerMovedError`. What may fail: RegistryError. When the result of
a campaign is unknown, the next campaign finds out: the owner of the node is the session that won.

Source: Kafka's KafkaController.elect, KafkaZkClient.registerControllerAndIncrementControllerEpoch.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import HarrowError
from ..ids import ControllerEpoch, NodeId
from ..registry import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Event,
    Exists,
    Get,
    NodeError,
    NodeExistsError,
    NoNodeError,
    RegistryClient,
    Set,
)
from ..registry.client import results_or_errors, value_of
from ..registry.operations import Multi, WriteOperation
from ..registry.paths import CONTROLLER, CONTROLLER_EPOCH


class ControllerMovedError(HarrowError):
    """`/controller_epoch` has another version than this controller won: another broker controls the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WonElection:
    """The controller epoch that was won, and the version of its node, on which every write is conditional."""

    epoch: ControllerEpoch
    version: int

    def check(self) -> Check:
        """The condition that begins each multi of this controller (D2)."""
        assert self.version >= 0, "-1 would match the epoch of every controller"
        return Check(CONTROLLER_EPOCH, self.version)

    def multi(self, operations: Sequence[WriteOperation]) -> Multi:
        """`operations` under that condition."""
        return Multi((self.check(), *operations))


async def campaign(
    registry: RegistryClient, node_id: NodeId, wall_ms: int, watch: Callable[[Event], None]
) -> WonElection | None:
    """Try to become the controller; None when another broker is. `watch` is called when `/controller` changes."""
    while True:
        seat, epoch_node = await results_or_errors(
            registry.submit(Exists(CONTROLLER, watch=True), watch), registry.submit(Get(CONTROLLER_EPOCH))
        )
        stat = value_of(seat)
        if isinstance(epoch_node, NoNodeError):
            await registry.ensure(CONTROLLER_EPOCH, "0")
            continue
        data, epoch_stat = value_of(epoch_node)
        if stat is not None:
            if stat.ephemeral_owner != registry.session_id:
                return None
            if stat.czxid != epoch_stat.mzxid:
                continue  # the epoch is that of a later election
            return WonElection(epoch=ControllerEpoch(int(data)), version=epoch_stat.version)
        epoch = ControllerEpoch(int(data) + 1)
        seat_json = {"version": 2, "brokerid": node_id, "timestamp": str(wall_ms), "kraftControllerEpoch": -1}
        try:
            _, raised = await registry.multi(
                [
                    Create(CONTROLLER, json.dumps(seat_json, separators=(",", ":")), ephemeral=True),
                    Set(CONTROLLER_EPOCH, str(epoch), epoch_stat.version),
                ]
            )
        except (NodeExistsError, BadVersionError):
            continue  # another broker was faster
        return WonElection(epoch=epoch, version=raised.version)


async def delete_seat(registry: RegistryClient, won: WonElection) -> None:
    """Give the seat of this election up, so that a broker is elected; nothing when there was a later election."""
    with contextlib.suppress(NodeError):
        await registry.multi([won.check(), Delete(CONTROLLER)])
