"""`RecordCheck`: a check of an extension over all records of a run (J4, L5).

    class BilledOnce(RecordCheck):
        guarantee = "billed-once"
        anomalies = (AnomalyKind(name="billed-twice", singular="order is billed twice", plural="orders …"),)

        def group(self, record): return record["order"]             # records that are judged together
        def findings(self, group, records): …                       # yields a Finding for what is wrong

A verdict judges it where `guarantee=` names its guarantee; with `always = True` in every verdict. Spark's tasks call
`group` for each record of the final read and `findings` for each group, in any order, so both must be deterministic and
free of effects. An exception makes the verdict unknown, and the reason shows it.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked

from .anomaly_kinds import AnomalyKind
from .record import Record

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong with the records of a group."""

    anomaly: str
    """The name of one of the check's anomalies."""
    explanation: str
    """One line in the user's words."""
    records: Sequence[Record] = ()
    """The records that show it."""
    count: int = 1
    """How many records (or things) the anomaly concerns."""


class RecordCheck(abc.ABC):
    """A check over the records of the final read, group by group."""

    guarantee: ClassVar[str]
    """The name of the guarantee that forbids its anomalies, such as `billed-once`."""
    anomalies: ClassVar[Sequence[AnomalyKind]]
    """What it finds, with words and severity (`AnomalyKind.after`)."""
    always: ClassVar[bool] = False
    """Whether every verdict judges it."""

    @abc.abstractmethod
    def group(self, record: Record) -> Any:
        """Return what the records have in common that are judged together; None for a record that is not judged."""

    @abc.abstractmethod
    def findings(self, group: str, records: Sequence[Record]) -> Iterable[Finding]:
        """Yield what is wrong with a group; `records`: all of it, by topic, partition and offset.

        `group`: the text of what `group()` returned.
        """


def check_problem(check: Any, own: Iterable[str]) -> str:
    """Return why `check` is no usable check; empty where it is one. `own`: names of Harrow's anomalies."""
    if not isinstance(check, RecordCheck):
        return f"{check!r} is not an instance of a subclass of RecordCheck"
    name = type(check).__name__
    guarantee: object = getattr(check, "guarantee", None)
    if not isinstance(guarantee, str) or not NAME.fullmatch(guarantee):
        return f"{name}.guarantee is {guarantee!r}, expected a name such as 'billed-once'"
    kinds: Any = getattr(check, "anomalies", ())
    if not kinds or not all(isinstance(kind, AnomalyKind) for kind in kinds):
        return f"{name}.anomalies is {kinds!r}, expected AnomalyKind values, at least one"
    known = set(own)
    for kind in kinds:
        if not NAME.fullmatch(kind.name) or kind.name in known:
            return f"the anomaly {kind.name!r} of {name}: expected a name such as 'billed-twice' that is new"
        if kind.after and kind.after not in known:
            return f"the anomaly {kind.name!r} of {name} is after {kind.after!r}, which is no anomaly of Harrow"
    return ""
