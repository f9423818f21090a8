"""Every kind of anomaly, the worst first, with the words with which a verdict reports it.

`SEVERITY` is the only place with this order: the text of a verdict, the terminal line, the report page and the index
of a run show the kinds in the order of this table. `guarantees.py` says what each kind means exactly, and which
guarantee forbids it.
"""

from __future__ import annotations

from dataclasses import dataclass

from harrow.cluster.argument_types import checked

from ..wording import counted


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyKind:
    """What a verdict says about all anomalies of one name: `3 records were …`."""

    name: str
    singular: str
    plural: str
    after: str = ""
    """Of a check of an extension: the anomaly of Harrow than which it is a little less bad; empty: the last."""

    def sentence(self, count: int) -> str:
        """Return what was found, without the name: "31 records are not in the topic"."""
        return counted(count, self.singular, self.plural)


def _kind(name: str, singular: str, plural: str) -> AnomalyKind:
    return AnomalyKind(name=name, singular=singular, plural=plural)


SEVERITY: tuple[AnomalyKind, ...] = (
    # data that is gone
    _kind(
        "missing",
        "record that the application counts as sent is not in the topic",
        "records that the application counts as sent are not in the topic",
    ),
    _kind(
        "lost-write",
        "record was acknowledged or read, and is not in the topic any more",
        "records were acknowledged or read, and are not in the topic any more",
    ),
    _kind(
        "unseen",
        "record was acknowledged or read, and the final read passed over it",
        "records were acknowledged or read, and the final read passed over them",
    ),
    _kind(
        "never-delivered",
        "record was never delivered to a share group that passed over it",
        "records were never delivered to a share group that passed over them",
    ),
    _kind(
        "given-up",
        "record was given up by a share group, because it was delivered as often as is allowed or is a dead letter",
        "records were given up by share groups, because they were delivered as often as is allowed or are dead letters",
    ),
    _kind("missing-output", "input record has no output", "input records have no output"),
    _kind(
        "commit-before-output",
        "input record was committed before its output was written",
        "input records were committed before their outputs were written",
    ),
    _kind(
        "torn-transaction",
        "transaction is committed in one partition and aborted in another",
        "transactions are committed in one partition and aborted in another",
    ),
    _kind(
        "missed-rewind",
        "reader went on behind records of its aborted transaction",
        "readers went on behind records of their aborted transactions",
    ),
    _kind(
        "commit-beyond-lso",
        "committed offset is beyond what its group can have read",
        "committed offsets are beyond what their group can have read",
    ),
    # data that is wrong
    _kind(
        "aborted-read",
        "record of an aborted transaction was delivered to a reader of committed data",
        "records of aborted transactions were delivered to readers of committed data",
    ),
    _kind(
        "precommitted-read",
        "record was delivered to a reader of committed data before its transaction was decided",
        "records were delivered to readers of committed data before their transactions were decided",
    ),
    _kind(
        "failed-write",
        "record of a send that had certainly failed is in the topic",
        "records of sends that had certainly failed are in the topic",
    ),
    _kind(
        "unknown-origin",
        "record is in the topic, and no client sent it",
        "records are in the topic, and no client sent them",
    ),
    _kind("read-before-send", "record was read before its send began", "records were read before their sends began"),
    _kind("wrong-output", "output is not what its input requires", "outputs are not what their inputs require"),
    _kind(
        "dead-letter-without-reason",
        "dead letter lacks its reason, or the key or value of its input",
        "dead letters lack their reason, or the key or value of their input",
    ),
    # data that is there too often
    _kind(
        "duplicate",
        "record is in the topic more often than it was sent",
        "records are in the topic more often than they were sent",
    ),
    _kind(
        "duplicate-output",
        "output is in the sink more often than its input requires",
        "outputs are in the sink more often than their inputs require",
    ),
    _kind(
        "output-and-dead-letter",
        "input record has an output and is a dead letter too",
        "input records have an output and are dead letters too",
    ),
    _kind(
        "redelivered-after-accept",
        "record was delivered to a share group again after its acceptance had succeeded",
        "records were delivered to share groups again after their acceptance had succeeded",
    ),
    _kind(
        "wrong-lock",
        "record was delivered to a member of a share group while another member held it",
        "records were delivered to members of share groups while other members held them",
    ),
    _kind(
        "over-delivered",
        "record was delivered to a share group more often than the limit allows",
        "records were delivered to share groups more often than the limit allows",
    ),
    _kind(
        "committed-offset-regression",
        "committed offset went back, although its owner did not ask for it",
        "committed offsets went back, although their owners did not ask for it",
    ),
    _kind(
        "resend-in-doubt",
        "record was sent again as a new one while its first send was in doubt",
        "records were sent again as new ones while their first sends were in doubt",
    ),
    _kind(
        "commit-for-other-group",
        "offset was committed for a group that does not read the partition",
        "offsets were committed for a group that does not read the partition",
    ),
    _kind(
        "two-owners",
        "member of a group owned a partition together with another member",
        "members of groups owned a partition together with another member",
    ),
    _kind(
        "unexpected",
        "record is in the topic, but the application does not count it as sent",
        "records are in the topic, but the application does not count them as sent",
    ),
    _kind("unexpected-output", "output follows from no input record", "outputs follow from no input"),
    # retries
    _kind(
        "too-many-attempts",
        "input record was tried more often than the job may",
        "input records were tried more often than the job may",
    ),
    _kind("attempt-before-due", "attempt began before it was due", "attempts began before they were due"),
    # order
    _kind(
        "out-of-order",
        "record is in the wrong order among the records of its order key",
        "records are in the wrong order among the records of their order key",
    ),
    _kind(
        "out-of-order-output",
        "output is in the wrong order among the outputs of its key",
        "outputs are in the wrong order among the outputs of their key",
    ),
    _kind(
        "due-out-of-order",
        "retry was sent behind a later one of its key that was due later",
        "retries were sent behind later ones of their key that were due later",
    ),
    _kind(
        "split-key",
        "key has records in more than one partition, so that they have no order",
        "keys have records in more than one partition, so that these have no order",
    ),
    _kind(
        "nonmonotonic-send",
        "record is in the log in another order than it was sent",
        "records are in the log in another order than they were sent",
    ),
    _kind(
        "realtime-order",
        "record was sent after another was acknowledged, and has a lower offset",
        "records were sent after others were acknowledged, and have lower offsets",
    ),
    _kind(
        "nonmonotonic-poll",
        "read returned an offset that the consumer had passed already",
        "reads returned an offset that the consumer had passed already",
    ),
    _kind(
        "poll-skip", "read passed over records that are in the topic", "reads passed over records that are in the topic"
    ),
    # what does not end
    _kind(
        "stuck-transaction",
        "transaction is still open after its timeout",
        "transactions are still open after their timeouts",
    ),
    _kind(
        "stuck-lso",
        "transaction without marker stops the readers of committed data",
        "transactions without markers stop the readers of committed data",
    ),
    _kind(
        "stuck-in-flight",
        "record of a share group is not over, and is not delivered again",
        "records of share groups are not over, and are not delivered again",
    ),
    _kind(
        "stuck-group",
        "consumer group is in a rebalance that does not end",
        "consumer groups are in rebalances that do not end",
    ),
    _kind(
        "stalled",
        "client stood still although the cluster served it",
        "clients stood still although the cluster served them",
    ),
    _kind(
        "missed-wake-up",
        "request waited on a broker until its deadline, although it could be answered before",
        "requests waited on brokers until their deadlines, although they could be answered before",
    ),
    _kind(
        "unanswered-request",
        "request was not answered within its timeout, on a connection that lives",
        "requests were not answered within their timeouts, on connections that live",
    ),
    # brokers that disagree, or whose logs are damaged
    _kind(
        "incomplete-leader",
        "broker became leader without records that were committed before",
        "brokers became leaders without records that were committed before",
    ),
    _kind(
        "end-offset-regression",
        "latest offset that a new leader listed is lower than what clients had seen before",
        "latest offsets that new leaders listed are lower than what clients had seen before",
    ),
    _kind(
        "inconsistent-offsets",
        "record shares its offset with a different record",
        "records share their offset with a different record",
    ),
    _kind(
        "replica-divergence", "record batch differs between the replicas", "record batches differ between the replicas"
    ),
    _kind(
        "corrupt-batch", "record batch in a replica's log is damaged", "record batches in replicas' logs are damaged"
    ),
    _kind("log-gap", "gap is in the offsets of a replica's log", "gaps are in the offsets of replicas' logs"),
    _kind(
        "epoch-regression",
        "record batch has a lower leader epoch than the batch before it",
        "record batches have a lower leader epoch than the batch before them",
    ),
    _kind(
        "epoch-cache-mismatch",
        "record batch has another leader epoch than the leader epoch cache of its replica says",
        "record batches have another leader epoch than the leader epoch caches of their replicas say",
    ),
    _kind(
        "high-watermark-regression",
        "high watermark moved backwards for clients within one leader epoch",
        "high watermarks moved backwards for clients within one leader epoch",
    ),
    _kind(
        "lso-regression",
        "last stable offset moved backwards for clients within one leader epoch",
        "last stable offsets moved backwards for clients within one leader epoch",
    ),
    _kind(
        "log-start-regression",
        "log start offset moved backwards for clients within one leader epoch",
        "log start offsets moved backwards for clients within one leader epoch",
    ),
    _kind("two-leaders", "leader epoch had more than one leader", "leader epochs had more than one leader"),
    _kind(
        "two-controllers",
        "controller epoch had more than one controller",
        "controller epochs had more than one controller",
    ),
    _kind(
        "fenced-in-isr",
        "ISR was to get a broker that its leader did not know to be live",
        "ISRs were to get brokers that their leaders did not know to be live",
    ),
    # what only a simulation can find
    _kind("invariant-violated", "invariant of the cluster did not hold", "invariants of the cluster did not hold"),
    _kind("task-failed", "task of a broker ended with an exception", "tasks of brokers ended with an exception"),
    _kind("not-converged", "cluster did not converge after healing", "clusters did not converge after healing"),
    _kind(
        "send-refused",
        "send was refused with an error that is not retriable",
        "sends were refused with an error that is not retriable",
    ),
    _kind("offset-out-of-range", "consumer's position was beyond the log", "consumers' positions were beyond the log"),
)
"""Every kind of anomaly, the worst first: a lost order is shown before an inconsistent offset."""
