"""A cooperative group of confluent-kafka moves to the consumer protocol and back, as on Apache Kafka (G1, G2)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from group_readers import Readers, move_to_the_new_protocol_and_back
from long_runs import long_run

PARTITIONS = 10
STEP_S = 10.0
"""Two heartbeats of the consumer protocol, which Kafka allows every 5 s."""


@long_run
def test_each_step_of_a_group_to_the_consumer_protocol_and_back_takes_10_seconds_at_most(kafka: Any) -> None:
    controller = kafka.raw(kafka.raw().metadata().controller_id)
    nodes = sorted(kafka.ports)
    created = controller.create_topic("moved", assignment=[nodes[:1]] * PARTITIONS)
    assert created.error_code == 0, created
    servers = ",".join(f"127.0.0.1:{port}" for port in kafka.ports.values())
    with ExitStack() as exits:
        readers = Readers(servers, exits)
        steps = move_to_the_new_protocol_and_back(readers, "moved", PARTITIONS, step_s=STEP_S)
    for name, seconds in steps:
        print(f"{kafka.name}: {name}: {seconds:.1f} s")
    assert max(seconds for _, seconds in steps) <= STEP_S
