"""The recording clients of aiokafka, on real brokers under faults, and their event loops (J6)."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, ProducerClosed
from harrow import Harrow, Topic, leader, lose_response, pause, refuse_request
from harrow.harness.clients.aiokafka_producer import RecordingAIOKafkaProducer
from harrow.harness.histories.format import stable_hash
from harrow.harness.run_settings import RunSettings
from recorded_sends import RecordedSend, contents_of, judged, reads_of, rows_of, sends_of

pytestmark = pytest.mark.harrow(scope="session", config={"auto.create.topics.enable": False})
CANCELLED = -151
DEADLINE_S = 60


async def reported(topic: Topic, futures: list[Any]) -> list[RecordedSend]:
    """What the library reports of each send."""
    sends: list[RecordedSend] = []
    for future in futures:
        try:
            sent = await asyncio.wait_for(future, DEADLINE_S)
        except KafkaTimeoutError:
            sends.append(RecordedSend(topic.name, "info", -1, -1, -192))
        except KafkaError as error:
            sends.append(RecordedSend(topic.name, "info", -1, -1, getattr(error, "errno", -196)))
        else:
            sends.append(RecordedSend(topic.name, "ok", sent.partition, sent.offset, 0))
    return sends


def to_json(order: Any) -> bytes:
    return json.dumps(order).encode()


@pytest.mark.parametrize("acks", [1, "all"])
def test_each_send_has_the_result_that_aiokafka_reports(harrow: Harrow, acks: int | str) -> None:
    topic = harrow.topic(f"acks-{acks}", partitions=3)

    async def application() -> tuple[str, list[RecordedSend]]:
        async with harrow.aiokafka.producer(acks=acks, linger_ms=5) as producer:
            futures = [
                await producer.send(topic.name, b"value %d" % n, key=b"%d" % (n % 4), headers=[("h", b"%d" % n)])
                for n in range(60)
            ]
            return producer.recorder.name, await reported(topic, futures)

    name, wanted = asyncio.run(application())
    assert sends_of(harrow, name) == wanted
    assert Counter(send.outcome for send in wanted) == {"ok": 60}
    assert contents_of(harrow, name) == [b"value %d" % n for n in range(60)]
    verdict = judged(harrow, topic)
    assert verdict.valid, verdict
    assert verdict.guarantees == (("exactly-once", "ordered") if acks == "all" else ("best-effort",))
    assert verdict.operation_counts["acknowledged"] == verdict.operation_counts["drained"] == 60


def test_without_acknowledgements_the_partition_of_each_send_is_known(harrow: Harrow) -> None:
    topic = harrow.topic("acks-0", partitions=3)

    async def application() -> str:
        async with harrow.aiokafka.producer(acks=0) as producer:
            results = await asyncio.gather(*(producer.send_and_wait(topic.name, b"value %d" % n) for n in range(30)))
            assert set(results) == {None}
            return producer.recorder.name

    name = asyncio.run(application())
    sends = sends_of(harrow, name)
    assert {(send.outcome, send.offset) for send in sends} == {("ok", -1)}
    verdict = judged(harrow, topic)
    assert verdict.valid, verdict
    assert verdict.operation_counts["acknowledged"] == verdict.operation_counts["drained"] == 30
    in_log = Counter(partition for partition, _, _ in reads_of(harrow, "harrow-drain"))
    assert Counter(send.partition for send in sends) == in_log


def test_sends_of_several_tasks_are_numbered_in_the_order_of_the_log(harrow: Harrow) -> None:
    topic = harrow.topic("tasks")

    async def application() -> str:
        async with harrow.aiokafka.producer(max_batch_size=2_000) as producer:

            async def send(task: int) -> None:
                for number in range(50):
                    await producer.send(topic.name, b"%d of %d " % (number, task) * 10, key=b"same")

            await asyncio.gather(*map(send, range(8)))
            return producer.recorder.name

    name = asyncio.run(application())
    assert [send.offset for send in sends_of(harrow, name)] == list(range(400))
    verdict = judged(harrow, topic, "exactly-once, ordered")
    assert verdict.valid, verdict


def test_the_records_of_a_batch_are_recorded(harrow: Harrow) -> None:
    topic = harrow.topic("batches", partitions=2)

    async def application() -> str:
        async with harrow.aiokafka.producer(value_serializer=to_json) as producer:
            batch: Any = producer.create_batch()
            for number in range(10):
                assert batch.append(key=b"k", value={"order": number}, timestamp=None)
            while batch.append(key=None, value={"filling": "x" * 500}, timestamp=None):
                pass
            sent = await producer.send_batch(batch, topic.name, partition=1)
            assert (await sent).offset == 0
            with pytest.raises(ValueError, match="create_batch"):
                await producer.send_batch(batch, topic.name, partition=1)
            await producer.send_and_wait(topic.name, {"order": 10}, partition=1)
            return producer.recorder.name

    name = asyncio.run(application())
    sends = sends_of(harrow, name)
    assert [send.offset for send in sends] == list(range(len(sends)))
    assert {send.outcome for send in sends} == {"ok"}
    contents = contents_of(harrow, name)
    assert contents[:10] == [b'{"order": %d}' % number for number in range(10)]
    assert contents[-1] == b'{"order": 10}'
    verdict = judged(harrow, topic, "exactly-once, ordered")
    assert verdict.valid, verdict
    assert verdict.operation_counts["acknowledged"] == verdict.operation_counts["drained"]


def test_a_lost_response_and_a_refused_request_are_retried_and_recorded_once(harrow: Harrow) -> None:
    topic = harrow.topic("lost-response")

    async def application() -> tuple[str, list[RecordedSend]]:
        settings: dict[str, Any] = {"client_id": "shop", "request_timeout_ms": 5_000}
        async with harrow.aiokafka.producer(**settings) as producer:
            futures: list[Any] = []
            async with harrow.chaos(
                lose_response("Produce", nth=3, target=leader(topic), client="shop"),
                refuse_request("Produce", "NOT_ENOUGH_REPLICAS", nth=2, client="shop"),
            ) as chaos:
                while chaos.running:
                    value = b"value %d" % len(futures)
                    futures.append(await producer.send(topic.name, value))
                    await asyncio.wait([futures[-1]])
            return producer.recorder.name, await reported(topic, futures)

    name, wanted = asyncio.run(application())
    assert sends_of(harrow, name) == wanted
    assert {send.outcome for send in wanted} == {"ok"}
    verdict = judged(harrow, topic, "exactly-once, ordered")
    assert verdict.valid, verdict


def test_a_schedule_describes_a_producer_with_the_default_of_aiokafka(harrow: Harrow) -> None:
    topic = harrow.topic("described")

    async def application() -> None:
        async with harrow.aiokafka.producer(enable_idempotence=False, client_id="shop") as producer:
            lost = lose_response("Produce", nth=2, client="shop")
            async with harrow.chaos(lost) as chaos:
                while chaos.running:
                    await producer.send_and_wait(topic.name, b"value")

    asyncio.run(application())
    described = RunSettings.from_json(harrow.schedule.run)
    assert (described.acks, described.idempotent) == (1, False), "without idempotence it has acks=1"


def test_cancelled_futures_and_sends_that_time_out_may_be_in_the_log(harrow: Harrow) -> None:
    topic = harrow.topic("paused")

    async def application() -> tuple[str, list[str]]:
        outcomes = ["ok"]
        async with harrow.aiokafka.producer(request_timeout_ms=20_000) as producer:
            await producer.send_and_wait(topic.name, b"before")
            async with harrow.chaos(pause(leader(topic), seconds=1.5)) as chaos:
                while chaos.running:
                    try:
                        await asyncio.wait_for(producer.send_and_wait(topic.name, b"in"), 0.2)
                        outcomes.append("ok")
                    except TimeoutError:
                        outcomes.append("info")
        return producer.recorder.name, outcomes

    name, outcomes = asyncio.run(application())
    sends = sends_of(harrow, name)
    assert [send.outcome for send in sends] == outcomes
    assert "info" in outcomes
    assert {send.error for send in sends if send.outcome == "info"} == {CANCELLED}
    verdict = judged(harrow, topic, "at-least-once")
    assert verdict.valid, verdict
    assert verdict.operation_counts["unacknowledged"] == outcomes.count("info")


def test_a_send_that_raises_or_is_cancelled_was_never_sent(harrow: Harrow) -> None:
    topic = harrow.topic("refusals")

    async def application() -> str:
        producer = harrow.aiokafka.producer()
        async with producer:
            with pytest.raises(TimeoutError):  # the task waits for the topic's metadata
                await asyncio.wait_for(producer.send("no-such-topic", b"cancelled"), 0.05)
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send(topic.name, b"x" * 2_000_000)
            with pytest.raises(AssertionError):
                await producer.send(topic.name)
            await producer.send(topic.name, b"value")
        with pytest.raises(ProducerClosed):
            await producer.send(topic.name, b"too late")
        return producer.recorder.name

    name = asyncio.run(application())
    assert sorted(send.outcome for send in sends_of(harrow, name)) == ["fail", "fail", "ok"]
    verdict = judged(harrow, topic, "exactly-once")
    assert verdict.valid, verdict
    assert verdict.operation_counts["drained"] == 1


def test_reads_seeks_and_commits_of_a_consumer_are_recorded(harrow: Harrow) -> None:
    topic = harrow.topic("reads", partitions=2)

    async def application() -> tuple[str, list[Any]]:
        async with harrow.aiokafka.producer() as producer:
            for number in range(40):
                await producer.send(topic.name, b"%d" % number, partition=number % 2)
        got: list[Any] = []
        consumer = harrow.aiokafka.consumer(
            topic, group_id=topic.name, enable_auto_commit=False, value_deserializer=int
        )
        async with consumer:
            while len(got) < 20:
                for records in (await consumer.getmany(timeout_ms=500, max_records=7)).values():
                    got += records
            async for record in consumer:
                got.append(record)
                if len(got) == 40:
                    break
            await consumer.commit()
            consumer.seek(TopicPartition(topic.name, 0), 5)
            await consumer.seek_to_beginning(TopicPartition(topic.name, 1))
            got += [await consumer.getone() for _ in range(35)]
        return consumer.recorder.name, got

    name, got = asyncio.run(application())
    assert sorted(record.value for record in got[:40]) == list(range(40))
    wanted = [(r.partition, r.offset, stable_hash(str(r.value))) for r in got]
    assert reads_of(harrow, name) == wanted
    assert rows_of(harrow, name)["kind"].to_list().count(3) == 4, "two partitions: invoke and ok"
    verdict = judged(harrow, topic, "ordered")
    assert verdict.valid, verdict


# ------------------------------------------------------------------------------------ event loops


async def leave_open(harrow: Harrow, topic: Topic) -> list[RecordingAIOKafkaProducer]:
    """An application that forgets to stop its clients, and has a send in flight when it ends."""
    consumer = harrow.aiokafka.consumer(topic)
    await consumer.start()
    harrow.aiokafka.consumer(topic)  # not even started
    producers = [harrow.aiokafka.producer(linger_ms=60_000), harrow.aiokafka.producer()]
    await producers[0].start()
    await producers[0].send(topic.name, b"in flight")
    return producers


def ignore(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler of a loop."""


