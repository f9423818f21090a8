"""A test of a store beside a real Kafka, for the backends that run Kafka."""

from __future__ import annotations

from echo_service import EchoService
from harrow import Harrow, dependency, isolate, leader, pause, reset
from load_on_cluster import produce_while_faults_last
from store_client import asking


def faults_of_a_store_act_beside_those_of_kafka(kafka: Harrow) -> None:
    """Breaks the links of a store and pauses a leader in one schedule; the store's client and the topic show both."""
    orders, service = kafka.topic("stored-orders", partitions=1), EchoService()
    faults = (
        isolate(dependency("store"), seconds=0.2, heals_by="reset"),
        reset(dependency("store")),
        pause(leader(orders, 0), seconds=0.5),
    )
    with asking(kafka.dependency("store", str(service.address))) as client:
        produce_while_faults_last(kafka, orders.name, *faults)
        client.await_answer()
    service.close()
    assert client.errors == ["ConnectionResetError"] * 2
    assert kafka.verify(orders, guarantee="no-loss").valid
