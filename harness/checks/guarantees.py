"""What a guarantee forbids, and which guarantee a run's own settings promise.

Anomalies, named as in `jepsen.tests.kafka` where it has them:

* `lost-write`: an acknowledged record, or one that a reader was given, is not where it was in the final log;
* `unseen`: an acknowledged record is in every replica's log, but the final read did not give it;
* `inconsistent-offsets`: two values (or batches) for one offset, between acknowledgements, reads and the log;
* `duplicate`: a record is in the log more often than it was sent;
* `nonmonotonic-send`: a client's sends with one key, or a producer id's sequences, lie in the log out of order;
* `nonmonotonic-poll`, `poll-skip`: a reader went back, or over a record, though its position was not set anew;
* `replica-divergence`: replicas hold different bytes under one offset and leader epoch (LogMatching);
* `corrupt-batch`, `log-gap`, `epoch-regression`: a replica's log is damaged, not contiguous, or its epochs go back;
* `two-leaders`, `two-controllers`: two brokers were leader in one leader epoch, controller in one controller epoch.

Only a simulation can say (`SIMULATED`), for it knows every client and every task:

* `unexpected`: a record is in the log that no client sent;
* `send-refused`: a producer was refused for good;
* `offset-out-of-range`: a reader's position was beyond the log, though it had read up to there;
* `not-converged`: after healing the cluster did not come to rest within a bound;
* `task-failed`: a broker's task ended with an exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harrow.cluster.errors import ConfigError

LOSS = frozenset({"lost-write", "unseen"})
INTEGRITY = frozenset(
    {"inconsistent-offsets", "replica-divergence", "corrupt-batch", "log-gap", "epoch-regression"}
    | {"two-leaders", "two-controllers"}
)
DUPLICATION = frozenset({"duplicate"})
ORDER = frozenset({"nonmonotonic-send", "nonmonotonic-poll"})

FORBIDDEN: dict[str, frozenset[str]] = {
    "best-effort": frozenset({"replica-divergence", "corrupt-batch", "log-gap", "epoch-regression"})
    | {"two-leaders", "two-controllers"},
    "no-loss": LOSS | INTEGRITY,
    "at-least-once": LOSS | INTEGRITY,
    "exactly-once": LOSS | INTEGRITY | DUPLICATION,
    "ordered": LOSS | INTEGRITY | ORDER,
}
"""What makes a verdict invalid. `best-effort` (acks=0 or 1) is derived, and may be asked for."""

GUARANTEE_OF_SIMULATIONS = "exactly-once,ordered"
"""What simulated runs, and `harrow chaos` on real ones, are held to unless they say otherwise."""
ALL_ANOMALIES = frozenset[str]().union(*FORBIDDEN.values()) | {"poll-skip"}
"""What a verdict on a history may find."""
SIMULATED = frozenset(
    {"unexpected", "send-refused", "offset-out-of-range", "not-converged", "task-failed"}
)
"""What only a simulation can find; always wrong."""


def parse(guarantee: str) -> list[str]:
    """The guarantees of a text such as "exactly-once, ordered"; ConfigError for a word that is none."""
    words = [word.strip() for word in guarantee.replace("+", ",").split(",") if word.strip()]
    for word in words:
        if word not in FORBIDDEN:
            raise ConfigError(f"guarantee {word!r} is not known; use {', '.join(FORBIDDEN)}")
    if not words:
        raise ConfigError(f"guarantee {guarantee!r} names none; use {', '.join(FORBIDDEN)}")
    return words


def forbidden(guarantees: Iterable[str]) -> frozenset[str]:
    """Every anomaly that breaks one of `guarantees`."""
    return frozenset[str]().union(*(FORBIDDEN[name] for name in guarantees))


def derive(acks: Sequence[int], idempotent: Sequence[bool]) -> tuple[list[str], str]:
    """The guarantees that settings promise, and why: what was seen of acks and of idempotence."""
    seen = set(acks)
    if not seen:
        return ["no-loss"], "nothing was seen of the producers' settings"
    if seen != {-1}:
        weakest = min(acks, key=lambda ack: 2 if ack == -1 else ack)
        return [
            "best-effort"
        ], f"acks={weakest} was seen, under which acknowledged records may be lost"
    if idempotent and all(idempotent):
        return ["exactly-once", "ordered"], "acks=all and idempotent producers only were seen"
    return [
        "no-loss"
    ], "acks=all was seen, without idempotence: retries may legally duplicate and reorder"
