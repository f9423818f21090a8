"""Leaders and replicas moved on purpose under load lose, double and reorder nothing (C9, D4, K7)."""

from __future__ import annotations

import threading
from typing import Any

from harrow import Harrow, kill, leader
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.structs import TopicPartition
from load_on_cluster import SOCKETS, Load, close
from waiting import until

pytestmark = SOCKETS

NOT_NOW = (KafkaError, RuntimeError)
"""A dead broker; kafka-python's word for a cluster without a controller."""


def test_elections_and_reassignments_between_faults(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=2, replication_factor=2)
    admin: Any = KafkaAdminClient(bootstrap_servers=harrow.bootstrap_servers)
    stop = threading.Event()

    def move() -> None:
        turn = 0
        while not stop.wait(0.2):
            turn += 1
            target = [turn % 3 + 1, (turn + 1) % 3 + 1]
            try:
                if admin.list_partition_reassignments():
                    continue  # a target that changes before it is reached is never reached on a busy machine
                admin.alter_partition_reassignments({TopicPartition(orders.name, 0): target})
                admin.elect_leaders(0, {orders.name: [0, 1]}, raise_errors=False)
            except NOT_NOW:
                continue  # a dead broker or controller: the next turn asks again

    def has_moved() -> bool:
        return harrow.cluster.describe().topics[orders.name][0].leader_epoch > 5

    mover = threading.Thread(target=move, daemon=True)
    with (
        harrow.chaos(kill(leader("orders", 1))),
        Load(harrow.cluster, orders.name, partitions=2) as load,
    ):
        mover.start()
        load.more(1_500)
        until(has_moved)
        stop.set()
        mover.join(30)
    cluster = harrow.cluster
    until(lambda: not admin.list_partition_reassignments(), amid=NOT_NOW)
    close(admin)
    cluster.await_converged()
    load.exactly_once()
    harrow.verify(orders, guarantee="exactly-once,ordered")
