"""The verdict (L1-L6): Spark distributes the topic-partitions, the kernels check them.

The result:

* `verdict.py`: `Verdict` and its anomalies, and their JSON; `verdict_text.py`: the same in a user's words;
* `guarantees.py`: the names of anomalies, the guarantees that forbid them, and the guarantees that settings give;
* `anomaly_kinds.py`: the order of severity and the words of each kind;
* `rows.py`: what checks find, as values: the result of a partition, anomalies, and the operations that show them;
  `facts.py`: facts about causes; `client_names.py`: explanations in which names replace the numbers of clients;
* `examples.py`: the anomalies that are shown, with decoded keys and values;
* `causes/`: the line of cause of each kind.

The checks:

* `judgement.py`: `judge(folder, topics=…)` lays out a run's history and logs, has each partition judged, and merges;
  `partition_jobs.py`, `merged_results.py`: the jobs, and their results as one;
* `fault_windows.py`: when each fault lasted, and whether operations met it; `doubts.py`: why a run proves too little;
* `traced_changes.py`: what Kafka removed legally, by the traces (compaction, retention, a topic created again);
* `kernels/`: the vectorised checks of one topic-partition, which run inside a Spark task;
* `oracle.py`: the same checks in plain Python, for small histories (others are `tests/support/oracle_of_*.py`);
* `traces.py`: checks the brokers' traces.

Spark:

* `plans.py`: what Spark's tasks judge;
* `spark_server.py`: the process that owns the JVM of a run; `plan_server.py`: the process that has plans judged there,
  for all test processes; `spark_client.py`: their clients;
* `own_spark.py`: plans as jobs of Harrow's own Spark; `spark_tasks.py`: what its workers run; `worker_daemon.py`,
  `worker_door.py`: the processes in which they run;
* `plan_queries.py`: a session of Spark Connect; `cluster_queries.py`: plans and joins on a cluster of the user's;
  `cluster_tasks.py`, `sources.py`: what its executors run, and its rows; `shared_data.py`: copies for executors that
  cannot see the run folder;
* `jvm.py`: the JVM's command line; `aot.py`: a cache of its classes; `warm_up.py`: small verdicts at its start.

A module is imported at the first use of a name.
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
