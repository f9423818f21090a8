"""Transactions that are being ended when a run ends: who is asked, for what, and for how long a verdict waits."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from harrow.cluster.errors import ClusterError, ErrorCode
from harrow.cluster.internal_topics import TRANSACTIONS
from harrow.cluster.listeners import Address
from harrow.cluster.wire.client_requests import ClientRequest
from harrow.harness.requests import ending_transactions
from harrow.harness.requests.ending_transactions import MOST_S, POLL_S, await_ended, ending_of
from harrow.harness.verdict.verifier import RunVerifier

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


class Cluster:
    """A cluster that says in which order it was asked."""

    def __init__(self, *topics: str) -> None:
        self.asked: list[str] = []
        self.topics: dict[str, dict[int, object]] = {name: {} for name in topics}
        own = SimpleNamespace(
            ending_transactions=self._noting("ending", []),
            read_all=lambda topics, folder, *, contents: self.asked.append("read"),
            list_groups=lambda: SimpleNamespace(asked_ns=0, states={}, problems=()),
        )
        self.own_requests = own

    def _noting(self, name: str, result: Any) -> Callable[[], Any]:
        def ask() -> Any:
            self.asked.append(name)
            return result

        return ask

    def describe(self) -> Any:
        return SimpleNamespace(topics=self.topics)

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
    monkeypatch.setattr("harrow.harness.histories.group_states.write_groups", lambda run, found: None)
    verifier = RunVerifier(tmp_path, "no Spark", seed=1, repeat="")
    cluster = Cluster(*topics)
    assert verifier._bring_to_rest(cluster, ["bills"], contents=contents) == []  # type: ignore[arg-type]
    assert cluster.asked == asked
