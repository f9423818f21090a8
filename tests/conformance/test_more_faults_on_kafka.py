"""Restarts in several steps, partitions and moved leaders on Apache Kafka, which needs no more than it has (J2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_kafka import MISSING
from harrow import (
    Harrow,
    crash_loop,
    disconnect,
    follower,
    half_open,
    halves,
    jump_clock,
    leader,
    move_leader,
    rolling_restart,
    throttle_cpu,
)
from harrow.faults.errors import CapabilityError
from harrow.harness.backends.apache.installation import find_kafka
from harrow.harness.backends.apache.kafka_cluster import KafkaCluster
from harrow.harness.backends.apache.source import KafkaClusters
from harrow.harness.backends.apache.system import SECURED, KafkaSystem
from harrow.harness.backends.kinds import KINDS
from kafka_reference import JARS
from load_on_cluster import produce_while_faults_last

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Harrow]:
    """A `Harrow` on Apache Kafka."""
    with Harrow(tmp_path / "run", seed=5, clusters=KafkaClusters(find_kafka(str(JARS)))) as harrow:
        yield harrow


def test_faults_of_several_steps_and_brokers_act_on_kafka(kafka: Harrow) -> None:
    orders = kafka.topic("orders", partitions=1)
    faults = (
        move_leader(orders, 0),
        disconnect(leader(orders, 0), follower(orders, 0), seconds=1),
        half_open(leader(orders, 0), peers="clients", seconds=3),
        halves(seconds=2),
        throttle_cpu(leader(orders, 0), share=0.5, seconds=1),
        crash_loop(leader(orders, 0), alive_s=(0.5, 1), seconds=1),
        rolling_restart(),
    )
    produce_while_faults_last(kafka, "orders", *faults)
    assert kafka.verify(orders, guarantee="no-loss").valid
    assert isinstance(kafka.cluster, KafkaCluster)
    assert KafkaSystem(kafka.cluster).capabilities == KINDS["apache"].capabilities() - SECURED
    with pytest.raises(CapabilityError, match=r"'clocks'.*'apache'"), kafka.chaos(jump_clock(leader(orders))):
        pass
