"""What follows from the view of a cluster and the states of its replicas: leaders, ISRs, convergence and its waits.

`DescribedCluster` is the part that Harrow's own cluster (`supervisor.py`) and a foreign one have in common. A state is
a row for each replica of a broker, with `topic`, `partition`, `leo`, `hw`, `leader_epoch`; `hw` is None where it is not
known.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .errors import ClusterError
from .view import ClusterView
from .wait_notes import WaitNotes

CONVERGE_TIMEOUT_S = 60.0
POLL_S = 0.01


def isr_not_full(cluster: ClusterView) -> str:
    """Return a partition without a leader or with replicas outside its ISR; empty when there is none."""
    for where, view in cluster.partitions():
        if view.leader < 0 or set(view.isr) != set(view.replicas):
            return f"{where}: leader {view.leader}, ISR {list(view.isr)} of {list(view.replicas)}"
    return ""


def unconverged(state: Mapping[int, Sequence[dict[str, Any]]], cluster: ClusterView, *, followers: bool = True) -> str:
    """Return a partition whose LEOs, epochs or HWs differ; `followers`: whether the HWs of followers count."""
    replicas: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
    for node_id, partitions in state.items():
        for row in partitions:
            replicas.setdefault((row["topic"], row["partition"]), {})[node_id] = row
    for where, view in cluster.partitions():
        rows = replicas.get(where, {})
        if set(rows) != set(view.replicas):
            return f"{where}: replicas {sorted(rows)} of {list(view.replicas)} answer"
        ends = {(row["leo"], row["leader_epoch"]) for row in rows.values()}
        judged = rows.values() if followers else [rows[view.leader]]
        if len(ends) > 1 or any(row["leo"] != row["hw"] for row in judged):
            found = sorted(
                (row["leo"], -1 if row["hw"] is None else row["hw"], row["leader_epoch"]) for row in rows.values()
            )
            return f"{where}: (LEO, HW, leader epoch) {found}"
    return ""


class DescribedCluster(abc.ABC):
    """A cluster that says how it is; each call asks again."""

    poll_s = POLL_S
    """The pause between two looks of a wait."""
    has_replica_logs = True
    """Whether the logs of all replicas are below the cluster's folder; else copies of what the leaders return."""
    has_broker_traces = True
    """Whether the brokers write traces, which foreign brokers do not."""

    @property
    @abc.abstractmethod
    def bootstrap_servers(self) -> str:
        """`host:port,…` of every broker, dead brokers too: the value of a client's `bootstrap.servers`."""

    @property
    def own_servers(self) -> str:
        """The same for clients of Harrow's own, which have no credentials."""
        return self.bootstrap_servers

    @abc.abstractmethod
    def describe(self) -> ClusterView:
        """Live brokers, controller, and each partition's leader, epoch and ISR."""

    @abc.abstractmethod
    def state(self) -> dict[int, list[dict[str, Any]]]:
        """The replicas of each running broker."""

    def leader(self, topic: str, partition: int) -> int | None:
        """The node id of a partition's leader; None for a partition without a leader, or that does not exist."""
        view = self.describe().partition(topic, partition)
        return None if view is None or view.leader < 0 else view.leader

    def isr(self, topic: str, partition: int) -> list[int]:
        """The in-sync replicas of a partition."""
        view = self.describe().partition(topic, partition)
        return [] if view is None else list(view.isr)

    def controller_id(self) -> int | None:
        """The node id of the active controller, or None while there is none."""
        return self.describe().controller

    def await_full_isr(self, timeout_s: float = CONVERGE_TIMEOUT_S) -> None:
        """Wait until every partition has a leader and its ISR holds every replica."""
        self.wait_until("full ISRs", lambda: isr_not_full(self.describe()), timeout_s)

    def topic_created(self, name: str) -> None:  # noqa: B027 - a cluster that ends with the test has nothing to note
        """Note that the test created a topic, where the cluster outlives the test."""

    def await_replicated(
        self,
        timeout_s: float = CONVERGE_TIMEOUT_S,
        topics: Sequence[str] = (),  # noqa: ARG002 - see below
    ) -> None:
        """Wait until ISRs are full, and the leader's HW and the LEO of every replica are the leader's LEO.

        The leader then delivers every record, and the replicas' logs are equal. `topics`: those that are judged; a
        cluster that others use too waits only for them.
        """

        def lacking() -> str:
            view = self.describe()
            return isr_not_full(view) or unconverged(self.state(), view, followers=False)

        self.wait_until("full ISRs of equal logs", lacking, timeout_s)

    def wait_until(self, what: str, lacking: Callable[[], str], timeout_s: float) -> None:
        """Wait until `lacking` returns no reason; ClusterError with the last reason after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        notes = WaitNotes(most_s=timeout_s)
        while True:
            try:
                reason = lacking()
            except ClusterError as error:  # a process is starting or stopping
                reason = str(error)
            if not reason:
                return
            if time.monotonic() > deadline:
                raise ClusterError(f"no {what} after {timeout_s:.1f} s: {reason}")
            notes.look(what, reason)
            time.sleep(self.poll_s)
