"""Failpoints: named places in the code at which a fault may crash, stop, delay or fail the broker (K6).

Owns: the protocol that broker code calls, and the list of all names (`DECLARED`, printed by `harrow failpoints`). What
an armed failpoint does is in `host/knobs/failpoints.py`. Whose idea: FreeBSD fail(9), etcd's gofail.
"""

from __future__ import annotations

from typing import Protocol

from ...errors import HarrowError
from .observation import Trace

DECLARED: dict[str, str] = {}
"""Every failpoint: its name → its place in the code."""


def declare(name: str, doc: str) -> str:
    """Add a failpoint to the list; returns its name, so that a module may keep it as a constant."""
    assert DECLARED.get(name, doc) == doc, f"failpoint {name} declared twice"
    DECLARED[name] = doc
    return name


BEFORE_APPEND = declare("log.before-append", "a log has checked a batch, before its bytes are written")
AFTER_APPEND = declare("log.after-append", "the leader has appended a produced batch, before its high watermark moves")
AFTER_FOLLOWER_APPEND = declare(
    "log.after-follower-append", "a follower has appended fetched batches, before its next fetch"
)
CLEANER_BETWEEN_WRITES = declare(
    "cleaner.between-writes", "compaction, before each creation, write or fsync of a .cleaned file"
)
CLEANER_BEFORE_SWAP = declare("cleaner.before-swap", "compaction, the .cleaned files are durable, nothing renamed yet")
CLEANER_TO_SWAP = declare("cleaner.between-swap-renames", "compaction, before each rename of a .cleaned file to .swap")
CLEANER_TO_DELETED = declare(
    "cleaner.between-deleted-renames", "compaction, before each rename of a replaced file to .deleted"
)
CLEANER_TO_FINAL = declare(
    "cleaner.between-final-renames", "compaction, before each rename of a .swap file to its own name"
)
CLEANER_AFTER_SWAP = declare(
    "cleaner.after-swap", "compaction, a segment was swapped in, the folder is not fsynced yet"
)
CLEANER_BEFORE_CHECKPOINT = declare(
    "cleaner.before-checkpoint", "compaction of a log is done, before its cleaner checkpoint moves"
)
BEFORE_ISR_WRITE = declare(
    "partition.before-isr-write", "the leader has decided on a new ISR, before the registry has it"
)
BEFORE_INIT = declare("transaction.before-init", "InitProducerId, before the coordinator logs the producer's epoch")
AFTER_INIT = declare("transaction.after-init", "InitProducerId, the epoch is logged, before the response")
BEFORE_PARTITIONS = declare(
    "transaction.before-partitions", "before the coordinator logs the partitions of a transaction"
)
AFTER_PARTITIONS = declare(
    "transaction.after-partitions", "the partitions of a transaction are logged, before the response"
)
BEFORE_VERIFICATION = declare(
    "transaction.before-verification",
    "a leader has transactional batches, before it asks the coordinator whether they may be appended",
)
AFTER_VERIFICATION = declare("transaction.after-verification", "the coordinator has agreed, before the leader appends")
BEFORE_TXN_OFFSETS = declare(
    "transaction.before-offsets", "the group coordinator, before it logs offsets of a transaction"
)
AFTER_TXN_OFFSETS = declare("transaction.after-offsets", "offsets of a transaction are logged, before the response")
BEFORE_PREPARE = declare(
    "transaction.before-prepare", "EndTxn, before the coordinator logs PrepareCommit or PrepareAbort"
)
AFTER_PREPARE = declare("transaction.after-prepare", "the result is logged, before the response and before any marker")
BEFORE_MARKER = declare("transaction.before-marker", "a partition leader, before it appends markers")
AFTER_MARKER = declare("transaction.after-marker", "a partition leader has appended markers, before its response")
BETWEEN_MARKERS = declare(
    "transaction.between-markers", "one broker has its markers, before the coordinator counts them"
)
BEFORE_COMPLETE = declare(
    "transaction.before-complete", "every partition has its marker, before the coordinator logs that"
)
AFTER_COMPLETE = declare("transaction.after-complete", "CompleteCommit or CompleteAbort is logged")

