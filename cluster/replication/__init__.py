"""Replication: the replicas of one broker and the rules of their leaders and followers (spec C1 to C8, E3, E4)."""

from .cluster_metadata import ClusterMetadata as ClusterMetadata
from .isr_state import IsrProposal as IsrProposal
from .isr_state import LeaderAndIsr as LeaderAndIsr
from .isr_writes import IsrStore as IsrStore
from .partition import Partition as Partition
from .produce_result import ProduceResult as ProduceResult
from .replica_manager import ReplicaManager as ReplicaManager
from .truncation_strategies import STRATEGIES as STRATEGIES
