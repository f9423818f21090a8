"""Who is the controller (D1).

The first to create the ephemeral `/controller`, with `/controller_epoch` raised by a conditional write in the
same transaction: no two terms have the same epoch, and whoever lost its session also lost its node.

Owns: `campaign`, `Mandate`, `ControllerMovedError`. What may fail: RegistryError. A campaign whose outcome was
unknown is finished by the next one: the node's owner says whose it is.

Source: Kafka's KafkaController.elect, KafkaZkClient.registerControllerAndIncrementControllerEpoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import HarrowError
from ..ids import ControllerEpoch, NodeId
from ..registry import (
    BadVersionError,
    Check,
    Create,
    Event,
    Exists,
    Get,
    NodeExistsError,
    NoNodeError,
    RegistryClient,
    Set,
)
from ..registry.client import settled, value_of
from ..registry.operations import Multi, WriteOperation
from ..registry.paths import CONTROLLER, CONTROLLER_EPOCH


class ControllerMovedError(HarrowError):
    """`/controller_epoch` is not this term's any more: another broker controls the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mandate:
    """A won election: the epoch, and the version of its node that every write of the term is conditional on."""

    epoch: ControllerEpoch
    version: int

    def check(self) -> Check:
        """The condition that begins each multi of this term (D2)."""
        return Check(CONTROLLER_EPOCH, self.version)

    def multi(self, operations: Sequence[WriteOperation]) -> Multi:
        """`operations` on that condition."""
        return Multi((self.check(), *operations))


async def campaign(
    registry: RegistryClient, node_id: NodeId, wall_ms: int, watch: Callable[[Event], None]
) -> Mandate | None:
    """Try to become the controller; None when another is. `watch` hears when that changes."""
    while True:
        seat, epoch_node = await settled(
            registry.submit(Exists(CONTROLLER, watch=True), watch),
            registry.submit(Get(CONTROLLER_EPOCH)),
        )
        stat = value_of(seat)
        if isinstance(epoch_node, NoNodeError):
            await registry.ensure(CONTROLLER_EPOCH, "0")
            continue
        data, epoch_stat = value_of(epoch_node)
        if stat is not None:
            if stat.ephemeral_owner != registry.session_id:
                return None
            return Mandate(epoch=ControllerEpoch(int(data)), version=epoch_stat.version)
        epoch = ControllerEpoch(int(data) + 1)
        seat_json = {
            "version": 2,
            "brokerid": node_id,
            "timestamp": str(wall_ms),
            "kraftControllerEpoch": -1,
        }
        try:
            _, raised = await registry.multi(
                [
                    Create(
                        CONTROLLER, json.dumps(seat_json, separators=(",", ":")), ephemeral=True
                    ),
                    Set(CONTROLLER_EPOCH, str(epoch), epoch_stat.version),
                ]
            )
        except (NodeExistsError, BadVersionError):
            continue  # another was faster
        return Mandate(epoch=epoch, version=raised.version)
