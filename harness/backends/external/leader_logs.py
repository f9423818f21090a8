"""What the leaders return of their logs, copied into the run folder for a verdict.

The logs of brokers that Harrow did not start lie on disks that it cannot read. A Fetch response has the record
batches of the leader's log unchanged, so the copy of a partition, from the log start offset to the high watermark, is
the part of the leader's log that consumers can read: with the batches of aborted transactions, markers, producer ids,
sequences and leader epochs. Files are named as Kafka's segments, so the checks read them as a replica's log
(`histories/segments.py`).

What may fail: ClusterError when a leader does not return a partition up to its high watermark in time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from harrow.cluster.broker_folder import BROKER_PREFIX, DATA, broker_name
from harrow.cluster.errors import ClusterError, ErrorCode
from harrow.cluster.ids import TopicPartition, by_topic
from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batch_header import LOG_OVERHEAD, SPAN
from harrow.cluster.wire.client_requests import client_request

from ...requests.raw import ask
from ..apache.kafka_views import CONSUMER, READ_UNCOMMITTED

FETCH_VERSION = 11
"""The last version with names of topics and without flexible fields: every broker has it."""
OFFSET_FOR_LEADER_EPOCH_VERSION = 4
MAX_WAIT_MS = 500
RESPONSE_BYTES = 16 << 20


class LeaderLog(NamedTuple):
    """The part of a leader's log that consumers can read."""

    leader: int
    address: Address
    start: int
    """The log start offset."""
    high: int
    """The high watermark."""


def copy_logs(cluster_folder: Path, logs: Mapping[TopicPartition, LeaderLog], deadline: float) -> None:
    """Replace the copies of these partitions below the folders of the brokers; `deadline`: of the monotonic clock."""
    for where, log in logs.items():
        name = f"{where.topic}-{where.partition}"
        for old in cluster_folder.glob(f"{BROKER_PREFIX}*/{DATA}/{name}"):
            shutil.rmtree(old)
        folder = cluster_folder / broker_name(log.leader) / DATA / name
        folder.mkdir(parents=True)
        with (folder / f"{log.start:020}.log").open("wb") as file:
            _copy(where, log, file, deadline)


def _copy(where: TopicPartition, log: LeaderLog, file: BinaryIO, deadline: float) -> None:
    offset = log.start
    while offset < log.high:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{where}: broker {log.leader} returned the log up to offset {offset} in time, and its high watermark "
                f"is {log.high}"
            )
        records = _fetch(log.address, where, offset)
        end, after = _whole_batches(records, offset)
        file.write(records[:end])
        offset = after


def _whole_batches(records: bytes, offset: int) -> tuple[int, int]:
    """Return where the last whole batch ends, and the offset after it; the last batch of a response may be cut."""
    at = 0
    while at + SPAN.size <= len(records):
        base, length, last_delta = SPAN.unpack_from(records, at)
        if at + LOG_OVERHEAD + length > len(records):
            break
        offset, at = base + last_delta + 1, at + LOG_OVERHEAD + length
    return at, offset


def _fetch(address: Address, where: TopicPartition, offset: int) -> bytes:
    partition = {
        "partition": where.partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": RESPONSE_BYTES,
    }
    request = client_request(
        ApiKey.FETCH,
        FETCH_VERSION,
        replica_id=CONSUMER,
        max_wait=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=RESPONSE_BYTES,
        isolation_level=READ_UNCOMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": where.topic, "partitions": [partition]}],
    )
    response = ask(address, request)
    row = response.responses[0].partitions[0]
    if row.error_code is not ErrorCode.none:
        raise ClusterError(f"{where} at {address}, offset {offset}: {row.error_code.name}")
    return bytes(row.records or b"")


def leader_ends(address: Address, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the log end offset of each partition that a broker leads; `epochs`: their leader epochs.

    OffsetForLeaderEpoch of the current epoch is the log end offset, also where it is above the high watermark.
    """
    topics = [
        {"topic": name, "partitions": [{"partition": row.partition, "leader_epoch": epochs[row]} for row in found]}
        for name, found in by_topic(epochs).items()
    ]
    if not topics:
        return {}
    version = OFFSET_FOR_LEADER_EPOCH_VERSION
    response = ask(address, client_request(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, replica_id=CONSUMER, topics=topics))
    return {
        TopicPartition(str(topic.topic), int(row.partition)): int(row.end_offset)
        for topic in response.topics
        for row in topic.partitions
        if row.error_code is ErrorCode.none
    }
