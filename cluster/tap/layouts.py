"""The rows of a tap's files: what each stands for, and its layout (J6). Written by this room, read by the harness.

| file | row | written by |
| --- | --- | --- |
| `tap.bin` | `TAP_ROW`: a batch that a response acknowledged or delivered | `batches.py` |
| `tap.commits` | `COMMIT_ROW`: an offset of a group | `coordinators.py` |
| `tap.transactions` | `TRANSACTION_ROW`: a partition of a transaction in a state | `coordinators.py` |
| `tap.members` | `MEMBER_ROW`: a partition that a member of a group gets or gives back | `coordinators.py` |
| `tap.groups` | `GROUP_ROW`: a change of a group | `coordinators.py` |
| `tap.watermarks` | `WATERMARK_ROW`: where a partition's log begins and ends, as its leader said | `watermarks.py` |
| `tap.shares` | `SHARE_ROW`: records of a share group that were acquired, acknowledged or given up | `shares.py` |
| `tap.requests` | `REQUEST_ROW`: a request of a client | `requests.py` |
| `tap.request_counts` | `COUNT_ROW`: how many requests a client made of one API with one error | `requests.py` |
| `tap.refused` | `REFUSED_HEAD`, then the bytes of the refused batches | `refused.py` |
| `tap.names` | `id<TAB>name`: the names to which all rows refer by number | `files.py` |

Each layout is plain data, from which the struct of a writer and the dtype of a reader are made
(`cluster/row_layout.py`). Times are on the monotonic clock, one clock for all brokers of a machine. This module imports
nothing but that, because recorders and workers of Spark read it when they start.
"""

from __future__ import annotations

import struct

from ..row_layout import row_struct

PRODUCED = 1
"""One row for each batch of a partition as the producer sent it (base offsets 0), numbered from the `base_offset` of
the response. Refused: `error` set, offsets -1. Where the bytes hold no whole batch header (a refused request of
garbage) one row with count 0 stands for them."""
FETCHED = 2
"""One row for each whole data batch at or above the asked offset; `base_offset` is the first offset **delivered** (a
client drops those below what it asked for), `count` the batch's own. A partial batch at the end and control batches
are not delivered to applications and have no row."""
FLAG_LOST = 1
"""A fault drops the response."""
FLAG_READ_COMMITTED = 2
"""A fetch of committed data."""
FLAG_FILTERED = 4
"""The response lists the batch as one of an aborted transaction, so that the client drops it."""

# `invoked_ns` is when the broker read the request, which for bytes that waited before a stopped process is long after
# they were sent. `created_ns` of a produced batch is when its oldest record was made: the base timestamp of the batch,
# converted by the present wall clock. A producer may set any timestamp, so a check that uses `created_ns` must test
# whether it is possible (0: before the machine started). The two timestamps are the header's own fields, unchanged.
TAP_DTYPE: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("flags", "u1"),
    ("error", "<i2"),
    ("client", "<u4"),
    ("topic", "<u4"),
    ("partition", "<i4"),
    ("base_offset", "<i8"),
    ("last_offset", "<i8"),
    ("crc", "<u4"),
    ("count", "<u4"),
    ("producer_id", "<i8"),
    ("producer_epoch", "<i2"),
    ("acks", "<i2"),
    ("base_sequence", "<i4"),
    ("invoked_ns", "<i8"),
    ("completed_ns", "<i8"),
    ("created_ns", "<i8"),
    ("base_timestamp_ms", "<i8"),
    ("max_timestamp_ms", "<i8"),
]
TAP_ROW = row_struct(TAP_DTYPE)

# Rows of `tap.commits`, by `kind`:
#
# * `OFFSET_COMMITTED`: an OffsetCommit whose result the coordinator has, or an offset of a transaction that its commit
#   marker made valid (`producer_id` set; member and generation are those of the row `OFFSET_SENT`). `error` 0: all
#   in-sync replicas have the commit, so that the group's next member begins there, whether or not the response reaches
#   the client. Another error: the commit may be in the log or not. A commit that is refused before it is written has no
#   row.
# * `OFFSET_SENT`: a TxnOffsetCommit that is in the log; it becomes valid with its transaction, and only with it.
# * `OFFSET_READ`: an offset that OffsetFetch returned.
COMMIT_DTYPE: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("pad", "V1"),
    ("error", "<i2"),
    ("group", "<u4"),
    ("topic", "<u4"),
    ("partition", "<i4"),
    ("client", "<u4"),
    ("member", "<u4"),
    ("generation", "<i4"),
    ("producer_epoch", "<i2"),
    ("pad2", "V2"),
    ("offset", "<i8"),
    ("producer_id", "<i8"),
    ("invoked_ns", "<i8"),
    ("completed_ns", "<i8"),
]
COMMIT_ROW = row_struct(COMMIT_DTYPE)

