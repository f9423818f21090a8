"""Programs in Go, Node and Java under faults: correct ones are valid, and one that is not idempotent doubles (K8, L5).

They are built by `python tests/support/programs_in_other_languages.py`, which downloads their clients; else the tests
are skipped. Each sends numbered orders until SIGTERM, and says how many were acknowledged.
"""

from __future__ import annotations

import re

import pytest
from harrow import Harrow, Record, Topic, leader, lose_response, pause
from harrow.faults import Fault
from harrow.harness.errors import VerdictError
from harrow.harness.programs.user_program import Program
from programs_in_other_languages import NotBuiltError, built
from waiting import until

pytestmark = [pytest.mark.harrow(scope="session"), pytest.mark.xdist_group("other languages")]
CORRECT: dict[str, tuple[str, list[str], str]] = {
    "franz-go": ("go", ["franz"], "franz-orders"),
    "kafkajs": ("node", [], "kafkajs-orders"),
    "kafka-clients": ("java", [], "java-orders"),
}


def value_of(record: Record) -> str:
    assert record.value is not None
    return record.value.decode()


def started(harrow: Harrow, language: str, words: list[str], topic: Topic) -> Program:
    try:
        command = built(language)
    except NotBuiltError as error:
        pytest.skip(str(error))
    return harrow.program("orders", [*command, *words, "{bootstrap}", topic.name])


def sent_under(harrow: Harrow, language: str, words: list[str], topic: Topic, *faults: Fault) -> int:
    """Let a program send while the faults happen; return how many orders were acknowledged to it."""
    program = started(harrow, language, words, topic)
    with harrow.chaos(*faults) as chaos:
        until(lambda: not chaos.running, "the faults are healed", timeout_s=90)
    assert program.alive, program.control.last_words()
    assert program.stop(60) == 0, program.control.last_words()
    found = re.search(r"^acknowledged (\d+)$", program.output.read_text(), re.MULTILINE)
    assert found, program.control.last_words()
    return int(found[1])


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_producer_loses_doubles_and_swaps_nothing(harrow: Harrow, name: str) -> None:
    language, words, client = CORRECT[name]
    topic = harrow.topic("orders", partitions=1)
    # no kill of the broker that lost the response: one that starts again knows only the last batch of a producer, as
    # Kafka's does, so that a retry of a batch before it gets OUT_OF_ORDER_SEQUENCE_NUMBER
    lost = lose_response("Produce", nth=20, client=client)
    count = sent_under(harrow, language, words, topic, lost, pause(leader(topic), seconds=3))
    assert count > 20  # a client that waits for each response sends few beside faults
    verdict = harrow.verify(
        topic, guarantee="exactly-once, ordered", record_id=value_of, expected=[f"order {n}" for n in range(count)]
    )
    assert verdict.valid
    assert not verdict.anomaly_names()


def test_sarama_without_idempotence_doubles_what_it_sends_again(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    lost = lose_response("Produce", nth=20, client="sarama-orders")
    count = sent_under(harrow, "go", ["sarama"], topic, lost)
    with pytest.raises(VerdictError) as failed:
        harrow.verify(
            topic, guarantee="exactly-once", record_id=value_of, expected=[f"order {n}" for n in range(count)]
        )
    verdict = failed.value.verdict
    assert verdict.anomaly_names() == {"duplicate"}, str(verdict)
    causes = verdict.causes["duplicate"]
    assert any("lost" in cause and "sarama-orders" in cause for cause in causes), causes
