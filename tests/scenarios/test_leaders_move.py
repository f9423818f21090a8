"""Moving leaders and replicas under load loses, duplicates and reorders nothing (C9, D4, K7)."""

from __future__ import annotations

import contextlib
import threading

from harrow import Harrow, kill, leader
from harrow.harness.running_cluster import RunningCluster
from kafka.errors import KafkaError
from kafka.structs import TopicPartition
from kafka_python_admin import SOCKETS, admin_of
from load_on_cluster import Load
from waiting import until

pytestmark = SOCKETS

NOT_NOW = (KafkaError, RuntimeError)
"""Errors of a dead broker, and kafka-python's error for a cluster without a controller."""


def keep_moving(cluster: RunningCluster, topic: str, stop: threading.Event) -> None:
    """Gives partition 0 other replicas and another leader, again and again, until `stop` is set."""
    turn = 0
    while not stop.wait(0.2):
        # kafka-python never leaves the controller that it found first, so each error ends the client.
        with contextlib.suppress(*NOT_NOW), admin_of(cluster) as admin:
            while not stop.wait(0.2):
                if admin.list_partition_reassignments():
                    continue  # on a busy machine a changing target is never reached
                turn += 1
                target = [turn % 3 + 1, (turn + 1) % 3 + 1]
                admin.alter_partition_reassignments({TopicPartition(topic, 0): target})
                admin.elect_leaders(0, {topic: [0, 1]}, raise_errors=False)


def no_move_left(cluster: RunningCluster) -> bool:
    with admin_of(cluster) as admin:
        return not admin.list_partition_reassignments()


def test_elections_and_reassignments_under_load_lose_nothing(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=2, replication_factor=2)
    cluster, stop = harrow.cluster, threading.Event()
    mover = threading.Thread(target=keep_moving, args=(cluster, orders.name, stop), daemon=True)
    try:
        with harrow.chaos(kill(leader("orders", 1))), Load(cluster, orders.name, partitions=2) as load:
            mover.start()
            load.more(1_500)
            until(lambda: cluster.describe().topics[orders.name][0].leader_epoch > 5)
    finally:
        stop.set()
    mover.join(60)
    assert not mover.is_alive()
    until(lambda: no_move_left(cluster), amid=NOT_NOW)
    cluster.await_converged()
    load.exactly_once()
    harrow.verify(orders, guarantee="exactly-once,ordered")
