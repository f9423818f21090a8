"""Producer ids for idempotent producers (F1). Transactions are not built yet."""

from .producer_ids import ProducerIds

__all__ = ["ProducerIds"]
