"""The members of consumer groups as times: who owned a partition, when a group rebalanced, whose session timed out.

Rows: `cluster/tap/layouts.py` (`tap.members`, `tap.groups`) with names instead of numbers, and the events
`group.member-expired` of the traces. Rows of a coordinator that was deposed may be late, so they are ordered by the
leader epoch of their coordinator first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from harrow.cluster.tap.layouts import MEMBER_OWNS

from ...histories.group_states import AT_REST, GroupRow
from .spans import Spans, merged


class OwnerRow(NamedTuple):
    """A row of `tap.members`, with names instead of numbers: a member got the partition, or released it (`kind`)."""

    kind: int
    group: str
    member: str
    client: str
    leader_epoch: int
    time_ns: int


class OfGroup(Protocol):
    """A row about a group."""

    @property
    def group(self) -> str:
        """Its name."""
        ...


Of = TypeVar("Of", bound=OfGroup)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """One member owned a partition for this time, without a break."""

    member: str
    client: str
    begin_ns: int
    end_ns: int
    expired: bool = False
    """Whether it lost the partition because its session or its rebalance timeout had passed."""


def tenures(rows: Iterable[OwnerRow], end_ns: int, expired: frozenset[str] = frozenset()) -> list[Tenure]:
    """Return who owned one partition of one group, by begin. `expired`: members whose timeouts had passed.

    `rows`: of `tap.members`; `end_ns`: the end of the run, to which the last owner owns it.
    """
    held: dict[str, OwnerRow] = {}
    found: list[Tenure] = []

    def end(row: OwnerRow, at_ns: int) -> None:
        found.append(
            Tenure(
                member=row.member,
                client=row.client,
                begin_ns=row.time_ns,
                end_ns=at_ns,
                expired=row.member in expired,
            )
        )

    for row in sorted(rows, key=lambda row: (row.leader_epoch, row.time_ns)):
        if row.kind == MEMBER_OWNS:
            held.setdefault(row.member, row)
        elif row.member in held:
            end(held.pop(row.member), row.time_ns)
    for row in held.values():
        end(row, end_ns)
    return sorted(found, key=lambda tenure: (tenure.begin_ns, tenure.end_ns))


def rebalances(rows: Iterable[GroupRow], end_ns: int) -> Spans:
    """Return when one group was not at rest. `rows`: of `tap.groups`."""
    ordered = sorted(rows, key=lambda row: (row.leader_epoch, row.time_ns))
    ends = [row.time_ns for row in ordered[1:]] + [end_ns]
    return merged((row.time_ns, last) for row, last in zip(ordered, ends, strict=True) if row.state not in AT_REST)


def alive(owned: Sequence[Tenure]) -> Spans:
    """Return when the partition had an owner that was there, or that returned later with the same client id.

    A member whose session timed out, and that joins again, was cut off or stood still meanwhile: that time counts.
    """
    spans = [(tenure.begin_ns, tenure.end_ns) for tenure in owned]
    for tenure, later in _with_successors(owned):
        if tenure.expired and later is not None and later.client == tenure.client:
            spans.append((tenure.end_ns, later.begin_ns))
    return merged(spans)


def dead_owners(owned: Sequence[Tenure]) -> Spans:
    """Return the time of owners whose session timed out, and whose client did not return: the group waited for them.

    The whole tenure is returned; who asks cuts it at the last progress.
    """
    return merged(
        (tenure.begin_ns, tenure.end_ns)
        for tenure, later in _with_successors(owned)
        if tenure.expired and (later is None or later.client != tenure.client)
    )


def _with_successors(owned: Sequence[Tenure]) -> Iterable[tuple[Tenure, Tenure | None]]:
    """Yield each tenure with the next one of the partition that begins when it has ended."""
    for number, tenure in enumerate(owned):
        later = (other for other in owned[number + 1 :] if other.begin_ns >= tenure.end_ns)
        yield tenure, next(later, None)


def first_owned(owned: Sequence[Tenure]) -> list[int]:
    """Return the times at which another member than before became the owner: it begins at the committed offset."""
    found: list[int] = []
    before = None
    for tenure in owned:
        if tenure.member != before:
            found.append(tenure.begin_ns)
        before = tenure.member
    return found


def by_group(rows: Iterable[Of]) -> dict[str, list[Of]]:
    """Return the rows of each group."""
    found: dict[str, list[Of]] = defaultdict(list)
    for row in rows:
        found[row.group].append(row)
    return found
