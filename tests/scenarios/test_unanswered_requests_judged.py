"""A request that a broker never answers makes the verdict invalid; one that waits as it may does not (L4)."""

from __future__ import annotations

import planted_silence
import pytest
from brokers_by_hand import PlacedTopic, place
from harrow import Harrow
from harrow.harness.checks import Verdict, unanswered
from harrow.harness.errors import VerdictError
from raw_kafka import fetch_request
from topics_and_traces import trace_events
from waiting import until

WAIT_MS = 500


@pytest.mark.parametrize(
    "is_planted",
    [
        pytest.param(bool(plants), marks=pytest.mark.harrow(brokers=1, plant=plants), id=label)
        for label, plants in (("planted_silence", ("planted_silence",)), ("unplanted", ()))
    ],
)
def test_a_fetch_that_is_never_answered_is_found(
    harrow: Harrow, monkeypatch: pytest.MonkeyPatch, is_planted: bool
) -> None:
    monkeypatch.setattr(unanswered, "PATIENCE_NS", planted_silence.PATIENCE_S * 1_000_000_000)
    orders = place(harrow.cluster, "orders", 1)
    assert orders.produce(1, "m0").error_code == 0
    with orders.raw(1, "billing") as raw:
        request = fetch_request("orders", 0, 1, 12, min_bytes=2_000, max_wait_ms=WAIT_MS)
        correlation_id = raw.send(1, 12, request)
        if is_planted:
            until(lambda: trace_events(harrow.cluster, 1, "request.unanswered"), timeout_s=60)
        else:
            assert raw.take()[0] == correlation_id
        verdict = judge(harrow, orders)
    if not is_planted:
        assert verdict.valid, verdict
        assert not trace_events(harrow.cluster, 1, "request.unanswered")
        return
    assert verdict.anomaly_names() == {"unanswered-request"}, verdict
    shown = str(verdict)
    assert "broker 1 has not answered a FETCH request of client billing for" in shown
    assert "it may wait for 0.5 s" in shown


def judge(harrow: Harrow, orders: PlacedTopic) -> Verdict:
    try:
        return harrow.verify(orders.topic, guarantee="no-loss")
    except VerdictError as error:
        return error.verdict
