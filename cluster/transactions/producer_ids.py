"""Producer ids (F1): blocks of ids from the registry.

Owns: `ProducerIds`. A broker reserves a block of 1000 ids by a conditional write of `/latest_producer_id_block`, and
assigns the ids in order; ids that a broker did not assign before it ended are never assigned. Therefore no id is
assigned twice, whichever process ends.

What may fail: RegistryError, while the registry cannot be reached.
Source: Kafka's ZkProducerIdManager.
"""

from __future__ import annotations

import json

from ..errors import RegistryError
from ..host.seam import Host, Promise
from ..ids import NodeId
from ..registry import BadVersionError, NodeExistsError, NoNodeError, RegistryClient
from ..registry.paths import PRODUCER_IDS

BLOCK_SIZE = 1000
PRODUCER_ID_MOST = 2**63 - 1


class ProducerIds:
    """Assigns producer ids on one broker."""

    def __init__(self, host: Host, registry: RegistryClient, node_id: NodeId) -> None:
        self.host = host
        self._registry = registry
        self._node_id = node_id
        self._next: int = 0
        self._end: int = 0  # first id after the block
        self._waiting: list[Promise[int]] = []

    async def new_id(self) -> int:
        """A producer id that is assigned only once; RegistryError while no block can be reserved."""
        if not self._waiting and self._next < self._end:
            self._next += 1
            return self._next - 1
        promise: Promise[int] = self.host.tasks.promise()
        self._waiting.append(promise)
        if len(self._waiting) == 1:
            self.host.tasks.spawn(self._refill(), name="producer-id-block")
        return await promise

    async def _refill(self) -> None:
        while self._waiting:
            assert self._next == self._end, f"ids {self._next} to {self._end} of a block would never be assigned"
            try:
                self._next, self._end = await self._reserve_block()
            except RegistryError as error:
                waiting, self._waiting = self._waiting, []
                for promise in waiting:
                    if not promise.done():
                        promise.set_exception(error)
                return
            while self._waiting and self._next < self._end:
                promise = self._waiting.pop(0)
                if not promise.done():
                    promise.set_result(self._next)
                    self._next += 1

    async def _reserve_block(self) -> tuple[int, int]:
        while True:
            try:
                data, stat = await self._registry.get(PRODUCER_IDS)
            except NoNodeError:
                start, version = 0, None
            else:
                start, version = int(json.loads(data)["block_end"]) + 1, stat.version
            if start > PRODUCER_ID_MOST - BLOCK_SIZE:
                raise RegistryError("every producer id is assigned: no producer can begin on this cluster any more")
            block = self._block_json(start)
            try:
                if version is None:
                    await self._registry.create(PRODUCER_IDS, block)
                else:
                    await self._registry.set(PRODUCER_IDS, block, version)
            except (BadVersionError, NodeExistsError):
                continue  # another broker reserved this block first
            return start, start + BLOCK_SIZE

    def _block_json(self, start: int) -> str:
        value = {
            "version": 1,
            "broker": self._node_id,
            "block_start": str(start),
            "block_end": str(start + BLOCK_SIZE - 1),
        }
        return json.dumps(value, separators=(",", ":"))
