"""Public bugs of old clients in Go, Node and Java: Harrow finds each, and a version without it is valid (K8, L5).

The programs are built by `python tests/support/programs_in_other_languages.py`, which downloads the clients; else the
tests are skipped. Both versions run the same program under the same fault, which is armed before the program starts.

| bug | old | fixed | what the old version does |
| --- | --- | --- | --- |
| franz-go, issue 1217 | v1.20.6 | v1.21.2 | gives the sequence number of an order that it cancelled to the next order |
| KafkaJS, issue 1005 | 1.16.0 | 2.0.0 | gives concurrent orders the same sequence number |
| kafka-clients, KAFKA-13598 | 3.1.0 | 3.1.1 | is not idempotent by default, although the documentation says so |
| franz-go, commit de2dff52 | v1.20.6 | v1.21.2 | overlooks the error of an OffsetFetch, and reads nothing afterwards |

A broker takes a batch with the sequence number of an earlier one for that one sent again: it acknowledges the batch and
does not append it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from time import monotonic

import pytest
from harrow import Harrow, Record, Topic, delay_request, fail_response, lose_response, refuse_request
from harrow.faults import Fault
from harrow.harness import run_folder
from harrow.harness.clients.producer import Producer
from harrow.harness.errors import VerdictError
from harrow.harness.programs.user_program import Program
from programs_in_other_languages import NotBuiltError, built
from waiting import until

pytestmark = [pytest.mark.harrow(scope="session"), pytest.mark.xdist_group("other languages")]
ENOUGH = 30
"""Of orders that were acknowledged or read; each fault acts on one of the first requests."""
RECOVERS_WITHIN_S = 10
TAKEN_FOR_A_RETRY = "because the log had another batch under the same sequence"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerBug:
    """A bug of a producer, and what shows it."""

    program: str
    words: tuple[str, ...] = ()
    fault: Fault
    guarantee: str = "exactly-once"
    anomaly: str
    cause: str = ""


PRODUCER_BUGS = {
    "franz-go 1217": ProducerBug(
        program="known_bugs/go",
        words=("send",),
        guarantee="no-loss",
        anomaly="missing",
        cause=TAKEN_FOR_A_RETRY,
        fault=fail_response("Produce", "REQUEST_TIMED_OUT", nth=3, client="franz-orders"),
    ),
    "KafkaJS 1005": ProducerBug(
        program="known_bugs/node",
        anomaly="missing",
        cause=TAKEN_FOR_A_RETRY,
        fault=delay_request("Produce", nth=3, client="kafkajs-orders", delay_ms=500),
    ),
    "KAFKA-13598": ProducerBug(
        program="known_bugs/java", anomaly="duplicate", fault=lose_response("Produce", nth=3, client="java-orders")
    ),
}


def value_of(record: Record) -> str:
    assert record.value is not None
    return record.value.decode()


def made(harrow: Harrow, name: str, version: str, words: tuple[str, ...], topic: Topic) -> Program:
    """Return a program that is not started yet."""
    try:
        command = built(name, version)
    except NotBuiltError as error:
        pytest.skip(str(error))
    return harrow.program("orders", [*command, *words, "{bootstrap}", topic.name], start=False)


def send_one(producer: Producer, topic: Topic) -> None:
    producer.produce(topic.name, "an order of the test")
    assert producer.flush(30) == 0


def is_armed(harrow: Harrow) -> bool:
    path = harrow.folder / run_folder.FAULTS
    rows = path.read_text().splitlines() if path.exists() else []
    return any(json.loads(row)["event"] == "inject" for row in rows)


def printed(program: Program, word: str) -> list[str]:
    """Return the orders that the program printed after `acknowledged` or `read` so far."""
    return re.findall(rf"^{word} (.+)$", program.output.read_text(), re.MULTILINE)


def send_and_verify(harrow: Harrow, bug: ProducerBug, version: str) -> None:
    """Let the program send under the fault from its first order on, and demand all that was acknowledged to it."""
    topic, other = harrow.topic("orders", partitions=1), harrow.topic("other", partitions=1)
    program = made(harrow, bug.program, version, bug.words, topic)
    with harrow.chaos(bug.fault) as chaos:
        send_one(harrow.producer(), other)  # the fault waits for traffic
        until(lambda: is_armed(harrow), "the fault is armed")
        program.start()
        until(lambda: not chaos.running or not program.alive, "the fault is healed")
    enough = ENOUGH + len(printed(program, "acknowledged"))
    until(lambda: not program.alive or len(printed(program, "acknowledged")) > enough, "it sends on")
    assert program.stop(60) == 0, program.control.last_words()
    harrow.verify(topic, guarantee=bug.guarantee, record_id=value_of, expected=printed(program, "acknowledged"))


@pytest.mark.parametrize("name", PRODUCER_BUGS)
def test_a_producer_with_a_known_bug_loses_or_doubles(harrow: Harrow, name: str) -> None:
    bug = PRODUCER_BUGS[name]
    with pytest.raises(VerdictError) as failed:
        send_and_verify(harrow, bug, "old")
    verdict = failed.value.verdict
    assert bug.anomaly in verdict.anomaly_names(), str(verdict)
    assert bug.cause in " ".join(verdict.causes.get(bug.anomaly, ())), str(verdict)


@pytest.mark.parametrize("name", PRODUCER_BUGS)
def test_a_producer_without_the_bug_is_valid(harrow: Harrow, name: str) -> None:
    send_and_verify(harrow, PRODUCER_BUGS[name], "fixed")


def read_and_verify(harrow: Harrow, version: str) -> None:
    """Refuse the reader's first OffsetFetch, and send until it reads or stood still for longer than the bound."""
    topic = harrow.topic("orders", partitions=1)
    program = made(harrow, "known_bugs/go", version, ("read",), topic)
    producer = harrow.producer()
    refused = refuse_request("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", client="franz-reader")
    with harrow.chaos(refused) as chaos:
        send_one(producer, topic)
        until(lambda: is_armed(harrow), "the fault is armed")
        program.start()
        until(lambda: not chaos.running or not program.alive, "the fault is healed")
    deadline = monotonic() + 1.5 * RECOVERS_WITHIN_S

    def reads_or_is_stalled() -> bool:
        send_one(producer, topic)
        return len(printed(program, "read")) > ENOUGH or monotonic() > deadline

    until(reads_or_is_stalled, "it reads, or stood still")
    assert program.alive, program.control.last_words()
    assert program.stop(60) == 0, program.control.last_words()
    harrow.verify(topic, guarantee="exactly-once", recovers_within=RECOVERS_WITHIN_S)


def test_a_reader_that_overlooks_the_error_of_its_offset_fetch_is_stalled(harrow: Harrow) -> None:
    with pytest.raises(VerdictError) as failed:
        read_and_verify(harrow, "old")
    verdict = failed.value.verdict
    assert verdict.anomaly_names() == {"stalled"}, str(verdict)


def test_a_reader_that_looks_at_the_error_of_its_offset_fetch_is_valid(harrow: Harrow) -> None:
    read_and_verify(harrow, "fixed")
