"""The controller (D): election, broker and partition states, assignment, topic deletion, ISR notifications.

`Controller` runs on every broker; the elected one has a `Term`. `register` is a broker's claim to exist.
"""

from .assignment import assign_replicas
from .controller import Controller
from .isr_store import RegistryIsrStore
from .registration import BrokerInfo, Endpoint, register

__all__ = [
    "BrokerInfo",
    "Controller",
    "Endpoint",
    "RegistryIsrStore",
    "assign_replicas",
    "register",
]
