"""Harrow: what happens when Kafka breaks?

The root re-exports the public names of the three layers, lazily: importing `harrow` (as pytest does
with every installed plugin) costs nothing until a name is used.

* `harrow.cluster`: a multiprocess Kafka-protocol cluster, usable alone;
* `harrow.faults`: what goes wrong, and when;
* `harrow.harness`: what a test author sees.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harrow.cluster import Cluster as Cluster
    from harrow.cluster import HarrowError as HarrowError

_HOME = {
    "Cluster": "harrow.cluster",
    "HarrowError": "harrow.cluster",
}
__all__ = ["Cluster", "HarrowError"]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'harrow' has no attribute {name!r}") from None
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
