"""The arguments of `verify_pipeline` about retry topics and dead letters, and the headers of their records (L5)."""

from __future__ import annotations

from typing import Any

import pytest
from harrow import folded
from harrow.cluster.errors import ConfigError
from harrow.harness.promises.pipeline_promise import PipelinePromise, guarantee_of
from harrow.harness.promises.retries import RetryPromise, number_of, reason_of


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"attempts": 0}, "attempts=0"),
        ({"attempts": True}, "at least 1"),
        ({"attempts": "5"}, "attempts='5'"),
        ({"attempts": 5, "retry_topics": ()}, "needs retry_topics= or dead_letters="),
        ({"dead_letters": ["dead"]}, "expected one topic"),
        ({"dead_letters": ""}, "expected one topic"),
        ({"retry_topics": ["a", "a"]}, "twice"),
        ({"retry_topics": [1]}, "expected topics"),
        ({"retry_topics": 7}, "expected topics"),
        ({"attempts_header": "", "retry_topics": "a"}, "name of a header"),
        ({"due_header": "due"}, "needs retry_topics="),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RetryPromise.of(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dead_letters": "orders"}, "orders is the source"),
        ({"dead_letters": "bills"}, "bills is the sink"),
        ({"retry_topics": "bills"}, "bills is the sink"),
        ({"retry_topics": ("r", "d"), "dead_letters": "d"}, "in retry_topics=, too"),
    ],
)
def test_a_topic_has_one_role(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        promise(RetryPromise.of(**given))


def promise(retry: RetryPromise, **more: Any) -> PipelinePromise:
    given = {"guarantee": None, "record_id": "order", "relation": None, "group": None}
    return PipelinePromise.of("orders", "bills", retry=retry, **{**given, **more})


def test_dead_letters_need_a_record_id_and_a_relation_of_single_records() -> None:
    dead = RetryPromise.of(dead_letters="dead")
    assert promise(dead).topics == ["orders", "bills", "dead"]
    with pytest.raises(ConfigError, match="needs record_id="):
        promise(dead, record_id=None, relation="identity")
    with pytest.raises(ConfigError, match="relation of single records"):
        promise(dead, relation=folded(lambda state, _: state, 0))


def test_an_order_key_adds_ordered_to_the_default_guarantee_only() -> None:
    assert guarantee_of(None, None) == "at-least-once"
    assert guarantee_of(None, "customer") == "at-least-once,ordered"
    assert guarantee_of("exactly-once, ordered", "customer") == "exactly-once, ordered"
    with pytest.raises(ConfigError, match="'exactly-once,ordered'"):
        guarantee_of("exactly-once", "customer")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (b"3", 3),
        (b"1732586400000", 1732586400000),
        (b"\x03", 3),
        ((3).to_bytes(4, "big"), 3),
        ((1732586400000).to_bytes(8, "big"), 1732586400000),
        ((1732586400000).to_bytes(6, "big"), 1732586400000),
        (b"-1", -1),
        (b"\xff", -1),
        (b"", None),
        (None, None),
        (b"soon, or later", None),
        (b"9" * 30, None),
    ],
)
def test_numbers_in_headers_are_text_or_big_endian(value: bytes | None, number: int | None) -> None:
    assert number_of([("other", b"9"), ("n", b"8"), ("n", value)], "n") == number
    assert number_of([], "n") is None


def test_a_reason_is_a_text_in_a_known_header() -> None:
    assert reason_of([("kafka_exception-message", b"no such customer")]) == b"no such customer"
    assert reason_of([("kafka_dlt-exception-message", b"late")]) == b"late"
    assert not reason_of([("kafka_exception-message", b"  "), ("other", b"x")])
    assert not reason_of([])
