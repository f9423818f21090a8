"""What a verdict waits for before the final read: transactions that are being ended, and full ISRs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from harrow.cluster.errors import ClusterError, ErrorCode
from harrow.cluster.ids import TopicPartition
from harrow.cluster.internal_topics import TRANSACTIONS
from harrow.cluster.listeners import Address
from harrow.cluster.wire.client_requests import ClientRequest
from harrow.harness.requests import ending_transactions
from harrow.harness.requests.ending_transactions import MOST_S, POLL_S, await_ended, ending_of
from harrow.harness.verdict.verifier import REST_TRIES, RunVerifier

FULL = (3, 1, 2)
FIRST, SECOND, DEAD = (Address("127.0.0.1", port) for port in (1, 2, 3))


def response(*names: str, error: ErrorCode = ErrorCode.none) -> Any:
    rows = tuple(SimpleNamespace(transactional_id=name) for name in names)
    return SimpleNamespace(error_code=error, transaction_states=rows)


def test_each_broker_is_asked_for_transactions_that_are_being_ended() -> None:
    def ask(address: Address, request: ClientRequest) -> Any:
        assert request.name == "ListTransactions"
        assert tuple(request.entity.state_filters) == ("PrepareCommit", "PrepareAbort")
        if address == DEAD:
            raise ClusterError(f"{address} does not respond")
        loading = ErrorCode.coordinator_load_in_progress
        return response("a", "b") if address == FIRST else response("c", error=loading)

    assert ending_of([FIRST, SECOND, DEAD], ask) == ["a", "b"]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("looks", "waited"), [(0, 0.0), (3, 3 * POLL_S), (10**9, MOST_S)])
def test_the_wait_ends_with_the_last_of_them_or_after_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, looks: int, waited: float
) -> None:
    clock, left = Clock(), [looks]
    monkeypatch.setattr(ending_transactions, "time", clock)

    def ending() -> list[str]:
        left[0] -= 1
        return ["billing"] if left[0] >= 0 else []

    await_ended(ending)
    assert clock.now == pytest.approx(waited, abs=2 * POLL_S)


def test_a_transaction_that_begins_to_end_later_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(ending_transactions, "time", clock)
    looks = iter([["a", "b"], ["b", "c"], ["c", "d"], ["d"]])
    await_ended(lambda: next(looks))
    assert next(looks) == ["d"], "the third look has none of the first"


def write_nothing(run: object, found: object) -> None:
    del run, found


class Cluster:
    """A cluster that says in which order it was asked."""

    def __init__(self, *topics: str) -> None:
        self.asked: list[str] = []
        self.isrs: list[tuple[int, ...]] = [FULL]
        self.topics: dict[str, dict[int, object]] = {name: {} for name in topics}
        own = SimpleNamespace(
            ending_transactions=self._noting("ending", []),
            read_all=self._read_all,
            list_groups=lambda: SimpleNamespace(asked_ns=0, states={}, problems=()),
        )
        self.own_requests = own

    def _noting(self, name: str, result: Any) -> Callable[[], Any]:
        def ask() -> Any:
            self.asked.append(name)
            return result

        return ask

    def _read_all(self, topics: object, folder: object, *, contents: bool) -> None:
        del topics, folder, contents
        self.asked.append("read")

    def describe(self) -> Any:
        isr = self.isrs.pop(0) if len(self.isrs) > 1 else self.isrs[0]
        row = SimpleNamespace(leader=1, replicas=(1, 2, 3), isr=isr)
        where = TopicPartition("bills", 0)
        return SimpleNamespace(topics=self.topics, partitions=lambda: [(where, row)], isr=isr)

    def await_replicated(self, timeout_s: float, topics: object) -> None:
        del timeout_s, topics
        self.asked.append("replicated")


@pytest.mark.parametrize(
    ("topics", "contents", "asked"),
    [
        (["bills", TRANSACTIONS.name], True, ["ending", "replicated", "read"]),
        (["bills", TRANSACTIONS.name], False, ["replicated", "read"]),
        (["bills"], True, ["replicated", "read"]),
    ],
    ids=["transactions", "no contents", "no transactions"],
)
def test_a_verdict_on_contents_waits_for_transactions_before_it_reads(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, topics: list[str], contents: bool, asked: list[str]
) -> None:
    monkeypatch.setattr("harrow.harness.histories.group_states.write_groups", write_nothing)
    verifier = RunVerifier(tmp_path, "no Spark", seed=1, repeat="")
    cluster = Cluster(*topics)
    assert verifier._bring_to_rest(cluster, ["bills"], contents=contents) == []  # type: ignore[arg-type]
    assert cluster.asked == asked


@pytest.mark.parametrize(
    ("isrs", "looks"), [([FULL], 1), ([(1, 2), (1, 2), FULL], 3), ([(1, 2)], REST_TRIES)], ids=["full", "late", "never"]
)
def test_an_isr_that_shrinks_in_the_moment_after_is_waited_for_again(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, isrs: list[tuple[int, ...]], looks: int
) -> None:
    monkeypatch.setattr("harrow.harness.histories.group_states.write_groups", write_nothing)
    verifier = RunVerifier(tmp_path, "no Spark", seed=1, repeat="")
    cluster = Cluster("bills")
    cluster.isrs = isrs
    assert verifier._bring_to_rest(cluster, ["bills"], contents=False) == []  # type: ignore[arg-type]
    assert cluster.asked == ["replicated"] * looks + ["read"]
    rest: Any = verifier._view  # pyright: ignore[reportPrivateUsage]
    assert rest.isr == isrs[-1], "it is judged with the ISRs of its rest"
