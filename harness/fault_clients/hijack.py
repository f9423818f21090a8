"""A second producer with the user's transactional id: one InitProducerId, which fences the first producer.

It waits until a producer has used the id, so that a misspelt name is a failure and not a new id. The transaction's
timeout stays the user's. The coordinator aborts an open transaction first, and answers CONCURRENT_TRANSACTIONS
meanwhile; then the request is sent again.
"""

from __future__ import annotations

from typing import Any

from harrow.cluster.errors import ClusterError, ErrorCode, error_name
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.faults.errors import nearest

from .background import BackgroundClient
from .coordinator import TRANSACTION, Coordinator, refused

INIT_VERSION, DESCRIBE_VERSION, LIST_VERSION = 4, 0, 0
AWAIT_ID_S = 5.0
POLL_S = 0.1
NO_PRODUCER_ID, NO_EPOCH = -1, -1


class HijackingProducer(BackgroundClient):
    """`fired` is 1 when the coordinator has given this producer an id and an epoch."""

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        super().__init__("hijack")
        self._id = transactional_id
        self._coordinator = Coordinator(bootstrap_servers, TRANSACTION, transactional_id, self.stopped)

    def act(self) -> None:
        """Fence the user's producer."""
        before = self._await_use()
        tried_again: list[str] = []

        def send() -> Any:
            response = self._coordinator.ask(
                ApiKey.INIT_PRODUCER_ID,
                INIT_VERSION,
                "InitProducerIdRequest",
                transactional_id=self._id,
                transaction_timeout=before.transaction_timeout,
                producer_id=NO_PRODUCER_ID,
                producer_epoch=NO_EPOCH,
            )
            if response.error_code is not ErrorCode.none:
                tried_again.append(error_name(int(response.error_code)))
            return response

        response = self._coordinator.patiently(send, lambda row: row.error_code)
        if response.error_code is not ErrorCode.none:
            raise refused(f"InitProducerId of {self._id!r}", response.error_code)
        self.facts |= {
            "transactional_id": self._id,
            "before": {"producer_id": before.producer_id, "epoch": before.producer_epoch},
            "after": {"producer_id": response.producer_id, "epoch": response.producer_epoch},
            "transaction_before": before.transaction_state,
            "tried_again": tried_again,
        }
        was = (before.producer_id, before.producer_epoch)
        self.fired = int((response.producer_id, response.producer_epoch) != was)

    def leave(self) -> None:
        """Observe that no transaction of this producer is open: it has begun none."""
        after = self.facts.get("after")
        if after is None:
            return
        now = self._describe(self._coordinator.unstopped())
        ours = (now.producer_id, now.producer_epoch) == (after["producer_id"], after["epoch"])
        if ours and now.transaction_state == "Ongoing":
            raise ClusterError(f"a transaction of {self._id!r} with Harrow's epoch is open")
        self.facts["transaction_after"] = now.transaction_state

    def _await_use(self) -> Any:
        """Return the state of the id, once a producer has used it."""
        for _ in range(round(AWAIT_ID_S / POLL_S)):
            found = self._describe(self._coordinator)
            if found.error_code is ErrorCode.none:
                return found
            if found.error_code is not ErrorCode.transactional_id_not_found:
                raise refused(f"DescribeTransactions of {self._id!r}", found.error_code)
            self._coordinator.pause(POLL_S)
        known = self._known_ids()
        hint, listed = nearest(self._id, known), ", ".join(map(repr, known)) or "none"
        raise ClusterError(f"no producer has used the transactional id {self._id!r}{hint}; used: {listed}")

    def _describe(self, coordinator: Coordinator) -> Any:
        def send() -> Any:
            return coordinator.ask(
                ApiKey.DESCRIBE_TRANSACTIONS,
                DESCRIBE_VERSION,
                "DescribeTransactionsRequest",
                transactional_ids=(self._id,),
            ).transaction_states[0]

        return coordinator.patiently(send, lambda row: row.error_code)

    def _known_ids(self) -> list[str]:
        schema = messages.schema(ApiKey.LIST_TRANSACTIONS, LIST_VERSION, "request")
        entity = schema.ListTransactionsRequest(state_filters=(), producer_id_filters=())
        found = self._coordinator.every_broker(ApiKey.LIST_TRANSACTIONS, LIST_VERSION, entity)
        return sorted({row.transactional_id for reply in found for row in reply.transaction_states})
