"""A Kafka-protocol cluster in Python, usable alone: brokers and a registry as operating-system processes.

The public names are the supervisor's `Cluster` and the root of the errors. Imports are lazy, so that the
plugin and the fork server import only what they use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import HarrowError as HarrowError

if TYPE_CHECKING:
    from .supervisor import Cluster as Cluster

_HOME = {"Cluster": "harrow.cluster.supervisor"}
__all__ = ["Cluster", "HarrowError"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'harrow.cluster' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
