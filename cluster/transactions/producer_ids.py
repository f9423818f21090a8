"""Producer ids for idempotent producers (F1): blocks of ids from the registry, and InitProducerId.

Owns: `ProducerIds`. A broker reserves a block of 1000 ids by a conditional write of `/latest_producer_id_block`, and
assigns the ids in order; ids that a broker did not assign before it ended are never assigned. Therefore no id is
assigned twice, whichever process ends.

InitProducerId: without a transactional id the response has a new id with epoch 0. With a producer id and an epoch in
the request (KIP-360) the response has the same id with the next epoch, or a new id when the epochs are used up. A
transactional id gets UNSUPPORTED_VERSION, which every client treats as final: transactions are not built yet.

What may fail: COORDINATOR_NOT_AVAILABLE, on which clients try again, while the registry cannot be reached.
Source: Kafka's ZkProducerIdManager, TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ..errors import ErrorCode, KafkaError, RegistryError
from ..host.seam import Host, Promise
from ..ids import NodeId, ProducerEpoch
from ..registry import BadVersionError, NodeExistsError, NoNodeError, RegistryClient
from ..registry.paths import PRODUCER_IDS
from ..wire import messages
from ..wire.api import ApiRow
from ..wire.api_keys import ApiKey
from ..wire.request import Request

BLOCK_SIZE = 1000
EPOCH_MOST = 32767
PRODUCER_ID_MOST = 2**63 - 1
VERSIONS = (0, 5)


class ProducerIds:
    """Assigns producer ids on one broker."""

    def __init__(self, host: Host, registry: RegistryClient, node_id: NodeId) -> None:
        self._host = host
        self._registry = registry
        self._node_id = node_id
        self._next = 0
        self._end = 0  # first id after the block
        self._waiting: list[Promise[int]] = []

    def handlers(self) -> Iterable[ApiRow]:
        """InitProducerId."""
        yield ApiRow(ApiKey.INIT_PRODUCER_ID, *VERSIONS, self._init_producer_id)

    async def new_id(self) -> int:
        """A producer id that is assigned only once; RegistryError while no block can be reserved."""
        if not self._waiting and self._next < self._end:
            self._next += 1
            return self._next - 1
        promise: Promise[int] = self._host.tasks.promise()
        self._waiting.append(promise)
        if len(self._waiting) == 1:
            self._host.tasks.spawn(self._refill(), name="producer-id-block")
        return await promise

    async def _refill(self) -> None:
        while self._waiting:
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
                raise RegistryError(
                    "every producer id is assigned: no producer can begin on this cluster any more"
                )
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

    async def _init_producer_id(self, request: Request) -> None:
        body = request.decode()
        code, producer_id, epoch = ErrorCode.none, -1, ProducerEpoch(-1)
        try:
            producer_id, epoch = await self._init(body)
        except KafkaError as error:
            code = error.code
        except RegistryError as error:
            self._host.trace.log("warning", f"no producer id: {error}")
            code = ErrorCode.coordinator_not_available
        s = messages.response(request)
        request.respond(
            s.InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)
        )

    async def _init(self, body: Any) -> tuple[int, ProducerEpoch]:
        if body.transactional_id is not None:
            raise KafkaError(
                ErrorCode.unsupported_version,
                "transactions are not supported by this broker: leave transactional.id unset",
            )
        producer_id = getattr(body, "producer_id", -1)  # from version 3 on
        epoch = getattr(body, "producer_epoch", -1)
        if (producer_id < 0) != (epoch < 0):
            raise KafkaError(
                ErrorCode.invalid_request,
                "the producer id and the producer epoch must be given together",
            )
        if 0 <= epoch < EPOCH_MOST:
            return producer_id, ProducerEpoch(epoch + 1)
        return await self.new_id(), ProducerEpoch(0)
