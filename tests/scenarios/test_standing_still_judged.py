"""A client without progress is named by the verdict; a cluster that cannot serve is not the client's fault (L4)."""

from __future__ import annotations

import time

import pytest
from harrow import Harrow, Topic, Verdict, VerdictError, kill, leader, pause
from harrow.cluster.errors import ConfigError
from harrow.harness.clients import Consumer, Producer

WITHIN_S = 2.0
SILENT_S = 4.0


class Traffic:
    """A shop that sends, and a worker of a group that reads what it sent."""

    def __init__(self, harrow: Harrow, topic: Topic) -> None:
        self.topic = topic
        self.sent = 0
        self.read = 0
        self.shop: Producer = harrow.producer(client_id="shop")
        self.worker: Consumer = harrow.consumer(group_id="billing", client_id="worker", auto_offset_reset="earliest")
        self.worker.subscribe([topic.name])

    def step(self) -> None:
        """Send a record, and read for a moment."""
        self.shop.produce(self.topic.name, f"order {self.sent}")
        self.sent += 1
        self.shop.poll(0)
        message = self.worker.poll(0.02)
        self.read += message is not None and message.error() is None

    def step_until_read(self, count: int) -> None:
        """Go on until the worker has read so many records."""
        deadline = time.monotonic() + 60
        while self.read < count:
            assert time.monotonic() < deadline, f"{self.read} of {count} records were read"
            self.step()

    def close(self) -> None:
        """End both."""
        self.shop.flush()
        self.worker.close()


def judge(harrow: Harrow, topic: Topic, within: float | None) -> Verdict:
    try:
        return harrow.verify(topic, recovers_within=within)
    except VerdictError as error:
        return error.verdict


def test_a_worker_that_reads_nothing_after_a_fault_is_named(harrow: Harrow) -> None:
    orders = harrow.topic("orders")
    traffic = Traffic(harrow, orders)
    traffic.step_until_read(20)
    with harrow.chaos(kill(leader(orders), seconds=0.5)) as chaos:
        while chaos.running:
            traffic.step()
            if chaos.effects:
                traffic.worker.pause(traffic.worker.assignment())
    read, since_s = traffic.read, time.monotonic()
    while time.monotonic() < since_s + SILENT_S:
        # a coordinator that died with the leader lets the group join again, and a new assignment is not paused
        traffic.worker.pause(traffic.worker.assignment())
        traffic.step()
        if traffic.read != read:
            read, since_s = traffic.read, time.monotonic()
    traffic.worker.resume(traffic.worker.assignment())
    traffic.step_until_read(traffic.read + 20)
    traffic.close()
    verdict = judge(harrow, orders, WITHIN_S)
    assert verdict.anomaly_names() == {"stalled"}, verdict
    text = str(verdict)
    assert "recovery within 2 s does not hold" in text
    assert "group billing made no progress for" in text
    assert "the records with offsets" in text
    row = next(row for row in verdict.progress if row["kind"] == "group")
    assert row["stalled_s"] > WITHIN_S
    assert row["recovered_s"] is not None
    assert row["recovered_s"] > WITHIN_S
    assert Verdict.from_json(verdict.to_json()).progress == verdict.progress
    assert judge(harrow, orders, None).valid


def test_a_cluster_that_cannot_serve_is_not_blamed_on_its_clients(harrow: Harrow) -> None:
    """The only replica of the topic is on a paused broker: nothing can be sent or read."""
    orders = harrow.topic("orders", replication_factor=1)
    traffic = Traffic(harrow, orders)
    traffic.step_until_read(20)
    with harrow.chaos(pause(leader(orders), seconds=SILENT_S), recovers_within=10) as chaos:
        while chaos.running:
            traffic.step()
    traffic.step_until_read(traffic.read + 20)
    traffic.close()
    verdict = judge(harrow, orders, None)
    assert verdict.valid, verdict
    assert "recovery within 10 s" in verdict.guarantees
    row = next(row for row in verdict.progress if row["kind"] == "producer")
    assert row["cluster_could_not_serve_s"] > SILENT_S - 1
    assert "the cluster could not serve it for" in str(verdict)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0, " of seconds above 0"),
        (-1, " of seconds above 0"),
        (float("nan"), ".*must be finite"),
        (float("inf"), ".*must be finite"),
        (True, " or None"),
        ("5", ".*write recovers_within=5"),
    ],
)
def test_a_bound_that_is_no_number_of_seconds_is_refused(harrow: Harrow, given: float, words: str) -> None:
    expected = rf"recovers_within=.*\): expected a number{words}"
    for function, call in (
        ("chaos", lambda: harrow.chaos(pause(leader("orders")), recovers_within=given)),
        ("verify", lambda: harrow.verify("orders", recovers_within=given)),
        ("verify_pipeline", lambda: harrow.verify_pipeline("orders", "bills", recovers_within=given)),
    ):
        with pytest.raises(ConfigError, match=rf"^{function}\({expected}"):
            call()
