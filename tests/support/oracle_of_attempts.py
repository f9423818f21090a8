"""The rules of attempts in plain Python, for small histories (L5): part of `oracle_of_pipelines.py`.

The head of `attempt_rules.py` defines the rules.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from harrow.harness.checks.record import Record
from harrow.harness.promises.retries import RetryPromise

DUE_ORDER = "due-out-of-order"
TOO_MANY, EARLY, UNCERTAIN = "too-many-attempts", "attempt-before-due", "uncertain-attempts"
NS_PER_MS = 1_000_000


class Attempts:
    """The attempts of one record id."""

    def __init__(
        self,
        promise: RetryPromise,
        inputs: Sequence[Record],
        retries: Sequence[Record],
        letters: Sequence[Record],
        time_of: Callable[[Record], int],
        reads_of: Callable[[Record], int],
        producer_of: Callable[[Record], int],
    ) -> None:
        self._promise = promise
        self._inputs, self._retries, self._letters = inputs, retries, letters
        self._time_of, self._reads_of, self._producer_of = time_of, reads_of, producer_of

    def judge(self) -> Counter[str]:
        """Return the anomalies, and the doubt `uncertain-attempts`."""
        found = Counter({EARLY: sum(map(self._is_early, [*self._retries, *self._letters]))})
        if self._promise.attempts is not None:
            found[self._number(self._promise.attempts)] += 1
        del found[""]
        return found

    def sent(self) -> list[tuple[Record, Record]]:
        """Return the records that were sent from one retry topic to another, each with the one that waited."""
        pairs: list[tuple[Record, Record]] = []
        for record in self._retries:
            first = self._first_of(record)
            if first is not None and first.topic != record.topic:
                pairs.append((record, first))
        return pairs

    def _first_of(self, record: Record) -> Record | None:
        """Return the first record with the attempts and the due time of this one."""
        attempts_of, due_of = self._promise.attempts_of, self._promise.due_ms_of
        due = due_of(record.headers)
        same = [
            row
            for row in self._retries
            if attempts_of(row.headers) == attempts_of(record.headers) and due_of(row.headers) == due
        ]
        if due is None or not same:
            return None
        return min(same, key=self._age)

    def _made(self, record: Record) -> int | None:
        """Return how many attempts were made when a record was written."""
        said = self._promise.attempts_of(record.headers)
        others = [self._promise.attempts_of(other.headers) for other in self._retries]
        known = [number for number in others if number is not None]
        return said if said is None or (known and min(known) != 2) else said - 1

    def _number(self, most: int) -> str:
        known = [made for row in self._retries if (made := self._made(row)) is not None]
        dead = [made for row in self._letters if (made := self._made(row)) is not None]
        if any(made >= most for made in known) or any(made > most for made in dead):
            return TOO_MANY
        if known:
            return TOO_MANY if self._begins_again() else ""
        inputs = len(self._inputs)
        too_many = any(
            len(self._in_topic(self._retries, topic)) > inputs * (most - 1) for topic in self._promise.topics
        )
        if not inputs or not too_many:
            return ""
        return TOO_MANY if self._promise.once else UNCERTAIN

    def _begins_again(self) -> bool:
        reads = [self._reads_of(given) for given in self._inputs]
        if not reads or any(count <= 0 for count in reads):
            return False
        first = [row for row in self._retries if self._made(row) == 1]
        if not first:
            return False
        topic = min(first, key=self._age).topic
        own = self._in_topic(first, topic)
        producers = {self._producer_of(row) for row in own}
        dues = [self._promise.due_ms_of(row.headers) for row in own]
        known = [due for due in dues if due is not None]
        later = len(known) < len(dues) or max(map(self._sent_ms, own)) > min(known)
        return -1 not in producers and len(producers) > sum(reads) and later

    def _age(self, row: Record) -> tuple[int, int, int, int]:
        number = self._promise.topics.index(row.topic)
        return self._sent_ms(row), number, row.partition, row.offset

    @staticmethod
    def _in_topic(rows: Iterable[Record], topic: str) -> list[Record]:
        return [row for row in rows if row.topic == topic]

    def _is_early(self, attempt: Record) -> bool:
        """True for a record that shows an attempt before its time."""
        latest = self._sent_ms(attempt) + self._promise.tolerance_ms
        due = self._promise.due_ms_of(attempt.headers)
        said = self._promise.attempts_of(attempt.headers)
        if said is not None and said > 0:
            dues = [
                own
                for row in self._retries
                if self._promise.attempts_of(row.headers) == said - 1
                and (own := self._promise.due_ms_of(row.headers)) is not None
            ]
            if dues and min(dues) > latest:
                return True
        return due is not None and any(attempt is row for row, _ in self.sent()) and due > latest

    def _sent_ms(self, record: Record) -> int:
        time_ns = self._time_of(record)
        return time_ns // NS_PER_MS if time_ns else record.timestamp_ms


def dues_out_of_order(sent: Sequence[tuple[Record, Record]], promise: RetryPromise) -> Counter[str]:
    """Return how many records were sent behind a later one of their key that was due later."""
    lanes: dict[tuple[object, ...], dict[tuple[str, int, int], tuple[int, int]]] = defaultdict(dict)
    for record, wait in sent:
        if wait.key is not None:
            lane = lanes[wait.key, wait.topic, wait.partition, record.topic, record.partition]
            place = (wait.topic, wait.partition, wait.offset)
            known = lane.get(place, (record.offset, 0))[0]
            lane[place] = (min(known, record.offset), promise.due_ms_of(wait.headers) or 0)
    return Counter(
        {
            DUE_ORDER: sum(
                any(
                    other[2] > place[2] and before < sent_at and later > due + promise.tolerance_ms
                    for other, (before, later) in lane.items()
                )
                for lane in lanes.values()
                for place, (sent_at, due) in lane.items()
            )
        }
    )
