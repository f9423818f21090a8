"""A Spark Connect session, and the queries that judge plans on a cluster of the user's with it.

`PlanQueries` connects when it is made, which imports pyspark: two seconds of a processor and 150 MB. So in a test run
only the plan server (`plan_server.py`) does so, where Spark is a cluster of the user's. A process whose Spark is the
user's own Connect server, or that needs the session itself, makes its own.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster_queries import ClusterQueries

LOG = "see spark.log in the folder of the run"


@contextmanager
def quiet() -> Generator[None]:
    """Ignore warnings: pandas and pyspark warn when they are imported, and when a query is made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class PlanQueries:
    """One session; threads may share it, and then judge one plan after the other."""

    def __init__(self, address: str, folder: Path, *, local: bool = True, cluster: str = "", data: str = "") -> None:
        """`local`: the server is on this machine. `folder`: where `cluster_queries.py` keeps its files.

        `cluster`: what the user calls the cluster, where executors are not the server's own; `data`: the folder for
        copies (`--harrow-spark-data`).
        """
        self._log = LOG if local else f"see the log of {address.partition(';')[0]}"
        self._lock = threading.RLock()
        with quiet():
            from .connect_channel import connected

            self.session: Any = connected(address)
        if local:
            # no response is lost within this machine, and reattaching costs two more requests
            self.session.client.disable_reattachable_execute()
        self.cluster: ClusterQueries | None = None
        if cluster:
            from .cluster_queries import ClusterQueries

            self.cluster = ClusterQueries(self.session, cluster, data, folder)

    def collect(self, plan: Path) -> list[dict[str, Any]]:
        """Have the cluster judge every job of a plan, and return a result for each."""
        with self._lock, quiet():
            return self._cluster_of_user().collect(plan)

    def call(self, pickled: Path) -> list[dict[str, Any]]:
        """Have one task of the cluster call the pickled callable in a file, and return its results."""
        with self._lock, quiet():
            return self._cluster_of_user().call(pickled.read_bytes())

    def _cluster_of_user(self) -> ClusterQueries:
        assert self.cluster is not None, "Harrow's own Spark judges without a session (own_spark.py)"
        return self.cluster

    def collect_frame(self, frame: Any) -> list[Any]:
        """Return the rows of a frame of this session; SparkError when they do not arrive in time."""
        from .connect_channel import bounded

        with self._lock, quiet(), bounded(self.session, self._log):
            rows: list[Any] = frame.collect()
        return rows

    def close(self) -> None:
        """End the session."""
        self.session.stop()
