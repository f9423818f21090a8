"""What waits see of simulated brokers: their taps, and the logs in memory.

As `from_taps.py`, with one difference: the logs of a simulated cluster are written to files before a verdict only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harrow.cluster.errors import ClusterError

from ..backends.simulated.replicas import hosted_replicas, leading_replica, log_bytes
from ..histories.segments import batches_in
from .from_taps import FromTaps, readable_in

if TYPE_CHECKING:
    from pathlib import Path

    from harrow.cluster.ids import TopicPartition

    from ..backends.simulated.cluster import SimulatedRunningCluster


PACE_S = 0.1
"""Of virtual time: a look costs as much as many milliseconds of a simulation."""


class FromSimulation(FromTaps):
    """`ClusterSeen` of a simulated cluster."""

    pace_s = PACE_S

    def __init__(self, cluster: SimulatedRunningCluster, run: Path) -> None:
        super().__init__(cluster, run)
        self._simulated = cluster.simulated

    def count_records(self, where: TopicPartition, first: int, end: int) -> int:
        """Count the records in the log of the leader."""
        leader = leading_replica(hosted_replicas(self._simulated, where))
        if leader is None:
            raise ClusterError(f"{where} has no leader")
        return readable_in(batches_in(log_bytes(leader.log), str(where), verify=False), first, end)
