"""Apache Kafka's coordinator that was replaced, and does not know it, returns old committed offsets, as ours (L6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from apache_kafka import MISSING
from harrow import Harrow
from harrow.harness.backends.apache.installation import find_kafka
from harrow.harness.backends.apache.kafka_listeners import can_relay
from harrow.harness.backends.apache.source import KafkaClusters
from kafka_reference import JARS
from old_committed_offsets import repeat_outputs_from_an_old_offset

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.mark.skipif(not can_relay(), reason="this machine lacks 127.0.0.0/8")
def test_a_replaced_coordinator_of_apache_kafka_returns_an_old_offset(tmp_path: Path) -> None:
    kafka = KafkaClusters(find_kafka(str(JARS)))
    with Harrow(tmp_path / "run", seed=5, clusters=kafka) as harrow:
        repeat_outputs_from_an_old_offset(harrow, isolated_s=25)
