"""What the words of the report page mean, in a sentence each; the page needs no other page to explain them.

Owns: `TERMS`, `GUARANTEES`, `STATUSES`, and `explained`, which returns the words that a page uses. Anomalies have the
words of `checks/anomaly_kinds.py`. `docs/guarantees.md` says the same of guarantees and statuses; a test compares both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..checks.guarantees import FORBIDDEN
from ..checks.known_anomalies import kind_of

TERMS: Mapping[str, str] = {
    "acknowledged": "Records for which a broker sent a response without an error.",
    "delivered": "Records that brokers returned to clients; Harrow's final read does not count.",
    "unacknowledged": "Sends without an acknowledgement: their records may be in the topic, or not.",
    "anomaly": "What is not as Kafka or the application promises; each kind counts its records. One record may have "
    "anomalies of several kinds, so their numbers have no sum.",
    "fault": "What Harrow did to the cluster: the band in the charts lasts from the injection to the healing.",
    "election": "Another broker became leader of a partition, or the same broker after its restart.",
    "leader": "The replica that appends the records of a partition and answers clients.",
    "leader epoch": "A number that grows by 1 with each new leader of a partition.",
    "controller": "The broker that elects the leaders of partitions; its epoch grows with each new controller.",
    "ISR": "In-sync replicas: the replicas that have all committed records. acks=all waits for them.",
    "high watermark": "The offset below which records are committed, so that consumers receive them.",
    "p50 and p99": "Half of the sends were acknowledged within p50, and 99 of 100 within p99.",
    "isolated": "The broker's links to other brokers and to the registry were blocked.",
    "tap": "The history that each broker writes of what it acknowledged and delivered.",
    "final read": "A new consumer of Harrow's reads the topics completely when the verdict is asked for.",
    "cause": "What faults, traces and taps show about an anomaly, in the order in which it happened.",
}
STATUSES: Mapping[str, str] = {
    "valid": "everything was judged, and nothing was found that the guarantee forbids",
    "invalid": "an anomaly was found that the guarantee forbids",
    "unknown": "nothing forbidden was found, and something could not be judged: the verdict names each doubt",
}
LOSS = (
    "an acknowledged record is lost or was never delivered, a group committed an offset that it cannot have reached, "
    "one offset has two values, or replicas differ"
)
GUARANTEES: Mapping[str, str] = {
    "no-loss": LOSS,
    "at-least-once": LOSS,
    "exactly-once": "the same, or a record is in the log twice, or a record is there that is not expected, or a "
    "transaction is torn or read too early, or a committed offset went back, or a partition had two owners",
    "at-most-once": "a record is in the log twice, one offset has two values, or replicas differ",
    "ordered": "the same as `no-loss`, or records of one key are not in the order in which they were sent",
    "best-effort": "replicas differ or are damaged, or an epoch had two leaders or two controllers",
}
"""When a verdict is invalid; `the same` means `no-loss`."""


def explained(status: str, guarantees: Iterable[str], anomalies: Iterable[str]) -> list[tuple[str, str]]:
    """Return the words that a page uses, each with its meaning: the status, guarantees, anomalies, then `TERMS`."""
    found = [(status, f"{_sentence(STATUSES[status])}.")] if status in STATUSES else []
    for name in guarantees:
        if name in GUARANTEES:
            broken = GUARANTEES[name].replace("the same,", f"{LOSS},", 1).replace("`", "")
            found.append((name, f"A guarantee. It does not hold when {broken}."))
    for name in anomalies:
        if (kind := kind_of(name)) is not None:
            forbidding = [word for word, names in FORBIDDEN.items() if name in names]
            by = f"Forbidden by {', '.join(forbidding)}." if forbidding else ""
            found.append((name, f"{_sentence(kind.singular)}. {by}".strip()))
    return list(dict(found).items()) + list(TERMS.items())


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
