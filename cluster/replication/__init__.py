"""Replication: the replicas of one broker, their leaders' and followers' rules (spec C1 to C8, E3, E4)."""

from .isr_writes import IsrStore as IsrStore
from .partition import IsrProposal as IsrProposal
from .partition import Partition as Partition
from .partition import PartitionState as PartitionState
from .produce import ProduceResult as ProduceResult
from .replica_manager import ReplicaManager as ReplicaManager
from .truncation import STRATEGIES as STRATEGIES
