"""Copies payments from Kafka into a database: every payment once, however often the job fails and runs again.

The offsets are committed after the rows. A payment that comes again after a failure has its row already.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from typing import Any

from kafka import KafkaConsumer
from kafka.structs import TopicPartition

TABLE = "CREATE TABLE IF NOT EXISTS ledger (payment INTEGER PRIMARY KEY, account TEXT, cents INTEGER)"
INSERT = "INSERT OR IGNORE INTO ledger VALUES (:payment, :account, :cents)"


def copy_payments(servers: str, database: str) -> int:
    """Copy the payments that are in the topic now; return how many were read."""
    consumer: Any = KafkaConsumer(
        bootstrap_servers=servers,
        group_id="ledger",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        reconnect_backoff_max_ms=500,  # by default the client stays away from a broker that is back for up to 30 s
    )
    with contextlib.closing(consumer), contextlib.closing(sqlite3.connect(database)) as ledger:
        ledger.execute(TABLE)
        partitions = consumer.partitions_for_topic("payments")
        places = [TopicPartition("payments", number) for number in sorted(partitions)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        read = 0
        while any(consumer.position(place) < ends[place] for place in places):
            batches = consumer.poll(timeout_ms=500)
            payments = [json.loads(row.value) for rows in batches.values() for row in rows]
            with ledger:
                ledger.executemany(INSERT, payments)
            if payments:
                consumer.commit()
            read += len(payments)
        return read


if __name__ == "__main__":
    print(copy_payments(os.environ["KAFKA_BOOTSTRAP_SERVERS"], "ledger.sqlite"))
