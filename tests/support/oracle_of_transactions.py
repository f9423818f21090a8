"""The checks of `kernels/transactions.py` and `kernels/groups.py` in plain Python: the kernels are tested against it.

Written from the definitions in `guarantees.py` and sharing no code with the kernels. Rows are dicts of the schemas of
`kernels/inputs.py`. An anomaly is `(name, offsets)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
Anomalies = set[tuple[str, tuple[int, ...]]]
COMMITTED_READER, DROPPED = 2, 4
UNKNOWN = 16
"""The state of a transaction whose decision a proxy did not see."""
SECOND = 10**9


@dataclass(slots=True)
class LoggedTransaction:
    """A transaction of the log: its batches and its marker."""

    producer: int
    epoch: int
    batches: list[Row] = field(default_factory=list[Row])
    marker: Row | None = None

    @property
    def aborted(self) -> bool:
        """Whether the marker aborts."""
        return self.marker is not None and bool(self.marker["attributes"] & 0x10000)


class TransactionOracle:
    """The rows of one topic-partition. `end_ns`, `high`: of the final read, 0 and None without one."""

    def __init__(
        self,
        batches: Sequence[Row],
        log: Sequence[Row],
        transactions: Sequence[Row] = (),
        offsets: Sequence[Row] = (),
        members: Sequence[Row] = (),
        *,
        end_ns: int = 0,
        high: int | None = None,
        healed_ns: int = 0,
    ) -> None:
        self._produced = [row for row in batches if row["kind"] == 1]
        self._fetched = [row for row in batches if row["kind"] == 2]
        self._states = sorted(transactions, key=lambda row: row["time_ns"])
        self._offsets = sorted(offsets, key=lambda row: row["completed_ns"])
        self._members = sorted(members, key=_order_of_owners)
        self._end_ns, self._high, self._healed_ns = end_ns, high, healed_ns
        self._log_end = log[-1]["last_offset"] + 1 if log else 0
        self._found: Anomalies = set()
        self._logged = list(_transactions_of(log))

    def judge(self) -> Anomalies:
        """Every check."""
        self._reads()
        for logged in self._logged:
            self._torn(logged)
            if logged.marker is None and self._end_ns:
                self._open(logged)
        self._owners()
        for group in {row["group"] for row in self._offsets}:
            own = [row for row in self._offsets if row["group"] == group]
            self._stale(own)
            self._lost(own)
        if self._high is not None:
            self._beyond(self._high)
        self._for_other_groups()
        return self._found

    def _add(self, name: str, *offsets: int) -> None:
        self._found.add((name, tuple(sorted(offsets))))

    # ---- transactions ------------------------------------------------------------------------------

    def _requested_ns(self, batch: Row) -> int:
        identity = ("producer_id", "producer_epoch", "base_sequence", "crc")
        times = [row["invoked_ns"] for row in self._produced if all(row[name] == batch[name] for name in identity)]
        return min(times, default=0)

    def _sent_ns(self, logged: LoggedTransaction) -> int:
        return max(self._requested_ns(batch) for batch in logged.batches)

    def _decision(self, logged: LoggedTransaction) -> tuple[bool | None, int] | None:
        """The first decision after the records (None: not known which), and its time."""
        all_of_them = [
            (None if row["state"] == UNKNOWN else row["state"] in (2, 4), row["time_ns"])
            for row in self._states
            if row["state"] >= 2 and (row["producer_id"], row["producer_epoch"]) == (logged.producer, logged.epoch)
        ]
        sent_ns = self._sent_ns(logged)
        if not sent_ns and len({commit for commit, _ in all_of_them}) > 1:
            return None
        return next((row for row in all_of_them if row[1] >= sent_ns), None)

    def _reads(self) -> None:
        for row in self._fetched:
            if not row["flags"] & COMMITTED_READER or row["flags"] & DROPPED:
                continue
            for logged in self._logged:
                for batch in logged.batches:
                    if (batch["last_offset"], batch["crc"]) == (row["last_offset"], row["crc"]):
                        self._read(row, batch, logged)

    def _read(self, row: Row, batch: Row, logged: LoggedTransaction) -> None:
        if row["producer_id"] < 0:
            return
        place = (row["base_offset"], row["last_offset"])
        if logged.aborted:
            self._add("aborted-read", *place)
            return
        own = [state for state in self._states if state["producer_id"] == row["producer_id"]]
        since = self._requested_ns(batch)
        legal = any(
            state["state"] in (2, 4, UNKNOWN) and since <= state["time_ns"] <= row["completed_ns"] for state in own
        )
        if own and not legal:
            self._add("precommitted-read", *place)

    def _torn(self, logged: LoggedTransaction) -> None:
        decision = self._decision(logged)
        if logged.marker is not None and decision is not None and decision[0] == logged.aborted:
            first, last = logged.batches[0], logged.batches[-1]
            self._add("torn-transaction", first["base_offset"], last["last_offset"])

    def _open(self, logged: LoggedTransaction) -> None:
        sent_ns = self._sent_ns(logged)
        states = [row for row in self._states if row["producer_id"] == logged.producer]
        own = [row for row in states if row["producer_epoch"] == logged.epoch and row["time_ns"] >= sent_ns]
        healed_ns = self._healed_ns
        waited_ns = self._end_ns - max(sent_ns, healed_ns)
        first = logged.batches[0]["base_offset"]
        prepared = [row["time_ns"] for row in own if row["state"] in (2, 3)]
        ongoing = [row for row in states if row["state"] == 1]
        if any(row["state"] in (4, 5) for row in own):
            self._add("stuck-lso", first)
        elif prepared:
            if self._end_ns - max(prepared[0], healed_ns) > 30 * SECOND:
                self._add("stuck-transaction", first)
        elif ongoing:
            if sent_ns and waited_ns > ongoing[-1]["timeout_ms"] * 10**6 + 30 * SECOND:
                self._add("stuck-transaction", first)
        elif self._states and sent_ns and waited_ns > 30 * SECOND:
            self._add("stuck-lso", first)

    # ---- groups ------------------------------------------------------------------------------------

    def _owners(self) -> None:
        held: dict[tuple[int, int, int], Row] = {}
        for row in self._members:
            key = (row["group"], row["generation"], row["member"])
            if row["kind"] == 2:
                held.pop(key, None)
                continue
            for other, first in held.items():
                same_generation = other != key and other[:2] == key[:2]
                next_coordinator = first["leader_epoch"] < row["leader_epoch"]
                incarnation = bool(row["instance"]) and row["instance"] == first["instance"]
                if same_generation and not (next_coordinator and incarnation):
                    self._add("two-owners")
            held[key] = row

    def _gained(self, member: int, group: int, before_ns: int) -> tuple[int, int] | None:
        rows = [
            row
            for row in self._members
            if row["kind"] == 1 and (row["member"], row["group"]) == (member, group) and row["time_ns"] < before_ns
        ]
        return _order_of_owners(rows[-1]) if rows else None

    def _stale(self, rows: Sequence[Row]) -> None:
        own = [row for row in rows if row["kind"] == 1 and not row["error"] and row["generation"] >= 0]
        for number in range(1, len(own)):
            before, row = own[number - 1], own[number]
            if row["member"] == before["member"] or row["offset"] >= before["offset"]:
                continue
            mine = self._gained(row["member"], row["group"], row["invoked_ns"])
            other = self._gained(before["member"], row["group"], row["invoked_ns"])
            ordered = before["completed_ns"] < row["invoked_ns"]
            if ordered and mine is not None and other is not None and mine < other:
                self._add("committed-offset-regression", before["offset"], row["offset"])

    def _lost(self, rows: Sequence[Row]) -> None:
        good = [row for row in rows if row["kind"] == 1 and not row["error"]]
        failed = [row["offset"] for row in rows if row["kind"] == 1 and row["error"]]
        for read in (row for row in rows if row["kind"] == 3):
            done = [row for row in good if row["completed_ns"] < read["invoked_ns"]]
            if not done or read["offset"] >= done[-1]["offset"]:
                continue
            last = done[-1]
            possible = [row["offset"] for row in good if row["completed_ns"] >= last["invoked_ns"]]
            if read["offset"] >= min([*possible, *failed]) or not _is_current(read, last, rows):
                continue
            self._add("committed-offset-regression", last["offset"], read["offset"])

    def _for_other_groups(self) -> None:
        readers = {row["group"] for row in self._members if row["kind"] == 1}
        readers |= {row["group"] for row in self._offsets if row["kind"] == 3}
        commits = [
            row
            for row in self._offsets
            if not row["error"] and (row["kind"] == 2 or (row["kind"] == 1 and row["producer_id"] < 0))
        ]
        foreign = [row for row in commits if row["group"] not in readers]
        for owner in {row["group"] for row in self._members}:
            own = [row for row in commits if row["group"] == owner]
            for row in foreign:
                if self._belongs_to(row, owner, own, foreign):
                    self._add("commit-for-other-group", row["offset"])

    def _belongs_to(self, row: Row, owner: int, own: Sequence[Row], foreign: Sequence[Row]) -> bool:
        changes = [m for m in self._members if m["group"] == owner]
        held: set[int] = set()
        for change in sorted(changes, key=lambda m: m["time_ns"]):
            if change["time_ns"] <= row["completed_ns"]:
                (held.add if change["kind"] == 1 else held.discard)(change["member"])
        name = "producer_id" if row["producer_id"] >= 0 else "client"
        same_kind = [other for other in own if (other["producer_id"] >= 0) == (name == "producer_id")]
        if not held or any(other[name] == row[name] for other in same_kind):
            return False
        clients = {change["client"] for change in changes}
        if row["generation"] >= 0 or (name == "client" and row["client"] in clients):
            return True
        last_ns = max(other["completed_ns"] for other in foreign)
        fetchers = {f["client"] for f in self._fetched if f["completed_ns"] <= last_ns}
        return name == "producer_id" and not own and bool(fetchers) and fetchers <= clients

    def _beyond(self, high: int) -> None:
        end = max(high, self._log_end)
        seen: set[tuple[int, int]] = set()
        for row in self._offsets:
            if row["kind"] == 3 or row["error"] or row["completed_ns"] > self._end_ns:
                continue
            key = (row["group"], row["offset"])
            if key not in seen and row["offset"] > min(end, self._stable_end(row)):
                seen.add(key)
                self._add("commit-beyond-lso", row["offset"])

    def _stable_end(self, row: Row) -> int:
        """The last stable offset when a reader of committed data committed; no limit for other clients."""
        reads = [fetch["flags"] for fetch in self._fetched if fetch["client"] == row["client"]]
        limit = 2**62
        if not reads or not all(flags & COMMITTED_READER for flags in reads) or row["generation"] < 0:
            return limit
        for logged in self._logged:
            decision = self._decision(logged)
            is_open = decision[1] > row["completed_ns"] if decision else logged.marker is None
            first = logged.batches[0]["base_offset"]
            if is_open and first < row["offset"]:
                limit = min(limit, first)
        return limit


def _order_of_owners(row: Row) -> tuple[int, int]:
    return row["leader_epoch"], row["time_ns"]


def _is_current(read: Row, last: Row, rows: Sequence[Row]) -> bool:
    if read["node"] == last["node"]:
        return True
    earlier = [r for r in rows if r["node"] == read["node"] and r["completed_ns"] < last["completed_ns"]]
    later = [r for r in rows if r["node"] == last["node"] and r["completed_ns"] > read["invoked_ns"]]
    return not earlier and not later


def _transactions_of(log: Sequence[Row]) -> Iterator[LoggedTransaction]:
    """Pair the batches with the next marker of their producer; batches of several epochs are several transactions."""
    opened: dict[int, dict[int, LoggedTransaction]] = {}
    for row in log:
        if not row["attributes"] & 0x10:
            continue
        producer, epoch = row["producer_id"], row["producer_epoch"]
        if row["attributes"] & 0x20:
            for logged in opened.pop(producer, {}).values():
                logged.marker = row
                yield logged
        else:
            known = opened.setdefault(producer, {})
            known.setdefault(epoch, LoggedTransaction(producer, epoch)).batches.append(row)
    for left in opened.values():
        yield from left.values()
