"""Measures what recording costs a client: CPU time of this process for each record, beside the same library without it.

    python benchmarks/bench_recorders.py [--records 20000] [--rounds 5]

confluent-kafka, kafka-python and aiokafka send records of 100 bytes with keys, acks=all, and then read them, on one
broker. Rounds with and without a recorder alternate; the table has the medians in microseconds. Each recorder must
have a result for every send.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from harrow import Harrow

VALUE = b"x" * 100
WAIT_S = 60
Work = Callable[[Harrow, str, int, bool], tuple[float, float]]


def confluent(harrow: Harrow, topic: str, count: int, recording: bool) -> tuple[float, float]:
    """Return CPU seconds of sending and of reading with confluent-kafka."""
    import confluent_kafka

    settings: dict[str, Any] = {"bootstrap.servers": harrow.bootstrap_servers, "linger.ms": 5}
    producer: Any
    producer = harrow.producer(linger_ms=5) if recording else confluent_kafka.Producer(settings)
    began = time.process_time()
    for number in range(count):
        producer.produce(topic, VALUE, b"%d" % (number % 100))
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    sent = time.process_time() - began
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    del settings["linger.ms"]
    consumer: Any
    consumer = harrow.consumer(**group) if recording else confluent_kafka.Consumer(settings | group)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    began, left = time.process_time(), count
    while left:
        left -= len(consumer.consume(500, 1))
    read = time.process_time() - began
    consumer.close()
    return sent, read


def kafka_python(harrow: Harrow, topic: str, count: int, recording: bool) -> tuple[float, float]:
    """Return CPU seconds of sending and of reading with kafka-python."""
    import kafka
    from kafka.structs import TopicPartition

    servers: dict[str, Any] = {"bootstrap_servers": harrow.bootstrap_servers}
    producer: Any = (
        harrow.kafka_python.producer(linger_ms=5) if recording else kafka.KafkaProducer(**servers, linger_ms=5)
    )
    began = time.process_time()
    for number in range(count):
        producer.send(topic, VALUE, b"%d" % (number % 100))
    producer.flush(WAIT_S)
    sent = time.process_time() - began
    assert not recording or producer.recorder.waiting == 0
    producer.close()
    group: dict[str, Any] = {"group_id": None, "auto_offset_reset": "earliest"}
    consumer: Any = harrow.kafka_python.consumer(**group) if recording else kafka.KafkaConsumer(**servers, **group)
    consumer.assign([TopicPartition(topic, 0)])
    began, left = time.process_time(), count
    while left:
        left -= sum(map(len, consumer.poll(1000).values()))
    read = time.process_time() - began
    consumer.close()
    return sent, read


def aiokafka(harrow: Harrow, topic: str, count: int, recording: bool) -> tuple[float, float]:
    """Return CPU seconds of sending and of reading with aiokafka."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    servers: dict[str, Any] = {"bootstrap_servers": harrow.bootstrap_servers}

    async def work() -> tuple[float, float]:
        idempotent: dict[str, Any] = {"linger_ms": 5, "enable_idempotence": True}
        producer: Any = (
            harrow.aiokafka.producer(linger_ms=5) if recording else AIOKafkaProducer(**servers, **idempotent)
        )
        async with producer:
            began = time.process_time()
            for number in range(count):
                await producer.send(topic, VALUE, b"%d" % (number % 100))
            await producer.flush()
            sent = time.process_time() - began
            assert not recording or producer.recorder.waiting == 0
        group: dict[str, Any] = {"group_id": None, "auto_offset_reset": "earliest"}
        consumer: Any = harrow.aiokafka.consumer(**group) if recording else AIOKafkaConsumer(**servers, **group)
        consumer.assign([TopicPartition(topic, 0)])
        async with consumer:
            began, left = time.process_time(), count
            while left:
                left -= sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
            return sent, time.process_time() - began

    return asyncio.run(work())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    print("us of CPU a record    send  recorded    cost    read  recorded    cost")
    libraries: tuple[Work, ...] = (confluent, kafka_python, aiokafka)
    with tempfile.TemporaryDirectory() as folder, Harrow(f"{folder}/run", brokers=1) as harrow:
        for library in libraries:
            times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for number in range(2 * chosen.rounds):
                topic = harrow.topic(f"{library.__name__}-{number}").name
                recording = bool(number % 2)
                times[recording].append(library(harrow, topic, chosen.records, recording))
            row = f"{library.__name__:18}"
            for at in (0, 1):
                plain, recorded = (
                    median(both[at] for both in times[kind]) / chosen.records * 1e6 for kind in (False, True)
                )
                row += f"{plain:8.1f}{recorded:10.1f}{recorded - plain:8.1f}"
            print(row)


if __name__ == "__main__":
    main()
