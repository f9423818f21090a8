"""`harrow topics`, `groups`, `offsets` and `watch` on a bootstrap address, for a person and for a script (N1)."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from commands_here import run_here
from harrow import Harrow, Topic
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.messages import milliseconds
from long_runs import long_run
from raw_kafka import RawKafka
from raw_transactions import coordinator_of
from share_consumers import ShareConsumer
from streams_group_requests import subtopology
from waiting import readable, until

COMMAND = [str(Path(sys.executable).parent / "harrow")]
NOTHING_LISTENS = "127.0.0.1:1"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


def rows(*arguments: str) -> list[dict[str, Any]]:
    """The JSON list that a command prints."""
    ran = run(*arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    read: list[dict[str, Any]] = json.loads(ran.stdout)
    return read


@pytest.fixture
def orders(harrow: Harrow) -> Topic:
    """A topic with 30 records, of which the group `billing` has committed 10."""
    topic = harrow.topic("orders")
    producer = harrow.producer()
    for number in range(30):
        producer.produce(topic.name, f"order {number}")
    producer.flush(30)
    consumer = harrow.consumer(group_id="billing", client_id="bill-1")
    consumer.subscribe([topic.name])
    taken = 0
    while taken < 10:
        taken += len(consumer.consume(10 - taken, 1.0))
    consumer.commit(asynchronous=False)
    return topic


def test_groups_and_offsets_show_members_committed_offsets_and_lag(harrow: Harrow, orders: Topic) -> None:
    servers = harrow.bootstrap_servers
    (group,) = rows("groups", servers)
    assert (group["group"], group["state"]) == ("billing", "stable")
    (member,) = group["members"]
    assert member["client_id"] == "bill-1"
    assert member["partitions"] == [{"topic": "orders", "partition": 0}]
    assert rows("offsets", servers, "--group", "billing") == [
        {
            "topic": "orders",
            "partition": 0,
            "log_start_offset": 0,
            "high_watermark": 30,
            "leader_epoch": 0,
            "committed": 10,
            "lag": 20,
        }
    ]
    assert {row["topic"] for row in rows("topics", servers)} >= {"orders", "__consumer_offsets"}
    for name in ("groups", "offsets", "topics"):
        assert "orders" in run(name, servers).stdout


@long_run
def test_groups_show_streams_groups_with_the_tasks_of_their_members(harrow: Harrow, orders: Topic) -> None:
    servers = harrow.bootstrap_servers
    ports = {node: broker.port for node, broker in harrow.cluster.brokers.items()}
    asked: dict[str, Any] = {"group_id": "app", "member_id": "m", "topology": None, "client_tags": None}
    asked |= {"endpoint_information_epoch": 0, "rebalance_timeout": milliseconds(-1), "task_offsets": None}
    asked |= {"task_end_offsets": None, "active_tasks": (), "standby_tasks": (), "warmup_tasks": ()}
    joins: dict[str, Any] = {
        "topology": {"epoch": 0, "subtopologies": (subtopology("0", orders.name),)},
        "process_id": "p",
    }
    joins |= {"client_tags": (), "rebalance_timeout": milliseconds(60_000)}
    with ExitStack() as links:
        any_broker = links.enter_context(RawKafka(min(ports.values())))
        home = coordinator_of(any_broker, "app", kind=0)
        link = links.enter_context(RawKafka(ports[home], client_id="app-1"))

        def beat(epoch: int, **more: Any) -> Any:
            return link.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, **{**asked, "member_epoch": epoch, **more})

        until(lambda: beat(0, **joins).error_code is ErrorCode.none, "the member has joined")
        until(lambda: beat(1).active_tasks, "the delay of the first rebalance is over")
    app, billing = rows("groups", servers)
    assert billing["group"] == "billing"
    assert (app["group"], app["state"], app["coordinator"]) == ("app", "stable", home)
    (member,) = app["members"]
    assert (member["member_id"], member["client_id"], member["partitions"]) == ("m", "app-1", [])
    assert member["tasks"] == [{"subtopology": "0", "partition": 0}]
    assert rows("groups", servers, "app") == [app]
    assert "0_0" in run("groups", servers, "app").stdout


def test_groups_show_share_groups_with_the_start_offset_and_the_lag_of_their_partitions(
    harrow: Harrow, orders: Topic
) -> None:
    servers = harrow.bootstrap_servers

    def shown() -> tuple[Any, Any]:
        (share,) = rows("groups", servers, "workers")
        ((place,), members) = share.pop("share_partitions"), share.pop("members")
        coordinator = share.pop("coordinator")
        assert coordinator in harrow.cluster.brokers
        assert (place.pop("topic"), place.pop("partition")) == ("orders", 0)
        assert share == {"group": "workers", "state": "stable" if members else "empty", "assignor": "simple"}
        return place, members

    with ShareConsumer(servers, "workers", "orders", "share-1") as worker:
        until(lambda: (worker.poll(), worker.assigned)[1], "an assignment")
        nothing, (member,) = shown()
        assert nothing == {"start_offset": None, "lag": None}, "nothing is acknowledged"
        assert (member["client_id"], member["partitions"]) == ("share-1", [{"topic": "orders", "partition": 0}])
        producer = harrow.producer()

        def produced() -> list[Any]:
            producer.produce("orders", "more")
            producer.flush(30)
            return worker.poll()

        first, *_ = until(produced, "a record")
        (accepted,) = worker.acknowledge([first])
        assert accepted.error == 0
        lag = rows("offsets", servers)[0]["high_watermark"] - first.offset - 1
        # the start offset is stored before it moves over what is accepted, as in Kafka; the lag counts that
        assert shown()[0] == {"start_offset": first.offset, "lag": lag}
        assert re.search(rf"orders +│ +0 +│ +{first.offset} +│ +{lag} ", run("groups", servers).stdout)
    until(lambda: shown()[1] == [], "the member has left")
    assert {row["group"] for row in rows("groups", servers)} == {"billing", "workers"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("groups", "bilings"), "no group 'bilings'; the cluster has: billing"),
        (("offsets", "--group", "bilings"), "group 'bilings' has committed no offset"),
        (("offsets", "--topic", "order"), "no topic 'order'; the cluster has: orders"),
    ],
    ids=["group", "offsets of a group", "topic"],
)
def test_a_name_that_does_not_exist_is_an_error_with_those_that_do(
    harrow: Harrow, orders: Topic, arguments: tuple[str, ...], words: str
) -> None:
    name, *rest = arguments
    ran = run_here(name, harrow.bootstrap_servers, *rest)
    assert ran.returncode == 1
    assert words in ran.stderr


@pytest.mark.parametrize("name", ["topics", "groups", "offsets", "watch"])
def test_an_address_where_nothing_listens_is_an_error_of_one_line(name: str) -> None:
    ran = run_here(name, NOTHING_LISTENS, "--timeout", "0.5")
    assert ran.returncode == 1
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"Error: {NOTHING_LISTENS} does not respond: ")


def test_watch_prints_a_line_when_a_leader_moves(harrow: Harrow, orders: Topic) -> None:
    leader = harrow.cluster.leader("orders", 0)
    assert leader is not None
    watching = subprocess.Popen(
        [*COMMAND, "watch", harrow.bootstrap_servers, "--interval", "0.1"], stdout=subprocess.PIPE, text=True
    )
    assert watching.stdout is not None
    try:
        first = watching.stdout.readline()
        assert re.search(rf"orders-0: leader {leader}, epoch 0, ISR \[1,2,3\], HW 30$", first)
        harrow.cluster.brokers[leader].kill()
        line = ""
        while f"leader {leader} -> " not in line:
            line = watching.stdout.readline()
            assert line
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
    finally:
        watching.kill()
        watching.wait()
        watching.stdout.close()


def test_watch_prints_json_lines_for_scripts(harrow: Harrow, orders: Topic) -> None:
    ran = run("watch", harrow.bootstrap_servers, "--seconds", "0.5", "--interval", "0.1", "--json")
    assert ran.returncode == 0
    first = json.loads(ran.stdout.splitlines()[0])
    assert (first["topic"], first["partition"], first["high_watermark"]) == ("orders", 0, 30)
    assert first["isr"] == [1, 2, 3]


def test_watch_draws_a_table_on_a_terminal_and_ends_at_ctrl_c(harrow: Harrow, orders: Topic) -> None:
    ours, theirs = pty.openpty()
    watching = subprocess.Popen(
        [*COMMAND, "watch", harrow.bootstrap_servers],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    shown = bytearray()

    def table() -> bool:
        if readable(ours, 0.1):
            shown.extend(os.read(ours, 65536))
        return b"orders-0" in shown and b"high watermark" in shown

    try:
        until(table, lambda: shown.decode(errors="replace"))
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
    finally:
        watching.kill()
        watching.wait()
        os.close(ours)


@pytest.mark.parametrize(
    "arguments", [("--set", "no.such.setting=1"), ("--plant", "json"), ("--data", "/dev/null/x")], ids=" ".join
)
def test_a_refused_harrow_up_prints_its_error_and_nothing_else(arguments: tuple[str, ...]) -> None:
    ran = run("up", *arguments)  # waits for the end of the fork server, too: it holds stderr
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("harrow: ")
