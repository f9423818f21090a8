"""The coordinator and the classic member of Harrow's clients, without I/O: what is sent again, and until when (J2)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from harrow.cluster.errors import ClusterError, ErrorCode, KafkaError
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from harrow.harness.fault_clients.classic_member import ClassicFaultMember
from harrow.harness.requests.blocking import BlockingTransport, completed
from harrow.harness.requests.classic_member import ClassicMember
from harrow.harness.requests.coordinator import GROUP, Coordinator
from harrow.harness.requests.raw import StoppedError
from harrow.harness.requests.share_member import ShareMember

Code = ErrorCode
HEARTBEAT = client_request(ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id="m")
Answers = list[Any]
"""What the brokers respond in turn: the fields of a response, or an error to raise."""


class Scripted:
    """A transport on a clock of its own; broker 7 coordinates unless `found` says otherwise."""

    def __init__(self, *answers: dict[str, Any] | Exception, found: Callable[[], Code] = lambda: Code.none) -> None:
        self._answers = list(answers)
        self._found = found
        self._now_ms = 0.0
        self.asked: list[ClientRequest] = []
        self.finds = 0

    def now_ms(self) -> float:
        return self._now_ms

    async def ask(self, address: tuple[str, int], request: ClientRequest, timeout_ms: float | None = None) -> Any:
        assert address == ("there", 7)
        assert timeout_ms is None or timeout_ms > 0
        self.asked.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return messages.schema(request.api_key, request.version, "response").root(**answer)

    async def ask_any_broker(self, request: ClientRequest) -> Any:
        assert request.api_key == ApiKey.FIND_COORDINATOR
        self.finds += 1
        s = messages.schema(request.api_key, request.version, "response")
        row = s.Coordinator(key="g", node_id=7, host="there", port=7, error_code=self._found())
        return s.root(coordinators=(row,))

    async def sleep(self, delay_ms: float) -> None:
        self._now_ms += delay_ms

    async def pause(self) -> None:
        await self.sleep(50)


def error(code: Code) -> dict[str, Any]:
    return {"error_code": code}


def test_a_request_is_sent_again_to_the_coordinator_that_is_found_then() -> None:
    moved = (error(Code.not_coordinator), ConnectionResetError("closed"), error(Code.none))
    transport = Scripted(*moved)
    coordinator = Coordinator(transport, GROUP, "g", patience_ms=1_000)
    assert completed(coordinator.ask(HEARTBEAT)).error_code is Code.none
    assert (len(transport.asked), transport.finds, transport.now_ms()) == (3, 3, 100)
    assert coordinator.answered_by == 7


def test_an_error_that_means_another_step_names_the_request_and_the_group() -> None:
    coordinator = Coordinator(Scripted(error(Code.unknown_member_id)), GROUP, "g")
    with pytest.raises(KafkaError, match="Heartbeat of 'g' was refused: UNKNOWN_MEMBER_ID") as raised:
        completed(coordinator.ask(HEARTBEAT))
    assert raised.value.code is Code.unknown_member_id


@pytest.mark.parametrize(
    ("answers", "found", "trouble"),
    [
        ([error(Code.coordinator_load_in_progress)] * 30, Code.none, "COORDINATOR_LOAD_IN_PROGRESS"),
        ([ConnectionResetError("closed")] * 30, Code.none, "closed"),
        ([], Code.coordinator_not_available, "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_patience_ends_with_the_last_trouble(answers: Answers, found: Code, trouble: str) -> None:
    transport = Scripted(*answers, found=lambda: found)
    with pytest.raises(ClusterError, match=f"the coordinator of 'g' did not serve: {trouble}"):
        completed(Coordinator(transport, GROUP, "g", patience_ms=1_000).ask(HEARTBEAT))
    assert 1_000 < transport.now_ms() <= 1_100


def test_a_client_that_is_stopped_waits_no_longer() -> None:
    stopped = threading.Event()
    transport = BlockingTransport("127.0.0.1:1", "app", stopped)  # nothing listens there
    coordinator = Coordinator(transport, GROUP, "g")
    threading.Timer(0.2, stopped.set).start()
    with pytest.raises(StoppedError):
        completed(coordinator.ask(HEARTBEAT))


def member_of(transport: Scripted) -> ClassicMember:
    coordinator = Coordinator(transport, GROUP, "g", patience_ms=1_000)
    return ClassicMember(coordinator, "range", session_ms=10_000, rebalance_ms=1_000, join_ms=60_000)


def test_a_member_joins_with_the_id_that_it_was_given_and_forgets_one_that_is_unknown() -> None:
    given = {"error_code": Code.member_id_required, "member_id": "m-1"}
    transport = Scripted(given, {"member_id": "m-1", "generation_id": 3}, error(Code.unknown_member_id))
    member = member_of(transport)
    with pytest.raises(KafkaError) as required:
        completed(member.join(b""))
    assert (required.value.code, member.member_id) == (Code.member_id_required, "m-1")
    assert completed(member.join(b"")).generation_id == 3
    with pytest.raises(KafkaError):
        completed(member.heartbeat(3, "m-1"))
    assert [request.entity.member_id for request in transport.asked] == ["", "m-1", "m-1"]
    assert member.member_id == ""


def test_an_assignment_without_a_response_is_not_asked_for_again() -> None:
    transport = Scripted(TimeoutError("late"))
    with pytest.raises(KafkaError) as late:
        completed(member_of(transport).sync(3, {"m-1": b"mine"}))
    assert late.value.code is Code.request_timed_out
    assert len(transport.asked) == 1


def test_a_fault_client_that_is_stopped_while_it_joins_leaves_under_the_id_that_it_has() -> None:
    given = {"error_code": Code.member_id_required, "member_id": "m-1"}
    transport, after = Scripted(given, StoppedError("stopped")), Scripted({"members": ()})
    member = ClassicFaultMember(Coordinator(transport, GROUP, "g"), "range", ())
    with pytest.raises(StoppedError):
        completed(member.join())
    completed(member.leave(Coordinator(after, GROUP, "g")))
    (left,) = after.asked
    assert [row.member_id for row in left.entity.members] == ["m-1"]
    assert member.member_id == "m-1", "its group is asked whether it still has this member"


def test_a_share_member_names_its_topics_again_after_a_lost_response() -> None:
    beat = {"error_code": Code.none, "member_epoch": 3, "assignment": None}
    transport = Scripted(beat, beat, ConnectionResetError("closed"), beat, beat)
    member = ShareMember(Coordinator(transport, GROUP, "g"), ["orders"], "m")
    for _ in range(4):
        completed(member.heartbeat())
    named = [request.entity.subscribed_topic_names for request in transport.asked]
    assert named == [("orders",), None, None, ("orders",), None]
