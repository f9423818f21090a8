"""The transaction coordinator and producer ids: a state machine of the coordinators on `__transaction_state` (F)."""

from .coordinator import TransactionCoordinator
from .producer_ids import ProducerIds

__all__ = ["ProducerIds", "TransactionCoordinator"]