# Rows of `tap.transactions`, by `state` (Kafka's numbers): `TRANSACTION_ONGOING` for each partition that was added,
# `PREPARE_COMMIT` and `PREPARE_ABORT` when the result is in the log of the coordinator, before any marker is sent, and
# `COMPLETE_COMMIT`, `COMPLETE_ABORT` when every partition has its marker. A new coordinator writes the rows of what it
# found in the log, so a state may have several rows; the first counts. `producer_epoch` is that of the records.
# `END_UNKNOWN` is written by a proxy only: an EndTxn was forwarded and its result did not arrive, so that the
# coordinator may have decided from that time on.
TRANSACTION_DTYPE: list[tuple[str, str]] = [
    ("state", "u1"),
    ("pad", "V1"),
    ("producer_epoch", "<i2"),
    ("transactional_id", "<u4"),
    ("topic", "<u4"),
    ("partition", "<i4"),
    ("timeout_ms", "<i4"),
    ("pad2", "V4"),
    ("producer_id", "<i8"),
    ("time_ns", "<i8"),
]
TRANSACTION_ROW = row_struct(TRANSACTION_DTYPE)

# Rows of `tap.members`, by `kind`: `MEMBER_OWNS` a partition from then on in this generation (group epoch, where the
# group has the protocol of KIP-848), `MEMBER_RELEASED` it: it was revoked, or the member left, expired or was replaced.
# `leader_epoch` is that in which the coordinator began to lead the group's partition of `__consumer_offsets` (-1: a
# proxy wrote the row). It orders the rows of two coordinators, because one that was deposed may write late. A new
# coordinator writes the rows of what it found in the log. `instance` is the CRC-32 of a static member's instance id, 0
# without one.
MEMBER_OWNS, MEMBER_RELEASED = 1, 2
MEMBER_DTYPE: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("pad", "V3"),
    ("group", "<u4"),
    ("member", "<u4"),
    ("client", "<u4"),
    ("topic", "<u4"),
    ("instance", "<u4"),
    ("partition", "<i4"),
    ("generation", "<i4"),
    ("leader_epoch", "<i4"),
    ("time_ns", "<i8"),
]
MEMBER_ROW = row_struct(MEMBER_DTYPE)

# Rows of `tap.groups`: the state of a group (its place in the seam's `GROUP_STATES`), generation, number of members,
# and the longest timeout of a member. `partition` is that of `__consumer_offsets`. A new coordinator writes a row for
# each group that it found in the log. Only Harrow's brokers write them: responses do not show the state of a group.
GROUP_DTYPE: list[tuple[str, str]] = [
    ("state", "u1"),
    ("pad", "V3"),
    ("group", "<u4"),
    ("partition", "<i4"),
    ("generation", "<i4"),
    ("leader_epoch", "<i4"),
    ("members", "<i4"),
    ("timeout_ms", "<i4"),
    ("time_ns", "<i8"),
]
GROUP_ROW = row_struct(GROUP_DTYPE)

# Rows of `tap.watermarks`, by `kind`, each for one partition of a response that a consumer gets:
#
# * `WATERMARKS_FETCHED`: a Fetch response: high watermark, last stable offset, log start offset;
# * `WATERMARKS_LISTED`: the latest offset of a ListOffsets response: the high watermark, or for a reader of committed
#   data the last stable offset. What the response does not say is -1.
#
# Only a leader's responses have rows, in a leader epoch that is known: a follower may be behind (KIP-392).
# `leader_epoch` is that in which the leader read the values. `topic_id` is the CRC-32 of the topic's id, where a proxy
# wrote the row (0: not known): a topic that was deleted and created again has another one. The values were read after
# `invoked_ns` and before `completed_ns`.
WATERMARKS_FETCHED, WATERMARKS_LISTED = 1, 2
WATERMARK_DTYPE: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("pad", "V3"),
    ("client", "<u4"),
    ("topic", "<u4"),
    ("partition", "<i4"),
    ("leader_epoch", "<i4"),
    ("topic_id", "<u4"),
    ("high_watermark", "<i8"),
    ("last_stable_offset", "<i8"),
    ("log_start_offset", "<i8"),
    ("invoked_ns", "<i8"),
    ("completed_ns", "<i8"),
]
WATERMARK_ROW = row_struct(WATERMARK_DTYPE)

