"""A Spark Connect session and the queries that judge plans with it.

`PlanQueries` connects when it is made, which imports pyspark: two seconds of a processor and 150 MB. In a test run only
the plan server (`plan_server.py`) does so, once for all test processes. A process whose Spark is the user's own Connect
server, or that needs the session itself, makes its own.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
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

    def __init__(
        self, address: str, folder: Path, *, local: bool = True, cluster: str = "", data: str = ""
    ) -> None:
        """`folder` holds the file that names the plan of a single task. `local`: the server is on this machine.

        `cluster`: what the user calls the cluster, where executors are not the server's own; `data`: the folder for
        copies (`--harrow-spark-data`).
        """
        self._folder = folder
        self._log = LOG if local else f"see the log of {address.partition(';')[0]}"
        self._query: Any = None
        self._registered = False
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
        """Have every job of a plan judged, and return a result for each."""
        if self.cluster is not None:
            with self._lock, quiet():
                return self.cluster.collect(plan)
        if len(json.loads(plan.read_text())) == 1:
            return self.call(plan)
        with self._lock, quiet():
            rows = self.collect_frame(self._tasks(plan))
        return [json.loads(row[0]) for row in rows]

    def call(self, plan: Path) -> list[dict[str, Any]]:
        """Have one task judge a plan of one task, or call the pickled callable `plan`, and return its results."""
        with self._lock, quiet():
            query = self._single_task_query()
            self._slot().write_text(str(plan))
            rows = self.collect_frame(query)
        return [json.loads(row[0]) for row in rows]

    def collect_frame(self, frame: Any) -> list[Any]:
        """Return the rows of a frame of this session; SparkError when they do not arrive in time."""
        from .connect_channel import bounded

        with self._lock, quiet(), bounded(self.session, self._log):
            rows: list[Any] = frame.collect()
        return rows

    def _slot(self) -> Path:
        """Return the file, of this session only, in which the query of a single task finds the path of its plan."""
        return self._folder / f"spark-plan-{os.getpid()}-{id(self):x}"

    def _single_task_query(self) -> Any:
        """Return the query for a plan of one task. It is created once, because creating it takes four requests."""
        from .sources import judge_at, result_schema

        if self._query is None:
            judge_plan = partial(judge_at, str(self._slot()))
            self._query = self.session.range(0, 1, 1, 1).mapInArrow(judge_plan, result_schema())
        return self._query

    def _tasks(self, plan: Path) -> Any:
        from .sources import NAME, VerdictSource

        if not self._registered:
            self.session.dataSource.register(VerdictSource)
            self._registered = True
        return self.session.read.format(NAME).option("plan", str(plan)).load()

    def close(self) -> None:
        """End the session."""
        self.session.stop()
        self._slot().unlink(missing_ok=True)
