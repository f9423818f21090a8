"""The decoder of Produce responses against kio's codec, for every version (A4, J6)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from harrow.cluster.errors import WireError
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.produce_response import decode_produce_response
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio_entities import entities, kio_bytes


@pytest.mark.parametrize("version", range(3, 14))
def test_partitions_errors_and_base_offsets_are_kios(version: int) -> None:
    @settings(max_examples=25, suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large))
    @given(entities(messages.response_type(ApiKey.PRODUCE, version)), st.integers(0, 400))
    def check(entity: Any, cut_at: int) -> None:
        frame = b"head" + kio_bytes(entity)
        found = decode_produce_response(version, frame, 4)
        expected = [
            (row.index, int(row.error_code), row.base_offset)
            for topic in entity.responses
            for row in topic.partition_responses
        ]
        assert [(row.partition, row.error, row.base_offset) for row in found] == expected
        with contextlib.suppress(WireError):
            decode_produce_response(version, frame[: 4 + cut_at], 4)

    check()
