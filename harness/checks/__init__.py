"""The verdict on Spark (L1-L6): Spark distributes, kernels compute.

* `judgement.py`: `judge(folder, topics=...)` lays out a run's history and logs, has each partition judged, merges;
* `kernels/`: vectorised checks of one topic-partition, run inside a Spark task; `oracle.py`: the same in plain Python;
* `segments.py`: Kafka's segment files; `sources.py`: the Python data source that hands tasks their partitions;
* `spark_server.py`, `spark_client.py`: one Spark Connect server for a whole run, and its clients;
* `verdict.py`, `guarantees.py`: what is said in the end, and what a guarantee forbids.

Importing this costs nothing until a name is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .judgement import judge as judge
    from .spark_client import SparkHandle as SparkHandle
    from .verdict import Anomaly as Anomaly
    from .verdict import Status as Status
    from .verdict import Verdict as Verdict

_HOME = {
    "Anomaly": "verdict",
    "SparkHandle": "spark_client",
    "Status": "verdict",
    "Verdict": "verdict",
    "judge": "judgement",
}
__all__ = ["Anomaly", "SparkHandle", "Status", "Verdict", "judge"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value
