"""What each anomaly needs to be judged, and what could not be judged in a run (L6).

Owns: `NEEDS`: for each anomaly that a guarantee may forbid, alternative sets of recordings (`histories/recordings.py`),
of which one complete set is enough; and `unjudged_anomalies`, which compares it with a run folder. An anomaly that the
guarantees forbid and that no check could judge is a doubt, so no verdict is valid. One exception: what the run's
backend does not record at all (`unrecorded` of run.json, such as the disks of an external cluster) is a note of the
verdict.

The anomalies of promises (`expected=`, `verify_pipeline`) need what the checks of promises found, if the application
promised anything. A check that crashes adds a doubt itself (`kernels/__init__.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..histories.recordings import OF_PARTITIONS, Recording, Recordings
from ..wording import counted
from .known_anomalies import rank

Kinds = frozenset[Recording]
Place = tuple[str, int]
R = Recording

CLIENTS = frozenset({R.TAPS, R.OPERATIONS})
"""What clients did, with and without a recorder."""
IN_FINAL_READ = CLIENTS | {R.FINAL_READ}
IN_LOGS = CLIENTS | {R.LOG}
IN_TRANSACTIONS = frozenset({R.TAPS, R.COORDINATOR_TAPS, R.LOG})

_FOR: tuple[tuple[tuple[str, ...], tuple[Kinds, ...]], ...] = (
    (("lost-write", "inconsistent-offsets"), (IN_FINAL_READ, IN_LOGS)),
    (("unseen", "duplicate"), (IN_FINAL_READ,)),
    (("nonmonotonic-send",), (IN_LOGS,)),
    (("nonmonotonic-poll",), (frozenset({R.OPERATIONS}),)),
    (("poll-skip",), (frozenset({R.OPERATIONS, R.FINAL_READ}),)),
    (("aborted-read", "precommitted-read", "torn-transaction", "stuck-lso"), (IN_TRANSACTIONS,)),
    (("stuck-transaction",), (frozenset({R.COORDINATOR_TAPS}),)),
    (("committed-offset-regression", "two-owners", "commit-for-other-group"), (frozenset({R.COORDINATOR_TAPS}),)),
    (("redelivered-after-accept", "over-delivered", "wrong-lock"), (frozenset({R.COORDINATOR_TAPS}),)),
    (("never-delivered", "given-up", "stuck-in-flight"), (frozenset({R.COORDINATOR_TAPS, R.FINAL_READ}),)),
    (("resend-in-doubt",), (frozenset({R.OPERATIONS, R.LOG}),)),
    (("commit-beyond-lso",), (IN_TRANSACTIONS | {R.FINAL_READ},)),
    (("stuck-group",), (frozenset({R.GROUP_STATES}),)),
    (("unanswered-request",), (frozenset({R.WAITING_REQUESTS}),)),
    (("missed-wake-up", "two-leaders", "two-controllers", "fenced-in-isr"), (frozenset({R.BROKER_EVENTS}),)),
    (("stalled",), (frozenset({R.TAPS, R.COORDINATOR_TAPS, R.BROKER_EVENTS}),)),
    (("incomplete-leader",), (frozenset({R.BROKER_EVENTS, R.TAPS}),)),
    (
        ("end-offset-regression", "high-watermark-regression", "lso-regression", "log-start-regression"),
        (frozenset({R.COORDINATOR_TAPS}),),
    ),
    (
        ("replica-divergence", "corrupt-batch", "log-gap", "epoch-regression", "epoch-cache-mismatch"),
        (frozenset({R.REPLICA_LOGS}),),
    ),
    (("missing", "unexpected", "out-of-order", "split-key"), (frozenset({R.PROMISES}),)),
    (
        (
            "missing-output",
            "wrong-output",
            "unexpected-output",
            "duplicate-output",
            "out-of-order-output",
            "output-and-dead-letter",
            "dead-letter-without-reason",
            "too-many-attempts",
            "attempt-before-due",
            "due-out-of-order",
        ),
        (frozenset({R.PROMISES}),),
    ),
    (("commit-before-output",), (frozenset({R.PROMISES, R.COORDINATOR_TAPS}),)),
    # of recording clients: a run without any has none to show
    (("failed-write", "read-before-send", "realtime-order"), (frozenset({R.OPERATIONS, R.FINAL_READ}),)),
    # only a history from elsewhere has every send, or a tap where no broker and no connection ended
    # (kernels/unsent_batches.py), and only such a history the transaction of each read
    (("unknown-origin", "missed-rewind"), (frozenset(),)),
)
NEEDS: Mapping[str, tuple[Kinds, ...]] = {name: needs for names, needs in _FOR for name in names}
"""Anomaly -> sets of recordings; one complete set is sufficient to judge it."""
assert len(NEEDS) == sum(len(names) for names, _ in _FOR), "an anomaly has two rows"

REMEDIES: Mapping[Recording, str] = {
    R.FINAL_READ: "the final read, which a test makes by harrow.verify(…)",
    R.REPLICA_LOGS: "the logs of every replica",
    R.LOG: "the log of one replica",
    R.TAPS: "the tap of records of every broker",
    R.COORDINATOR_TAPS: "the tap of the coordinators of every broker",
    R.BROKER_EVENTS: "the trace of every broker",
    R.WAITING_REQUESTS: "the trace of every broker",
    R.GROUP_STATES: "the states of groups when the run ended",
    R.OPERATIONS: "the history of every recording client",
    R.PROMISES: "the findings of the checks of promises",
}
"""What a verdict says that it needs."""
assert all(kinds <= REMEDIES.keys() for needs in NEEDS.values() for kinds in needs), "a recording without remedy"
LEADERS_ONLY = (
    "the logs on the brokers' disks were not judged, because Harrow cannot read them: each partition was judged by "
    "what its leader returned, and the other replicas were compared with nothing"
)
"""A note of a verdict on a cluster that Harrow did not start."""
ONLY_LOGS = frozenset({R.REPLICA_LOGS})
NAMED_MOST, PLACES_MOST = 8, 4
"""A sentence names so many anomalies and so many partitions."""
NO_FAULTS = "it is not known whether the planned faults met an operation"


@dataclass(slots=True, kw_only=True)
class Unjudged:
    """What could not be judged."""

    reasons: list[str] = field(default_factory=list[str])
    """Forbidden anomalies of which the evidence is missing."""
    notes: list[str] = field(default_factory=list[str])
    """Forbidden anomalies of which the backend records no evidence."""


def unjudged_anomalies(
    forbidden: Iterable[str], there: Recordings, partitions: Mapping[Place, Kinds], *, replaced: Iterable[str] = ()
) -> Unjudged:
    """Return which of the `forbidden` anomalies could not be judged.

    `partitions`: for each judged topic-partition, the kinds of `OF_PARTITIONS` that the folder has of it. `replaced`:
    anomalies that the checks of promises judged instead.
    """
    found = Unjudged(reasons=list(there.problems))
    if Recording.FAULTS in there.lost:
        found.reasons.append(f"the run folder has no {there.lost[Recording.FAULTS]}: {NO_FAULTS}")
    lacking: dict[Kinds, dict[str, list[Place]]] = {}
    judged_elsewhere = set(replaced)
    complete = there.complete
    others = complete - OF_PARTITIONS
    places = [(place, partitions[place] & complete) for place in sorted(partitions)]
    for name in sorted(set(forbidden) - judged_elsewhere, key=rank):
        if name not in NEEDS:  # of an extension, whose own check says what it could not judge
            continue
        of_partitions = any(needs & OF_PARTITIONS for needs in NEEDS[name])
        missing: dict[Kinds, Kinds] = {}
        """What is missing, by what the folder has of a partition: most partitions have the same."""
        for place, own in places if of_partitions else [(("", -1), frozenset[Recording]())]:
            if own not in missing:
                missing[own] = min((needs - others - own for needs in NEEDS[name]), key=len)
            if missing[own]:
                lacking.setdefault(missing[own], {}).setdefault(name, []).append(place)
    for kinds, names in lacking.items():
        text = f"{_listed(list(names))} {'was' if len(names) == 1 else 'were'} not judged"
        if kinds <= there.unrecorded:
            why = f"the backend does not record {_wanted(kinds)}"
            found.notes.append(LEADERS_ONLY if kinds == ONLY_LOGS else f"{text}: {why}")
        else:
            found.reasons.append(f"{text}{_where(names)}: {_missing(kinds - there.unrecorded, there)}")
    return found


def _wanted(kinds: Iterable[Recording]) -> str:
    return " and ".join(dict.fromkeys(REMEDIES[kind] for kind in sorted(kinds)))


def _missing(kinds: Kinds, there: Recordings) -> str:
    lost = list(dict.fromkeys(there.lost[kind] for kind in sorted(kinds) if kind in there.lost))
    have = f"the run folder has no {' and no '.join(lost)}; " if lost else ""
    return f"{have}it needs {_wanted(kinds)}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - NAMED_MOST
    shown = [*names[:NAMED_MOST], *([f"{more} more anomalies"] if more > 0 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _where(names: Mapping[str, Sequence[Place]]) -> str:
    places = sorted({place for of_name in names.values() for place in of_name if place[0]})
    if not places:
        return ""
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in places[:PLACES_MOST])
    more = len(places) - PLACES_MOST
    others = f" and {counted(more, 'more partition')}" if more > 0 else ""
    return f" in {shown}{others}"