BEFORE_ROLL = declare("log.before-roll", "a segment is full, before the next one is created")
AFTER_ROLL = declare(
    "log.after-roll", "the next segment and the producers' snapshot exist, the old segment is not fsynced yet"
)
AFTER_TRUNCATION = declare("log.after-truncation", "a log was truncated, before its checkpoints are lowered")
BEFORE_SEGMENT_REMOVAL = declare(
    "log.before-segment-removal", "the log start has moved, before old segments are removed"
)
BEFORE_MARK_CHECKPOINT = declare(
    "replica.before-high-watermark-checkpoint", "before the high watermarks are checkpointed"
)
BEFORE_LEADER = declare(
    "replica.before-leader", "LeaderAndIsr names this broker, before its replica becomes the leader"
)
BEFORE_FOLLOWER = declare("replica.before-follower", "LeaderAndIsr names another leader, before the replica follows it")
BEFORE_FOLLOWER_TRUNCATION = declare(
    "replica.before-truncation", "a follower knows where it diverges, before it truncates its log"
)
AFTER_FOLLOWER_TRUNCATION = declare("replica.after-truncation", "a follower has truncated its log, before it fetches")
AFTER_ISR_WRITE = declare("partition.after-isr-write", "the registry has the new ISR, before the leader uses it")
AFTER_ELECTION = declare(
    "controller.after-election", "a broker has won the election, before it loads the cluster's state"
)
BEFORE_STATE_WRITE = declare(
    "controller.before-state-write", "leaders and ISRs are decided, before the registry has them"
)
AFTER_STATE_WRITE = declare(
    "controller.after-state-write", "the registry has new leaders and ISRs, before any broker is notified"
)
AFTER_ASSIGNMENT = declare(
    "controller.after-assignment", "the registry has a new assignment, before any broker is notified"
)
BEFORE_ASSIGNMENT_END = declare(
    "controller.before-assignment-end", "the new replicas are in sync, before the registry ends the reassignment"
)
AFTER_ASSIGNMENT_END = declare(
    "controller.after-assignment-end", "the registry has ended a reassignment, before old replicas are deleted"
)
BEFORE_TOPIC_REMOVAL = declare(
    "controller.before-topic-removal", "every replica of a topic is deleted, before the registry forgets the topic"
)
BEFORE_OFFSETS = declare("group.before-offsets", "OffsetCommit, before the coordinator logs the offsets")
AFTER_OFFSETS = declare("group.after-offsets", "committed offsets are logged, before the response")
BEFORE_LOAD = declare(
    "coordinator.before-load", "a coordinator partition has a new leader, before its records are read"
)
BEFORE_ACTIVE = declare("coordinator.before-active", "a coordinator partition is read, before it serves")
BEFORE_WRITE = declare("coordinator.before-write", "before a coordinator appends any record of groups or transactions")
AFTER_WRITE = declare("coordinator.after-write", "a coordinator's records are committed, before it uses them")
BEFORE_REGISTRATION = declare("broker.before-registration", "a broker has a session, before it is registered")
AFTER_REGISTRATION = declare("broker.after-registration", "a broker is registered, before its rooms know the epoch")
AFTER_LEADERS_MOVED = declare(
    "broker.after-leaders-moved", "controlled shutdown, the leaders have moved, nothing is closed yet"
)
BEFORE_CLEAN_SHUTDOWN = declare(
    "broker.before-clean-shutdown", "controlled shutdown, the session has ended, before the logs are closed"
)

RECOVERY = "recovery."
"""What the names of failpoints begin with that only a starting broker reaches: they are armed for a start."""
AFTER_MARKER_REMOVAL = declare(
    "recovery.after-marker-removal",
    "a data folder is locked and its clean-shutdown marker removed, before its checkpoints are read",
)
AFTER_CHECKPOINTS = declare(
    "recovery.after-checkpoints", "recovery points and log start offsets are read, before any log is opened"
)
BEFORE_DELETED_FOLDER = declare("recovery.before-deleted-folder", "before the folder of a deleted replica is removed")
BEFORE_LOG = declare("recovery.before-log", "before the folder of a log is opened")
BEFORE_LEFTOVER = declare(
    "recovery.before-leftover", "before each removal of a file that compaction or deletion has left"
)
BEFORE_SWAP_RENAME = declare(
    "recovery.before-swap-rename", "before each rename of a complete .swap file to its own name"
)
BEFORE_STRAY_INDEX = declare("recovery.before-stray-index", "before each removal of an index without a segment")
BEFORE_SPLIT = declare("recovery.before-split", "a segment does not fit its indexes, before it becomes two segments")
BEFORE_INDEX_REBUILD = declare(
    "recovery.before-index-rebuild", "an index is missing or broken, before its segment is read again"
)
BEFORE_SEGMENT = declare("recovery.before-segment", "after an unclean shutdown, before each segment is read again")
AFTER_SEGMENT = declare("recovery.after-segment", "after an unclean shutdown, each segment is read again and cut")
BEFORE_LATER_SEGMENT = declare(
    "recovery.before-later-segment", "before each removal of a segment that follows a bad batch"
)
BEFORE_CUT = declare(
    "recovery.before-truncation", "no segment follows the bad batch, before its own segment is truncated"
)
BEFORE_START_OVER = declare("recovery.before-start-over", "a log ends below its log start offset, before it is emptied")
BEFORE_EPOCHS = declare("recovery.before-epochs", "segments are read, before leader epochs outside the log are removed")
BEFORE_PRODUCERS = declare(
    "recovery.before-producers", "leader epochs are right, before producer snapshots are removed and loaded"
)
AFTER_PRODUCERS = declare("recovery.after-producers", "producer states are right, and their snapshot is written")
BEFORE_LOWER_CHECKPOINTS = declare(
    "recovery.before-lower-checkpoints",
    "every log of a data folder is open, before checkpoints above a truncation are lowered",
)
BEFORE_GAP_CLOSING = declare("recovery.before-gap-closing", "a log has an offset gap, before it is truncated there")
AFTER_LOGS = declare("recovery.after-logs", "every log is open, before the broker opens a session at the registry")
AFTER_HIGH_WATERMARKS = declare(
    "recovery.after-high-watermarks", "the high watermarks are read, before the first LeaderAndIsr is applied"
)


class Failpoints(Protocol):
    """The failpoints of one process."""

    def hit(self, name: str) -> None:
        """While `name` is not armed: one dictionary look-up. Armed: crash, stop, delay or FailpointError."""
        ...


def passes(failpoints: Failpoints, trace: Trace, name: str, about: object = "") -> bool:
    """Hit a failpoint where the work goes on all the same: False, and a line in the log, when it was armed to fail."""
    try:
        failpoints.hit(name)
    except HarrowError as error:
        trace.log("warning", f"{about}: {error}" if about else str(error))
        return False
    return True