# Rows of `tap.shares`, by `kind` (`SHARE_ACQUIRED`, … of the seam): each for records of one partition, `first_offset`
# to `last_offset`, that one share group consumes (KIP-932).
#
# * `SHARE_ACQUIRED`: a ShareFetch response delivers them under a lock; `FLAG_LOST`: the client does not get the
#   response. `delivery_count` says how often they were delivered, with this time.
# * `SHARE_ACCEPTED`, `SHARE_RELEASED`, `SHARE_REJECTED`, `SHARE_RENEWED`: the result of an acknowledgement is known;
#   `error` is what the response says. `SHARE_ERROR_UNKNOWN`: whether the leader did it is not known. The leader writes
#   `SHARE_RELEASED` also for what an ended session had acquired.
# * `SHARE_EXPIRED`: the lock ended. `SHARE_ARCHIVED`: no member gets them any more. `SHARE_LOADED`: the leader loaded
#   the share-partition, which starts at `first_offset`, and delivers a record `delivery_count` times at most.
# * `SHARE_COPIED`: the dead-letter queue of the group has them, or cannot have them (`error`).
#
# A proxy writes the first five only, because responses do not show the others; its rows have the leader epoch -1. When
# a member closes its session, or its connection ends, a proxy writes `SHARE_RELEASED` with `SHARE_ERROR_UNKNOWN` for
# the range of all that the member got. `lock_until_ns` 0: not known; else the lock does not end before, unless it is
# released. `completed_ns` is when the row was written.
SHARE_DTYPE: list[tuple[str, str]] = [
    ("kind", "u1"),
    ("flags", "u1"),
    ("error", "<i2"),
    ("group", "<u4"),
    ("member", "<u4"),
    ("client", "<u4"),
    ("topic", "<u4"),
    ("partition", "<i4"),
    ("leader_epoch", "<i4"),
    ("delivery_count", "<i4"),
    ("first_offset", "<i8"),
    ("last_offset", "<i8"),
    ("invoked_ns", "<i8"),
    ("completed_ns", "<i8"),
    ("lock_until_ns", "<i8"),
]
SHARE_ROW = row_struct(SHARE_DTYPE)
SHARE_ERROR_UNKNOWN = 7
"""REQUEST_TIMED_OUT: whether the leader did it is not known."""

# `tap.requests` and `tap.request_counts` begin with a row that is their head. `api` is Kafka's key, `error` the first
# error in the response, 0 without one. `subject` is the group, transactional id or coordinator key that the request
# names. `flags` and the two kinds of rows about connections are those of the seam (`seam/observation.py`).
REQUEST_SCHEMA_VERSION = 1
REQUEST_MAGIC = b"HRWR"
REQUEST_HEAD = struct.Struct("<4sII20x")
"""Magic, schema version, size of a row."""
REQUEST_DTYPE: list[tuple[str, str]] = [
    ("api", "<i2"),
    ("error", "<i2"),
    ("flags", "u1"),
    ("pad", "V3"),
    ("client", "<u4"),
    ("subject", "<u4"),
    ("invoked_ns", "<i8"),
    ("completed_ns", "<i8"),
]
REQUEST_ROW = row_struct(REQUEST_DTYPE)
COUNT_DTYPE: list[tuple[str, str]] = [
    ("api", "<i2"),
    ("error", "<i2"),
    ("client", "<u4"),
    ("count", "<u8"),
    ("first_ns", "<i8"),
    ("last_ns", "<i8"),
]
COUNT_ROW = row_struct(COUNT_DTYPE)
assert REQUEST_ROW.size == COUNT_ROW.size == REQUEST_HEAD.size, "one size, so that the head is a row"
OTHERS = -3
"""The `api` of the row that counts what found the table of counters full."""
NO_SUBJECT = NO_CLIENT = 0xFFFF_FFFF
COUNTED_ONLY = frozenset((0, 1, 12, 68, 76, 78, 79))
"""Produce, Fetch, Heartbeat, and the same of KIP-848 and of share groups: their successes have no row."""
REQUEST_BYTES_MOST = 64 << 20
"""Of `tap.requests` of one broker: two million rows."""

REFUSED_HEAD = struct.Struct("<4sIIihxxI")
"""Magic, client, topic, partition, error, and the length of what follows."""
REFUSED_MAGIC = b"HRWX"
REFUSED_BYTES_MOST = 16 << 20


def request_head() -> bytes:
    """Return the first row of `tap.requests` and of `tap.request_counts`."""
    return REQUEST_HEAD.pack(REQUEST_MAGIC, REQUEST_SCHEMA_VERSION, REQUEST_HEAD.size)
