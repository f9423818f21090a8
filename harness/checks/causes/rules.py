"""The rule of each kind of anomaly for which there can be evidence, and `causes`, which calls them.

A rule is a pure function of what the run recorded. It states facts in the order in which they happened; where a fact is
missing, its part of the sentence is left out, and without the first fact there is no sentence. A rule never guesses.

Before the sentences of a kind's rule stand those about programs that had died, whatever the kind (`programs.py`).
Behind them stand, where something is missing or waits, those about clients whose requests show where they stopped
(`client_requests.py`), and what faults did to the application's store or database (`dependencies.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..verdict import Anomaly
from .busy_machine import refused_without_fault
from .client_requests import stopped_clients
from .commits import committed_early, misplaced
from .dependencies import MAY_NEED_IT, outages
from .duplicates import duplicated, reordered
from .evidence import RunEvidence
from .groups import group_waits
from .losses import incomplete, lost, not_stored, same_offsets
from .programs import NAMED_AFTER_ITS_WORK, deaths, quiet_ends
from .retries import attempted_early, restarted, retries_lost, sent_again, stopped_before
from .transactions import outputs_doubled, outputs_missing, outputs_unexpected
from .unacknowledged import unexpected

SENTENCES_MOST = 3
"""Sentences for one kind: those on the most records."""
MAY_HAVE_STOPPED = frozenset({"missing", "missing-output", "stuck-group", "stuck-transaction", "stalled"})
"""Kinds that a client which stopped may explain."""

Rule = Callable[[Sequence[Anomaly], RunEvidence], Iterable[tuple[int, str]]]
"""From the shown anomalies of a kind to sentences, each with the number of records that it is about."""


def causes(anomalies: Iterable[Anomaly], evidence: RunEvidence) -> dict[str, tuple[str, ...]]:
    """Return the sentences for each kind among `anomalies` for which there is evidence, the most records first."""
    by_name: dict[str, list[Anomaly]] = {}
    for anomaly in anomalies:
        by_name.setdefault(anomaly.name, []).append(anomaly)
    found: dict[str, tuple[str, ...]] = {}
    dead = deaths(evidence.program_ends, evidence.times)
    for name, shown in by_name.items():
        rules = [RULES[name]] if name in RULES else []
        rules += OF_RETRIES.get(name, ())
        if name in OF_REFUSALS:
            rules.append(refused_without_fault)
        sentences = sorted((found for rule in rules for found in rule(shown, evidence)), key=_weight)
        texts = [*dead, *dict.fromkeys(text for _, text in sentences)]
        if name in MAY_HAVE_STOPPED:
            texts += (text for _, text in stopped_clients(evidence))
        if name in NAMED_AFTER_ITS_WORK:
            texts += quiet_ends(evidence.program_ends, evidence.times)
        if name in MAY_NEED_IT:
            texts += outages(evidence, shown)
        if texts:
            found[name] = tuple(texts[:SENTENCES_MOST])
    return found


def _weight(sentence: tuple[int, str]) -> int:
    return -sentence[0]


RULES: Mapping[str, Rule] = {
    "missing": not_stored,
    "lost-write": lost,
    "missing-output": outputs_missing,
    "unexpected-output": outputs_unexpected,
    "duplicate-output": outputs_doubled,
    "commit-before-output": committed_early,
    "commit-for-other-group": misplaced,
    "duplicate": duplicated,
    "unexpected": unexpected,
    "inconsistent-offsets": same_offsets,
    "nonmonotonic-send": reordered,
    "out-of-order": reordered,
    "stuck-group": group_waits,
    "incomplete-leader": incomplete,
}
"""The rule of each kind for which there can be evidence; the other kinds explain themselves by their operations."""
OF_RETRIES: Mapping[str, Sequence[Rule]] = {
    "missing-output": (retries_lost, stopped_before),
    "duplicate-output": (sent_again,),
    "too-many-attempts": (restarted,),
    "attempt-before-due": (attempted_early,),
}
"""Rules about retry topics: they have a sentence where an anomaly has rows of these."""
OF_REFUSALS = frozenset({"missing", "duplicate", "nonmonotonic-send", "out-of-order"})
"""Kinds that refused records can lead to: they were given up, or sent again."""