def own_loop(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a loop that cancels no task at its end."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(ignore)  # asyncio reports aiokafka's own tasks
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def test_a_loop_that_ends_before_its_clients_leaves_nothing_open(harrow: Harrow) -> None:
    topic = harrow.topic("forgotten")
    producers = asyncio.run(leave_open(harrow, topic))
    name = producers[0].recorder.name
    assert [producer.handle().await_sends(5) for producer in producers] == [
        f"1 send of {name} had no result when their event loop ended: await the client's stop() before",
        "",
    ]
    another: Any = harrow.kafka_python.producer()
    another.send(topic.name, b"another").get(DEADLINE_S)
    verdict = judged(harrow, topic, "no-loss")
    assert verdict.valid, verdict
    assert verdict.operation_counts["unacknowledged"] == 1
    while producers:
        producers.pop().handle().close()
    gc.collect()  # an open client would warn now, and warnings are errors


def test_clients_of_a_loop_that_cancels_no_task_do_not_warn(harrow: Harrow) -> None:
    topic = harrow.topic("own-loop")

    async def application() -> RecordingAIOKafkaProducer:
        producer = harrow.aiokafka.producer()
        await producer.start()
        await producer.send_and_wait(topic.name, b"value")
        return producer

    producer = own_loop(application())
    assert producer.handle().await_sends(5) == ""
    producer.handle().close()
    del producer
    gc.collect()


@pytest.mark.parametrize("idle", [True, False], ids=["idle", "running"])
def test_a_run_waits_for_sends_and_stops_clients_on_their_own_loop(harrow: Harrow, idle: bool) -> None:
    topic = harrow.topic(f"own-{idle}")

    async def begin() -> RecordingAIOKafkaProducer:
        producer = harrow.aiokafka.producer(linger_ms=300)
        await producer.start()
        await producer.send(topic.name, b"value")
        return producer

    def check(producer: RecordingAIOKafkaProducer) -> None:
        handle = producer.handle()
        assert handle.await_sends(DEADLINE_S) == ""
        assert [send.outcome for send in sends_of(harrow, producer.recorder.name)] == ["ok"]
        handle.close()
        assert producer.recorder.closed

    async def application() -> None:
        await asyncio.to_thread(check, await begin())

    if not idle:
        asyncio.run(application())
        return
    with asyncio.Runner() as runner:
        producer = runner.run(begin())
        check(producer)

        async def another_loop(call: Callable[[], str]) -> str:
            return call()

        producer = runner.run(begin())
        assert asyncio.run(another_loop(lambda: producer.handle().await_sends(DEADLINE_S))) == ""


def test_verify_in_the_loop_of_a_producer_says_that_it_cannot_wait(harrow: Harrow) -> None:
    topic = harrow.topic("occupied")

    async def application() -> str:
        async with harrow.aiokafka.producer(linger_ms=300) as producer:
            await producer.send(topic.name, b"value")
            said = producer.handle().await_sends(5)
            await producer.flush()
            assert producer.handle().await_sends(5) == ""
            return said

    said = asyncio.run(application())
    assert "await the client's flush() before" in said
    assert "asyncio.to_thread(harrow.verify" in said
