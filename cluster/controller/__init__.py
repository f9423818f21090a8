"""The controller (D): election, broker and partition states, replica assignment, topic deletion, ISR notifications.

Every broker runs a `Controller`; the elected broker's has an `ActiveController`. `register` creates a broker's
registration.
"""

from .assignment import assign_replicas
from .controller import Controller
from .registration import BrokerInfo, Endpoint, register
from .registry_isr_store import RegistryIsrStore

__all__ = ["BrokerInfo", "Controller", "Endpoint", "RegistryIsrStore", "assign_replicas", "register"]
