"""A second producer with the user's transactional id: one InitProducerId, which fences the first producer.

It waits until a producer has used the id, so that a misspelt name is a failure and not a new id. The transaction's
timeout stays the user's. The coordinator aborts an open transaction first, and answers CONCURRENT_TRANSACTIONS
meanwhile; then the request is sent again.
"""

from __future__ import annotations

from typing import Any

from harrow.cluster.errors import ClusterError, ErrorCode, KafkaError, error_name
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request
from harrow.faults.errors import nearest

from ..requests.blocking import PATIENCE_MS, BlockingTransport
from ..requests.coordinator import RETRIABLE, TRANSACTION, Coordinator, own_error
from .background import BackgroundClient

INIT_VERSION, DESCRIBE_VERSION, LIST_VERSION = 4, 0, 0
AWAIT_ID_MS, POLL_MS = 5_000, 100
NO_PRODUCER_ID, NO_EPOCH = -1, -1


class HijackingProducer(BackgroundClient):
    """`fired` is 1 when the coordinator has given this producer an id and an epoch."""

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        super().__init__("hijack", bootstrap_servers)
        self._id = transactional_id
        self._coordinator = self._reached_by(self.transport)

    def _reached_by(self, transport: BlockingTransport) -> Coordinator:
        return Coordinator(transport, TRANSACTION, self._id, patience_ms=PATIENCE_MS)

    async def act(self) -> None:
        """Fence the user's producer."""
        before = await self._await_use()
        tried_again: list[str] = []

        def error_of(response: Any) -> ErrorCode:
            if response.error_code in RETRIABLE:
                tried_again.append(error_name(int(response.error_code)))
            return own_error(response)

        request = client_request(
            ApiKey.INIT_PRODUCER_ID,
            INIT_VERSION,
            transactional_id=self._id,
            transaction_timeout=before.transaction_timeout,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_EPOCH,
        )
        response = await self._coordinator.ask(request, error_of=error_of)
        self.facts |= {
            "transactional_id": self._id,
            "before": {"producer_id": before.producer_id, "epoch": before.producer_epoch},
            "after": {"producer_id": response.producer_id, "epoch": response.producer_epoch},
            "transaction_before": before.transaction_state,
            "tried_again": tried_again,
        }
        was = (before.producer_id, before.producer_epoch)
        self.fired = int((response.producer_id, response.producer_epoch) != was)

    async def leave(self, transport: BlockingTransport) -> None:
        """Observe that no transaction of this producer is open: it has begun none."""
        after = self.facts.get("after")
        if after is None:
            return
        now = await self._describe(self._reached_by(transport))
        ours = (now.producer_id, now.producer_epoch) == (after["producer_id"], after["epoch"])
        if ours and now.transaction_state == "Ongoing":
            raise ClusterError(f"a transaction of {self._id!r} with Harrow's epoch is open")
        self.facts["transaction_after"] = now.transaction_state

    async def _await_use(self) -> Any:
        """Return the state of the id, once a producer has used it."""
        for _ in range(round(AWAIT_ID_MS / POLL_MS)):
            try:
                return await self._describe(self._coordinator)
            except KafkaError as error:
                if error.code is not ErrorCode.transactional_id_not_found:
                    raise
            await self.transport.sleep(POLL_MS)
        found = await self.transport.ask_every_broker(client_request(ApiKey.LIST_TRANSACTIONS, LIST_VERSION))
        known = sorted({row.transactional_id for response in found for row in response.transaction_states})
        hint, listed = nearest(self._id, known), ", ".join(map(repr, known)) or "none"
        raise ClusterError(f"no producer has used the transactional id {self._id!r}{hint}; used: {listed}")

    async def _describe(self, coordinator: Coordinator) -> Any:
        request = client_request(ApiKey.DESCRIBE_TRANSACTIONS, DESCRIBE_VERSION, transactional_ids=[self._id])
        response = await coordinator.ask(request, error_of=lambda found: own_error(found.transaction_states[0]))
        return response.transaction_states[0]
