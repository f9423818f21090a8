"""Producer ids; transactions come later."""

from .producer_ids import ProducerIds

__all__ = ["ProducerIds"]
