"""Hand-made rows of taps and traces for the checks of progress: one partition, orders-0, all times in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.partitions import IsrChanged, PartitionLeader
from harrow.cluster.host.seam import OFFSET_COMMITTED
from harrow.cluster.internal_topics import OFFSETS, TRANSACTIONS
from harrow.cluster.tap.layouts import FETCHED, FLAG_READ_COMMITTED, MEMBER_OWNS, MEMBER_RELEASED, PRODUCED
from harrow.harness.checks.progress.activity import GroupInput, PartitionActivity, PartitionInput
from harrow.harness.checks.progress.availability import Availability, Disturbance
from harrow.harness.checks.progress.findings import ProgressFindings
from harrow.harness.checks.progress.judging import Bounds, ProgressJudge
from harrow.harness.checks.progress.memberships import OwnerRow, by_group, rebalances, tenures
from harrow.harness.checks.progress.reading import BATCH_COLUMNS, COLUMNS
from harrow.harness.histories.coordinator_rows import OFFSETS as COMMITTED
from harrow.harness.histories.coordinator_rows import TRANSACTIONS as DECIDED
from harrow.harness.histories.group_states import GroupRow

SECOND = 10**9
PLACE = ("orders", 0)
COORDINATOR = (OFFSETS.name, 7)
Row = dict[str, Any]


def ns(seconds: float) -> int:
    return round(seconds * SECOND)


@dataclass
class History:
    """What happened in orders-0; by default broker 1 leads it and broker 2 is the coordinator, from the start on."""

    end_s: float = 60.0
    least_isr: int = 1
    known: bool = True
    names: list[str] = field(default_factory=list[str])
    batches: list[Row] = field(default_factory=list[Row])
    commits: list[Row] = field(default_factory=list[Row])
    members: list[OwnerRow] = field(default_factory=list[OwnerRow])
    states: list[GroupRow] = field(default_factory=list[GroupRow])
    transactions: list[Row] = field(default_factory=list[Row])
    events: list[TracedEvent[TraceEvent]] = field(default_factory=list[TracedEvent[TraceEvent]])
    faults: list[Disturbance] = field(default_factory=list[Disturbance])
    expired: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        if self.known:
            self.leads(0, 1)
            self.leads(0, 2, place=COORDINATOR)
            self.leads(0, 2, place=(TRANSACTIONS.name, 0))

    def number(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    # ---- the cluster -------------------------------------------------------------------------

    def leads(
        self,
        at_s: float,
        leader: int,
        *,
        isr: Sequence[int] = (1, 2, 3),
        epoch: int = 0,
        place: tuple[str, int] = PLACE,
        topic_id: str = "id",
    ) -> None:
        topic, partition = place
        event = PartitionLeader(
            topic=topic, partition=partition, topic_id=topic_id, leader=leader, leader_epoch=epoch, isr=tuple(isr)
        )
        self.broker(event, at_s, leader)

    def isr(
        self, at_s: float, isr: Sequence[int], *, epoch: int = 0, leader: int = 1, place: tuple[str, int] = PLACE
    ) -> None:
        topic, partition = place
        self.broker(IsrChanged(topic=topic, partition=partition, leader_epoch=epoch, isr=tuple(isr)), at_s, leader)

    def broker(self, event: TraceEvent, at_s: float, node: int) -> None:
        self.events.append(TracedEvent(ns(at_s), f"broker-{node}", event))

    def fault(
        self, begin_s: float, end_s: float, *nodes: int, of_application: bool = False, acts_from_s: float | None = None
    ) -> None:
        number = str(len(self.faults) + 1)
        acts_from_ns = None if acts_from_s is None else ns(acts_from_s)
        self.faults.append(
            Disturbance(
                id=number,
                label=f"fault {number}",
                begin_ns=ns(begin_s),
                end_ns=ns(end_s),
                nodes=nodes,
                of_application=of_application,
                acts_from_ns=acts_from_ns,
            )
        )

    # ---- clients -----------------------------------------------------------------------------

    def _batch(self, kind: int, client: str, at_s: float, first: int, last: int, **fields: int) -> None:
        row: Row = {
            "kind": kind,
            "client": self.number(client),
            "base_offset": first,
            "last_offset": last,
            "completed_ns": ns(at_s),
            "created_ns": ns(at_s),
            "flags": 0,
            "error": 0,
            "base_timestamp_ms": round(at_s * 1000),
        }
        self.batches.append(row | fields)

    def acked(
        self, at_s: float, offset: int, *, made_s: float | None = None, client: str = "shop", last: int | None = None
    ) -> None:
        """A Produce was acknowledged; its records were made at `made_s`."""
        made = at_s if made_s is None else made_s
        self._batch(
            PRODUCED,
            client,
            at_s,
            offset,
            offset if last is None else last,
            created_ns=ns(made),
            base_timestamp_ms=round(made * 1000),
        )

    def refused(self, at_s: float, error: int = 6, client: str = "shop") -> None:
        self._batch(PRODUCED, client, at_s, -1, -1, error=error)

    def delivered(
        self, at_s: float, first: int, last: int | None = None, *, client: str = "bill", committed: bool = False
    ) -> None:
        flags = FLAG_READ_COMMITTED if committed else 0
        self._batch(FETCHED, client, at_s, first, first if last is None else last, flags=flags)

    def committed(self, at_s: float, offset: int, *, group: str = "billing", client: str = "bill") -> None:
        self.commits.append(
            {
                "kind": OFFSET_COMMITTED,
                "error": 0,
                "group": self.number(group),
                "client": self.number(client),
                "offset": offset,
                "completed_ns": ns(at_s),
            }
        )

    def owns(
        self, at_s: float, member: str = "m1", *, client: str = "bill", group: str = "billing", released: bool = False
    ) -> None:
        for name in (group, client):
            self.number(name)
        kind = MEMBER_RELEASED if released else MEMBER_OWNS
        self.members.append(OwnerRow(kind, group, member, client, 0, ns(at_s)))

    def releases(self, at_s: float, member: str = "m1", *, client: str = "bill", expired: bool = False) -> None:
        self.owns(at_s, member, client=client, released=True)
        if expired:
            self.expired.add(member)

    def state(self, at_s: float, state: str, group: str = "billing") -> None:
        self.states.append(
            GroupRow(
                group=group,
                state=state,
                node=1,
                partition=0,
                generation=1,
                leader_epoch=0,
                members=1,
                timeout_ms=0,
                time_ns=ns(at_s),
            )
        )

    def transaction(self, at_s: float, state: int, *, producer_id: int = 1, name: str = "tx") -> None:
        self.transactions.append(
            {"state": state, "transactional_id": self.number(name), "producer_id": producer_id, "time_ns": ns(at_s)}
        )

    # ---- the verdict -------------------------------------------------------------------------

    def judge(self, within_s: float | None = None, *, of_faults: dict[str, float] | None = None) -> ProgressFindings:
        bounds = Bounds(
            of_verdict_ns=None if within_s is None else ns(within_s),
            of_faults_ns={fault: ns(bound) for fault, bound in (of_faults or {}).items()},
        )
        groups: list[GroupInput] = []
        rows, states = by_group(self.members), by_group(self.states)
        committing: set[str] = {self.names[row["group"]] for row in self.commits}
        for group in sorted({*rows, *committing}):
            clients = {self.number(row.client) for row in rows.get(group, ())}
            clients |= {row["client"] for row in self.commits if self.names[row["group"]] == group}
            groups.append(
                GroupInput(
                    name=group,
                    clients=frozenset(clients),
                    number=self.number(group),
                    owned=tenures(rows.get(group, ()), ns(self.end_s), frozenset(self.expired)),
                    rebalances=rebalances(states.get(group, ()), ns(self.end_s)),
                )
            )
        given = PartitionInput(
            place=PLACE,
            batches=columns(self.batches, BATCH_COLUMNS),
            offsets=columns(self.commits, COLUMNS[COMMITTED]),
            transactions=columns(self.transactions, COLUMNS[DECIDED]),
            names=self.names,
            not_users=frozenset(),
            groups=groups,
            begin_ns=0,
            end_ns=ns(self.end_s),
        )
        return ProgressJudge(
            tracks=PartitionActivity(given).tracks(),
            availability=Availability(events=self.events, faults=self.faults, least_isr={PLACE[0]: self.least_isr}),
            coordinators={("group", "billing"): COORDINATOR, ("transactional id", "tx"): (TRANSACTIONS.name, 0)},
            bounds=bounds,
            started_ns=0,
        ).judge()


def columns(rows: Sequence[Row], dtypes: Any) -> dict[str, Any]:
    return {name: np.array([row[name] for row in rows], np.dtype(dtype)) for name, dtype in dtypes.items()}
