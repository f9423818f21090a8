"""The mutants by name: what each does, where, which guarantees forbid it, and which faults show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harrow.cluster.errors import ConfigError

WIRE, CLIENT = "wire", "client"
TOPICS = frozenset({"no-loss", "exactly-once"})
"""Guarantees of a topic, and of the output of a pipeline."""
PIPELINES = frozenset({"at-least-once", "exactly-once"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A bug of a client."""

    name: str
    words: str
    """What it does, as a part of a sentence."""
    where: str
    """`wire`: brokers and proxies change requests, in any language. `client`: in a Python client."""
    breaks: frozenset[str]
    """Guarantees that forbid it."""
    shown_by: str
    """What shows it; empty where it shows without a fault."""


MUTANTS: Sequence[Mutant] = (
    Mutant(
        name="acks-of-leader",
        words="acks=all becomes acks=1",
        where=WIRE,
        breaks=TOPICS | PIPELINES,
        shown_by="a leader that dies",
    ),
    Mutant(
        name="no-idempotence",
        words="batches have no producer id, so that a retry is appended again",
        where=WIRE,
        breaks=frozenset({"exactly-once"}),
        shown_by="a leader that dies, or a response that is lost",
    ),
    Mutant(
        name="sent-twice",
        words="the last record of each batch is sent twice",
        where=WIRE,
        breaks=frozenset({"exactly-once"}),
        shown_by="",
    ),
    Mutant(
        name="failed-is-sent",
        words="a Produce that a broker refuses counts as sent",
        where=WIRE,
        breaks=TOPICS | PIPELINES,
        shown_by="refused requests, or a leader that moves",
    ),
    Mutant(
        name="no-headers",
        words="records lose their headers",
        where=WIRE,
        breaks=TOPICS | PIPELINES,
        shown_by="",
    ),
    Mutant(
        name="offset-too-far",
        words="each committed offset is one too far",
        where=WIRE,
        breaks=PIPELINES,
        shown_by="a service that dies, or a rebalance",
    ),
    Mutant(
        name="offsets-left-out",
        words="the offsets of a transaction are not in it",
        where=WIRE,
        breaks=frozenset({"exactly-once"}),
        shown_by="a service that dies, or a rebalance",
    ),
    Mutant(
        name="read-uncommitted",
        words="isolation.level=read_committed becomes read_uncommitted",
        where=WIRE,
        breaks=frozenset({"exactly-once"}),
        shown_by="an aborted transaction: a job that dies, or a leader that hangs",
    ),
    Mutant(
        name="early-commit",
        words="offsets are committed when records are read, before the work",
        where=CLIENT,
        breaks=PIPELINES,
        shown_by="a service that dies",
    ),
    Mutant(
        name="no-flush",
        words="flush() does nothing",
        where=CLIENT,
        breaks=TOPICS | PIPELINES,
        shown_by="a service that ends while a leader is slow",
    ),
    Mutant(
        name="lost-error",
        words="a delivery that failed counts as sent",
        where=CLIENT,
        breaks=TOPICS | PIPELINES,
        shown_by="a leader that hangs for longer than the delivery timeout",
    ),
)


def mutants_named(names: Iterable[str]) -> list[Mutant]:
    """Return the mutants of these names, all without names; ConfigError for a name that there is not."""
    known = {mutant.name: mutant for mutant in MUTANTS}
    wanted = list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ConfigError(f"no mutant is named {unknown[0]!r}; there are: {', '.join(known)}")
    return [known[name] for name in wanted] if wanted else list(MUTANTS)
