"""KIP-890, part 1: a batch that arrives after the end of its transaction opens it again.

What was wrong (Kafka 0.11 to 3.5): a partition leader appended a transactional batch without asking the coordinator
whether its transaction is open. A batch that was late in the network arrived after the marker of its transaction, with
an epoch and a sequence that the leader accepted. It opened a transaction in this log of which the coordinator knew
nothing, so no marker followed. The last stable offset stood still; or the marker of the producer's next transaction
ended both, and committed a batch that was aborted.

Needs: producers of transaction version 1 (with version 2 the marker has raised the epoch), and a Produce that is late
by more than the client waits for its response.
Seen as: `stuck-lso`, with `not-converged`; or `duplicate-output`, when a later commit takes the late batch along.
Replaces: `TransactionChecks.must_ask`.
Source: KIP-890, KAFKA-14402; Kafka's `ReplicaManager.appendRecords` before 3.6.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.replication.transaction_checks import TransactionChecks

TITLE = "KIP-890, part 1: a late batch opens a transaction that nothing ends"


def plant(planter: Planter) -> None:
    """Ask the coordinator only to add partitions, which is how producers of version 2 begin."""
    planter.replace_method(TransactionChecks, "must_ask", _to_add_only)


def _to_add_only(self: TransactionChecks, *, add: bool) -> bool:
    del self
    return add
