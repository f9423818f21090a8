"""Operators' requests of faults go on to the next broker where one cannot reach the controller (K7)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.client_requests import ClientRequest
from harrow.harness.requests import operator as operator_requests
from harrow.harness.requests.operator import PREFERRED, election, reassignment


@pytest.mark.parametrize("request_", [election(PREFERRED, {"t": [0]}), reassignment([("t", 0, (1, 2))])])
@pytest.mark.parametrize(
    ("first", "asked"),
    [
        (ErrorCode.request_timed_out, 2),
        (ErrorCode.not_controller, 2),
        (ErrorCode.none, 1),
        (ErrorCode.cluster_authorization_failed, 1),
    ],
)
def test_the_next_broker_is_asked_where_the_first_has_no_controller(
    monkeypatch: pytest.MonkeyPatch, request_: ClientRequest, first: ErrorCode, asked: int
) -> None:
    answers = [first, ErrorCode.none]
    seen: list[str] = []

    def ask(address: object, *_: object, timeout_s: float) -> SimpleNamespace:
        time_of_request_s = request_.entity.timeout.total_seconds()
        assert time_of_request_s < timeout_s, "the broker can say that it has no controller"
        seen.append(str(address))
        return SimpleNamespace(error_code=answers[len(seen) - 1])

    monkeypatch.setattr(operator_requests, "ask", ask)
    operator_requests.sent_in_thread("h:1,h:2", request_).join(10)
    assert seen == ["h:1", "h:2"][:asked]
