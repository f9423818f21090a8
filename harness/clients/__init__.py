"""Recording clients: those of confluent-kafka, kafka-python and aiokafka with a history (J6); and the final read.

`Producer` and `Consumer` have confluent-kafka's configuration and methods. The recording clients of the other
libraries (`kafka_python_producer.py`, …) are subclasses of the libraries' own. `final_read.read_all` reads whole topics
with a new consumer (J7). A client is imported at its first use.
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
