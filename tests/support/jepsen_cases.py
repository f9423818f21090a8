"""Histories of the kind that Jepsen's workload for Kafka records: what its checker finds, and what a verdict finds.

The histories are `tests/checks/histories/*.edn`, written for these tests. `docs/histories.md` has the same table.
`jepsen`: the kinds of errors by the definitions of `jepsen.tests.kafka` (with its option `ww-deps` where it says so),
in parentheses those that its checker allows.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """A history and what is found in it; `doubt`: whether the verdict is unknown where nothing forbidden was found."""

    history: str
    jepsen: str
    harrow: str
    why: str = ""
    doubt: bool = False


ATOMIC = "plain sends of one call are not atomic in Kafka, so that one of them proves nothing of the other"
GONE = "the record is not at the offset of its acknowledgement, which is the loss; the copy is at another offset"
LOST_ONCE = "a record that no reader received is lost; passing over it is no second fault of the reader"
ONE_NAME = "the same definition within an operation and between operations, so one name"
UNSEEN = "a reader may be late: a doubt, and not an anomaly"
NOT_ISOLATED = "Kafka does not isolate writes; neither forbids it"

OWN_NAME = "a name of its own, because the remedy is another"

CASES = (
    Case("lost-write-in-the-middle", "lost-write, int-poll-skip, unseen", "lost-write", LOST_ONCE),
    Case("lost-write-not-at-the-end", "unseen", "", UNSEEN, doubt=True),
    Case(
        "lost-write-overwritten",
        "lost-write, inconsistent-offsets, unseen",
        "lost-write, inconsistent-offsets",
        "the lost record is not counted again as unseen",
    ),
    Case("lost-write-of-a-committed-info-transaction", "lost-write", "lost-write"),
    Case("lost-send-of-an-info-operation", "lost-write", "", ATOMIC),
    Case("info-transaction-without-effect", "", ""),
    Case("torn-transaction", "lost-write, unseen", "lost-write", "the lost record is not counted again as unseen"),
    Case("duplicate-of-an-acknowledged-send", "duplicate", "lost-write", GONE),
    Case("duplicate-in-the-log", "duplicate", "duplicate"),
    Case("duplicate-read-in-an-aborted-transaction", "duplicate", "duplicate"),
    Case(
        "inconsistent-offsets-of-sends",
        "inconsistent-offsets, lost-write, unseen",
        "inconsistent-offsets, lost-write",
        "the lost record is not counted again as unseen",
    ),
    Case(
        "inconsistent-offsets-of-reads",
        "inconsistent-offsets",
        "inconsistent-offsets, lost-write",
        "a log has one record at an offset, so that the record of one reader is not there any more",
    ),
    Case("info-send-gave-way", "", ""),
    Case("g1a-failed-send", "G1a", "failed-write"),
    Case("g1a-aborted-transaction", "G1a", "failed-write"),
    Case(
        "g1a-read-in-an-aborted-transaction",
        "",
        "failed-write",
        "what a reader received counts, whether or not the reader's transaction was committed",
    ),
    Case(
        "failed-send-without-effect",
        "G1a",
        "",
        "Jepsen sends no value twice; an application sends a record again after an error",
    ),
    Case("g1b-intermediate-read", "", ""),
    Case("g0-write-cycle", "(G0 with ww-deps)", "", NOT_ISOLATED),
    Case("g1c-reads-of-each-other", "G1c", "precommitted-read"),
    Case("g1c-with-a-write", "(G1c with ww-deps)", "", NOT_ISOLATED),
    Case("precommitted-read", "precommitted-read", "precommitted-read"),
    Case("own-record-after-the-commit", "", ""),
    Case("int-poll-skip", "int-poll-skip", "poll-skip", ONE_NAME),
    Case("int-poll-skip-between-polls", "int-poll-skip", "poll-skip", ONE_NAME),
    Case("int-nonmonotonic-poll", "int-nonmonotonic-poll", "nonmonotonic-poll", ONE_NAME),
    Case("rebalance-in-an-operation", "", ""),
    Case("poll-skip", "poll-skip", "poll-skip"),
    Case("poll-skip-of-a-gap", "", ""),
    Case("poll-skip-of-a-lost-record", "lost-write, poll-skip, unseen", "lost-write", LOST_ONCE),
    Case("nonmonotonic-poll", "nonmonotonic-poll", "nonmonotonic-poll"),
    Case("assign-of-another-partition", "", ""),
    Case("assign-that-keeps-the-partition", "poll-skip", "poll-skip"),
    Case(
        "seek-to-the-beginning",
        "nonmonotonic-poll",
        "",
        "the reader asked for it; Jepsen does so only at the end of a test, for other processes",
    ),
    Case("poll-skip-with-subscribe", "(poll-skip)", "", "both allow it"),
    Case("int-poll-skip-with-subscribe", "int-poll-skip", "poll-skip", ONE_NAME),
    Case("int-send-skip", "(int-send-skip)", "", NOT_ISOLATED),
    Case("int-nonmonotonic-send", "int-nonmonotonic-send", "nonmonotonic-send", ONE_NAME),
    Case(
        "nonmonotonic-send",
        "nonmonotonic-send",
        "nonmonotonic-send, realtime-order",
        "the first send was acknowledged before the second began, so that a broker is wrong, too",
    ),
    Case(
        "nonmonotonic-send-after-assign",
        "",
        "nonmonotonic-send, realtime-order",
        "an assignment is about reading; the order of sends holds",
    ),
    Case(
        "realtime-order",
        "(G0-realtime with ww-deps)",
        "realtime-order",
        "a broker appends at the end of the log: no order of transactions is needed to see that this is wrong",
    ),
    Case("concurrent-sends", "", ""),
    Case("aborted-transaction-rewinds", "", ""),
    Case("aborted-transaction-does-not-rewind", "poll-skip", "missed-rewind", OWN_NAME),
    Case("aborted-transaction-rewinds-too-far", "nonmonotonic-poll", "nonmonotonic-poll"),
    Case("info-transaction-rewinds", "", ""),
    Case(
        "info-transaction-goes-on",
        "poll-skip",
        "",
        "the transaction may have been committed; Jepsen's client always sets its position back",
    ),
    Case("info-transaction-skips", "poll-skip", "poll-skip"),
    Case("info-read-after-an-abort", "poll-skip", "missed-rewind", OWN_NAME),
    Case(
        "record-of-unknown-origin",
        "its checker stops with an error",
        "unknown-origin",
        "Jepsen expects that every value was sent",
    ),
    Case("read-before-send", "G1c-realtime", "read-before-send"),
    Case("nothing-happened", "not valid: there is nothing to judge", "", doubt=True),
    Case("everything-is-right", "", ""),
)
