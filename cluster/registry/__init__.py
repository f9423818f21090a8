"""The coordination service: a small ZooKeeper (D3). Owns the tree, its server and its client.

Brokers use `RegistryClient`, the operations for multis, and the errors; the registry's own process uses
`server.py` and `store.py`.
"""

from .client import RegistryClient
from .errors import (
    BadRequestError,
    BadVersionError,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RegistryUnavailableError,
    SessionExpiredError,
)
from .operations import (
    ANY_VERSION,
    Check,
    Children,
    Create,
    Created,
    Delete,
    DeleteTree,
    Event,
    Exists,
    Get,
    ReadTree,
    Set,
    Stat,
    Tree,
)
from .tree import RegistryTree
from .zookeeper import ZooKeeperClient

__all__ = [
    "ANY_VERSION",
    "BadRequestError",
    "BadVersionError",
    "Check",
    "Children",
    "Create",
    "Created",
    "Delete",
    "DeleteTree",
    "Event",
    "Exists",
    "Get",
    "NoNodeError",
    "NodeError",
    "NodeExistsError",
    "NotEmptyError",
    "ReadTree",
    "RegistryClient",
    "RegistryTree",
    "RegistryUnavailableError",
    "SessionExpiredError",
    "Set",
    "Stat",
    "Tree",
    "ZooKeeperClient",
]
