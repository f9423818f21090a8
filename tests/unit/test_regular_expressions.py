"""Expressions that RE2 reads and RE2/J, which Apache Kafka has, does not."""

from __future__ import annotations

import pytest
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.regular_expressions import compile_regex


@pytest.mark.parametrize("regex", [r"\C", r"[\C]", r"\\\C", r"a\Qb\E\C", r"\Qa\\E\C"])
def test_a_single_byte_is_no_valid_escape_sequence(regex: str) -> None:
    with pytest.raises(KafkaError, match="Regex") as refused:
        compile_regex(regex, "Regex")
    assert refused.value.code is ErrorCode.invalid_regular_expression


@pytest.mark.parametrize(("regex", "text"), [(r"a\\C", r"a\C"), (r"\Q\C\E", r"\C"), (r"\Q\C", r"\C"), ("C", "C")])
def test_the_same_characters_may_stand_for_themselves(regex: str, text: str) -> None:
    assert compile_regex(regex, "Regex").fullmatch(text)
