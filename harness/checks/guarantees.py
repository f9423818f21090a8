"""The guarantees: which anomalies each of them forbids, and which guarantees the settings of a run give.

The names of anomalies are those of `jepsen.tests.kafka` where it has the anomaly:

* `lost-write`: a record that was acknowledged or delivered is not at its offset in the final log;
* `unseen`: an acknowledged record is in every replica's log, or where there is no log below the final high watermark,
  but the final read does not have it;
* `incomplete-leader`: a broker became leader, and its log ended before a record that was committed in an earlier leader
  epoch (LeaderCompleteness); after an unclean election nothing is forbidden;
* `end-offset-regression`: a leader listed a lower latest offset than a leader of an earlier leader epoch had said
  (KIP-207); after an unclean election nothing is forbidden;
* `high-watermark-regression`, `lso-regression`, `log-start-regression`: a leader said a lower offset than before in one
  leader epoch (`kernels/watermarks.py`);
* `inconsistent-offsets`: two records (or batches) with the same offset, between acknowledgements, reads and the log;
* `duplicate`: the log has a record more often than it was sent;
* `nonmonotonic-send`: the log order of a client's sends with the same key, or of a producer id's sequences, is not the
  order in which they were sent;
* `nonmonotonic-poll`, `poll-skip`: a recorded consumer went back, or passed over a record, although its position was
  not set since its last read, by the application (assign, seek) or by its group;
* `unknown-origin`, `failed-write`, `read-before-send`: a record that no client sent; a record of a send that certainly
  failed; a record that was read before its send began (`kernels/origins.py`, and `unsent_batches.py` there);
* `realtime-order`: a record has a lower offset than a record that was acknowledged before its send began;
* `missed-rewind`: a consumer went on behind records that it had read in an aborted transaction (`kernels/rewinds.py`);
* `replica-divergence`: replicas have different bytes at the same offset and leader epoch (LogMatching);
* `corrupt-batch`, `log-gap`, `epoch-regression`: a replica's log has a damaged batch, missing offsets, or a leader
  epoch that decreases;
* `epoch-cache-mismatch`: the leader epoch cache of a replica gives a batch another epoch than the batch has;
* `two-leaders`, `two-controllers`: two brokers were leader in the same leader epoch, or controller in the same
  controller epoch;
* `fenced-in-isr`: a leader proposed to add a broker to an ISR that was not live by the leader's own metadata.

What the taps of the coordinators show (`kernels/transactions.py`, `kernels/groups.py` have the exact definitions):

* `aborted-read` (G1a), `precommitted-read`: a reader of committed data received a record of an aborted transaction, or
  a record before its transaction was decided;
* `torn-transaction`: a transaction is committed in one partition and aborted in another;
* `committed-offset-regression`: the committed offset of a group went back, and its owner did not ask for it;
* `resend-in-doubt`: a record was sent again as a new one while its first send was in doubt
  (`kernels/resent_records.py`);
* `commit-for-other-group`: an offset was committed for a group that does not read the partition, instead of the group
  that does: after a restart its members read the records again (`kernels/foreign_commits.py`);
* `commit-beyond-lso`: a group committed an offset that it cannot have reached, so that it never receives records that
  are appended below that offset later;
* `two-owners`: two members of one generation owned a partition at the same time;
* `stuck-transaction`, `stuck-lso`: a transaction that should have ended is open after healing, on its coordinator or
  only in the log of a partition;
* `missed-wake-up`: a produce or a consumer's fetch waited until its deadline, although its records were replicated, or
  there were records to return: the broker did not wake it;
* `unanswered-request`: a broker does not answer a request within the request's timeout and ten seconds, on a connection
  that lives, without a fault (`unanswered.py`);
* `stuck-group`: a consumer group is in a rebalance for longer than the timeouts of its members (`stuck_groups.py`);
* `stalled`: a client made no progress for longer than a bound, although what it needed was available (`progress/`). No
  guarantee forbids it; `recovers_within=` does.

What share groups did with the records (KIP-932; `kernels/shares.py` has the exact definitions):

* `never-delivered`: a record was never delivered to a group that got records above it, or that must have consumed all
  (`consumed_by=`);
* `given-up`: a record was delivered as often as is allowed, and archived without having been accepted or rejected, and
  no dead-letter queue has it; or it is a dead letter that the queue of its group cannot have;
* `stuck-in-flight`: a record is neither over nor delivered again;
* `redelivered-after-accept`: a record was delivered again after its acceptance had succeeded;
* `over-delivered`: a record was delivered more often than `group.share.delivery.count.limit`;
* `wrong-lock`: two members of a group held a record at the same time.

At least once forbids the first three, at most once the last three: a share group promises that a record is offered
until it is over, and that one member at a time has it.

What the application promised of a topic (`promises/topic_checks.py`):

* `missing`: the application believes that it sent a record, but the topic does not have it;
* `unexpected`: the topic has a record that the application does not believe to have sent (`expected=`);
* `duplicate`: the topic has a record id more often than the application believes that it sent it; with `record_id=`
  this replaces the check above;
* `out-of-order`: records with the same order key are not in the log in the order in which they were sent;
* `split-key`: the records of an order key are in several partitions, so they have no order.

What the application promised of a pipeline (`promises/pipeline_checks.py`):

* `missing-output`: an input requires an output that is not there; also an input that the job has not processed yet;
* `wrong-output`: the output of an input is not what the relation requires;
* `unexpected-output`: no input requires the output;
* `duplicate-output`: there are more outputs than the inputs require;
* `out-of-order-output`: outputs of one record key are not in the order of their inputs;
* `output-and-dead-letter`: an input has its output, and it is a dead letter too (`promises/retry_checks.py`);
* `too-many-attempts`, `attempt-before-due`: an input was tried more often than `attempts=` says, or before it was due
  (`promises/attempt_rules.py`);
* `due-out-of-order`: a retry was sent behind a later one of its order key that was due later
  (`promises/pipeline_order.py`);
* `dead-letter-without-reason`: a dead letter does not say its reason, or has not the key and value of its input;
* `commit-before-output`: a group committed an offset beyond an input before the output for that input was there.

`anomaly_kinds.py` has the order of severity, and the words with which a verdict reports each of them.

Only a simulation can find these (`SIMULATED`), because it observes every client and every task:

* `unexpected`, without `expected=`: the log has a record that no client sent;
* `send-refused`: a producer was refused with an error that is not retriable;
* `offset-out-of-range`: the position of a consumer was beyond the log, although it had read up to there;
* `not-converged`: after healing, the cluster did not converge within a bound;
* `task-failed`: a task of a broker ended with an exception;
* `invariant-violated`: an invariant of the cluster (`cluster/invariants`) did not hold between two events.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Annotated, Any

from harrow.cluster.errors import ConfigError

from .anomaly_kinds import SEVERITY
from .record_check import RecordCheck, check_problem

LOSS = frozenset({"lost-write", "unseen", "missing", "incomplete-leader", "end-offset-regression", "poll-skip"}) | {
    "never-delivered",
    "given-up",
    "missing-output",
    "wrong-output",
    "unexpected-output",
    "commit-before-output",
    "commit-beyond-lso",
}
INTEGRITY = frozenset(
    {"inconsistent-offsets", "replica-divergence", "corrupt-batch", "log-gap", "epoch-regression"}
    | {"epoch-cache-mismatch", "two-leaders", "two-controllers", "fenced-in-isr"}
    | {"high-watermark-regression", "lso-regression", "log-start-regression"}
    | {"unknown-origin", "failed-write", "read-before-send", "realtime-order"}
)
DUPLICATION = frozenset({"duplicate", "duplicate-output", "output-and-dead-letter"}) | {
    "redelivered-after-accept",
    "wrong-lock",
    "over-delivered",
}
ISOLATION = frozenset({"aborted-read", "precommitted-read", "torn-transaction"})
GROUPS = frozenset({"committed-offset-regression", "two-owners", "missed-rewind"}) | {"commit-for-other-group"}
LIVENESS = frozenset({"stuck-transaction", "stuck-lso", "stuck-group", "missed-wake-up"}) | {
    "unanswered-request",
    "stuck-in-flight",
}
RETRIES = frozenset({"too-many-attempts", "attempt-before-due", "dead-letter-without-reason"})
EXCESS = frozenset({"unexpected"})
ORDER = frozenset({"nonmonotonic-send", "nonmonotonic-poll", "out-of-order", "split-key"}) | {
    "out-of-order-output",
    "due-out-of-order",
}

Guarantees = Annotated[str, "a text such as 'no-loss' or 'exactly-once,ordered'"]
"""One name or several with commas."""
FORBIDDEN: dict[str, frozenset[str]] = {
    "best-effort": INTEGRITY - {"inconsistent-offsets"},
    "no-loss": LOSS | INTEGRITY | LIVENESS | RETRIES,
    "at-least-once": LOSS | INTEGRITY | LIVENESS | RETRIES,
    "at-most-once": INTEGRITY | DUPLICATION | RETRIES,
    "exactly-once": LOSS | INTEGRITY | DUPLICATION | EXCESS | ISOLATION | GROUPS | LIVENESS | RETRIES,
    "ordered": LOSS | INTEGRITY | ORDER | LIVENESS | RETRIES,
}
"""The anomalies that make a verdict invalid, by guarantee. `best-effort` is also derived from acks=0 and acks=1."""

GUARANTEE_OF_SIMULATIONS = "exactly-once,ordered"
"""What simulated runs, and `harrow chaos` on real ones, are held to unless they say otherwise."""
ALL_ANOMALIES = frozenset[str]().union(*FORBIDDEN.values()) | {"resend-in-doubt", "stalled"}
"""What a verdict on a history may find."""
SIMULATED = frozenset(
    {"unexpected", "send-refused", "offset-out-of-range", "not-converged", "task-failed", "invariant-violated"}
)
"""What a simulation can find without `expected=`; always wrong."""


def parse(guarantee: str) -> list[str]:
    """Return the guarantees of a text such as "exactly-once, ordered". Raises ConfigError for an unknown guarantee."""
    words = [word.strip() for word in guarantee.replace("+", ",").split(",") if word.strip()]
    for word in words:
        if word not in FORBIDDEN and word not in (added := added_checks()):
            raise ConfigError(
                f"unknown guarantee {word!r}; use {', '.join([*FORBIDDEN, *added])}; "
                "a guarantee of an extension needs its distribution"
            )
    if not words:
        raise ConfigError(f"no guarantee in {guarantee!r}; use {', '.join(FORBIDDEN)}")
    return words


def forbidden(guarantees: Iterable[str]) -> frozenset[str]:
    """Return every anomaly of Harrow that at least one of `guarantees` forbids."""
    return frozenset[str]().union(*(FORBIDDEN.get(name, frozenset()) for name in guarantees))


def unjudged(guarantees: Iterable[str], judged: Container[str]) -> list[str]:
    """Return a reason for each guarantee of an extension whose check did not run."""
    return [
        f"{name} could not be judged: its check runs when a test calls verify(), and this run has no result of it"
        for name in guarantees
        if name not in FORBIDDEN and name not in judged
    ]


def added_checks() -> Mapping[str, RecordCheck]:
    """Return the checks of extensions by the names of their guarantees; the first call loads all extensions."""
    from ..extensions import checked_table  # many modules, which no task of Spark needs

    own = {kind.name for kind in SEVERITY}
    seen: dict[str, str] = {}

    def read(found: Any) -> Iterable[tuple[str, RecordCheck]]:
        for check in found:
            if problem := check_problem(check, own):
                raise TypeError(problem)
            for kind in check.anomalies:
                if (other := seen.setdefault(kind.name, check.guarantee)) != check.guarantee:
                    raise TypeError(f"the anomaly {kind.name!r} is also found by the check {other!r}: rename it")
            yield check.guarantee, check

    return checked_table("harrow_checks", read, FORBIDDEN)


def checks_for(guarantee: str | None) -> dict[str, RecordCheck]:
    """Return the checks of extensions that a verdict judges."""
    asked = () if guarantee is None else parse(guarantee)
    return {name: check for name, check in added_checks().items() if check.always or name in asked}


def derive(acks: Sequence[int], idempotent: Sequence[bool]) -> tuple[list[str], str]:
    """Return the guarantees that the producers' settings give, and the reason.

    `acks`: the settings of all producers of the run, -1 for `all`. `idempotent`: whether each of them is idempotent.
    """
    if not acks:
        return ["no-loss"], "the run recorded no settings of producers"
    if set(acks) != {-1}:
        weakest = min(acks, key=lambda ack: 2 if ack == -1 else ack)
        reason = f"a producer used acks={weakest}, with which acknowledged records may be lost"
        return ["best-effort"], reason
    if idempotent and all(idempotent):
        return ["exactly-once", "ordered"], "all producers were idempotent and used acks=all"
    reason = "all producers used acks=all, some without idempotence: their retries may duplicate and reorder records"
    return ["no-loss"], reason
