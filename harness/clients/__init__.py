"""Recording clients: confluent-kafka's Producer and Consumer that write down what they did, and the final read.

`Producer` and `Consumer` take confluent's own configuration and offer its methods; `drain.drain` re-reads whole
topics with a fresh consumer (J7). Importing this costs nothing until a name is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .consumer import Consumer as Consumer
    from .producer import Producer as Producer

_HOME = {"Consumer": "consumer", "Producer": "producer"}
__all__ = ["Consumer", "Producer"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value
