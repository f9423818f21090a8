"""KIP-966: the last member of an ISR loses its unsynced tail with the power, and is elected.

What was wrong (Kafka to 3.9; with ELR from 4.0 on it is not elected): brokers acknowledge records before an fsync.
They rely on the other replicas instead. When the ISR shrinks to one broker and this broker loses its power, it comes
back without the end of its log, and it is the only broker that may be elected. The followers, which have the
acknowledged records, truncate their logs to its log.

Harrow's brokers have no eligible leader replicas (ELR). They are safe from power losses with `flush.messages=1`: a
replica neither acknowledges nor counts as replicated what it has not fsynced. The plant ignores that setting, so that
a replica promises what it may lose, as in Kafka.

Needs: both followers leave the ISR, the leader loses its power, and is back before they are.
Seen as: `lost-write`; `inconsistent-offsets` where other records take the offsets.
Replaces: `Log.messages_before_fsync`.
Source: KIP-966 ("last replica standing"); Kafka's `UnifiedLog.append`, `log.flush.interval.messages`.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.storage.log import Log

TITLE = "KIP-966: the last member of an ISR acknowledges without an fsync, and is elected without its tail"
NEVER = 2**63 - 1
"""Kafka's default of `log.flush.interval.messages`."""


def plant(planter: Planter) -> None:
    """Leave every fsync of appended records to rolls, closes and the operating system."""
    planter.replace_method(Log, "messages_before_fsync", _never)


def _never(self: Log) -> int:
    del self
    return NEVER
