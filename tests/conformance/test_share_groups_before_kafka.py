"""Share groups on Apache Kafka, judged from what passes the proxy (KIP-932, J2, J6)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from apache_kafka import MISSING
from kafka_reference import JARS

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")

SERVICE = """
    import json
    import pytest
    from confluent_kafka import Producer
    from harrow import Harrow, VerdictError, isolate, kill, leader, pause, stuck_share_consumer
    from harrow.harness.requests.share_member import ACCEPT, REJECT, RELEASE
    from share_consumers import ShareConsumer
    from waiting import until

    def send(servers, numbers):
        producer = Producer({"bootstrap.servers": servers})
        for number in numbers:
            producer.produce("orders", f"order {number}", partition=number % 2)
        assert producer.flush(60) == 0

    def joined(consumer):
        until(lambda: consumer.poll() is not None and len(consumer._member.assigned) == 2, "an assignment")

    def test_a_group_that_consumes_everything(harrow: Harrow):
        orders = harrow.topic("orders", partitions=2)
        with ShareConsumer(harrow.bootstrap_servers, "workers", "orders") as worker:
            joined(worker)
            worker.poll()
            send(harrow.bootstrap_servers, range(60))
            got, over = [], set()

            def consumed():
                found = worker.poll()
                got.extend(found)
                for place, record in enumerate(found):
                    released = record.deliveries == 1 and place % 3 == 0
                    kind = RELEASE if released else (ACCEPT, REJECT)[place % 2]
                    (result,) = worker.acknowledge([record], kind)
                    assert result.error == 0, result
                    if kind != RELEASE:
                        over.add((record.tp, record.offset))
                return len(over) == 60

            until(consumed, "every record")
            assert {record.deliveries for record in got} >= {1, 2}
        verdict = harrow.verify(orders, guarantee="at-least-once, at-most-once", consumed_by="workers")
        assert not verdict.anomalies

    def test_a_group_whose_member_dies_with_records(harrow: Harrow):
        orders = harrow.topic("orders", partitions=2)
        worker = ShareConsumer(harrow.bootstrap_servers, "workers", "orders")
        joined(worker)
        worker.poll()
        send(harrow.bootstrap_servers, range(20))
        held = []
        until(lambda: held.extend(worker.poll()) or len(held) == 20, "all records")
        worker.acknowledge([record for record in held if record.offset == 0])
        worker.die()
        with pytest.raises(VerdictError) as failure:
            harrow.verify(orders, guarantee="at-least-once", consumed_by="workers")
        assert failure.value.verdict.anomaly_counts == {"stuck-in-flight": 18}
        with ShareConsumer(harrow.bootstrap_servers, "workers", "orders") as other:
            again = []

            def consumed():
                found = other.poll()
                again.extend(found)
                assert all(result.error == 0 for result in other.acknowledge(found))
                return len(again) == 18

            until(consumed, "what the dead member held")
        assert not any(record.offset == 0 for record in again)
        harrow.verify(orders, guarantee="at-least-once, at-most-once", consumed_by="workers")

    def test_a_member_of_harrows_holds_records_and_dies(harrow: Harrow):
        orders = harrow.topic("orders", partitions=2)
        with ShareConsumer(harrow.bootstrap_servers, "workers", "orders") as worker:
            joined(worker)
            worker.poll()
            number, over = 0, set()

            def work():
                found = worker.poll()
                over.update((r.record.tp, r.record.offset) for r in worker.acknowledge(found) if not r.error)

            with harrow.chaos(stuck_share_consumer("workers", seconds=2)) as chaos:
                while chaos.running:
                    send(harrow.bootstrap_servers, range(number, number + 10))
                    number += 10
                    work()
            rows = [json.loads(line) for line in (harrow.folder / "faults.jsonl").read_text().splitlines()]
            healed = next(row for row in rows if row["event"] == "healed")
            assert sum(healed["evidence"]["held"].values()) > 0 and healed["evidence"]["left"]
            until(lambda: work() or len(over) == number, "every record, also those that were held")
        harrow.verify(orders, guarantee="at-least-once, at-most-once", consumed_by="workers")

    @pytest.mark.parametrize("wrong", [True, False], ids=["releases poison", "rejects poison"])
    def test_a_record_that_no_worker_can_process(harrow: Harrow, wrong: bool):
        orders = harrow.topic("orders", partitions=2)
        with ShareConsumer(harrow.bootstrap_servers, "workers", "orders") as worker:
            joined(worker)
            worker.poll()
            send(harrow.bootstrap_servers, range(20))
            deliveries, over = [], set()

            def work():
                for record in worker.poll():
                    poison = record.value == b"order 7"
                    deliveries.extend([record.deliveries] if poison else [])
                    kind = ACCEPT if not poison else RELEASE if wrong else REJECT
                    (result,) = worker.acknowledge([record], kind)
                    over.update([] if kind == RELEASE or result.error else [(record.tp, record.offset)])
                return len(over) == 20 or len(over) == 19 and deliveries[-1:] == [5]

            until(work, "every record")
        if wrong:
            with pytest.raises(VerdictError) as failure:
                harrow.verify(orders, guarantee="at-least-once", consumed_by="workers")
            assert failure.value.verdict.anomaly_counts == {"given-up": 1}
            assert deliveries == [1, 2, 3, 4, 5]
        else:
            harrow.verify(orders, guarantee="at-least-once", consumed_by="workers")

    @pytest.mark.parametrize("fault", [kill, pause, isolate], ids=["kill", "pause", "isolate"])
    def test_no_fault_of_a_leader_is_an_anomaly(harrow: Harrow, fault):
        orders = harrow.topic("orders", partitions=2)
        consumers = [ShareConsumer(harrow.bootstrap_servers, "workers", "orders", f"w{n}") for n in range(2)]
        number, over = 0, set()

        def work():
            nonlocal number
            send(harrow.bootstrap_servers, range(number, number + 10))
            number += 10
            return consume()

        def consume():
            for consumer in consumers:
                for result in consumer.acknowledge(consumer.poll()):
                    if result.error not in (121, 122, 123):  # else it may be stored, whatever the error
                        over.add(result.record.value)
            return {int(value.split()[1]) % 2 for value in over} == {0, 1}

        until(work, "the group has begun in both partitions")
        begun = number
        with harrow.chaos(fault(leader(orders, 0), seconds=3)) as chaos:
            while chaos.running:
                work()
        wanted = {b"order %d" % each for each in range(begun, number)}
        until(lambda: consume() and wanted <= over, "every record", timeout_s=90)
        for consumer in consumers:
            consumer.__exit__(None, None, None)
        harrow.verify(orders, guarantee="at-least-once, at-most-once", consumed_by="workers")
"""


def test_share_groups_of_apache_kafka_are_judged(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(SERVICE)
    support = Path(__file__).parents[1] / "support"
    monkeypatch.setenv("PYTHONPATH", f"{support}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    options = ["--harrow-backend=apache", f"--harrow-kafka={JARS}", "--harrow-engine=inline"]
    result = pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:cacheprovider", *options)
    result.assert_outcomes(passed=8)
