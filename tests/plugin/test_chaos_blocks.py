"""`harrow.chaos(…)` as a user writes it: misspelt targets, named majorities, `async with` (K, J7)."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Producer
from harrow import Harrow, HarrowError, all_brokers, group_coordinator, kill, leader, majority, one, pause
from harrow.faults import BackgroundNemesis
from harrow.harness.chaos.blocks import Chaos
from waiting import until


def place_orders(harrow: Harrow, topic: str, count: int = 300) -> None:
    producer = Producer(
        {
            "bootstrap.servers": harrow.bootstrap_servers,
            "linger.ms": 1,
            "log_level": 0,
            "retry.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
    )
    for number in range(count):
        producer.produce(topic, f"order {number}")
        producer.poll(0.002)
    assert producer.flush(60) == 0


def test_a_misspelt_topic_is_refused_before_the_block_begins(harrow: Harrow) -> None:
    harrow.topic("orders")
    with pytest.raises(HarrowError, match="no topic 'order'; did you mean 'orders'"):
        harrow.chaos(kill(leader("order")))


def test_a_misspelt_group_is_awaited_with_a_bound_and_then_named(
    harrow: Harrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert BackgroundNemesis.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(BackgroundNemesis.__init__.__kwdefaults__, "wait_timeout_ms", 500)
    topic = harrow.topic("orders")
    consumer = harrow.consumer(group_id="billing")
    consumer.subscribe([topic.name])
    place_orders(harrow, topic.name, 10)
    while not consumer.consume(10, 1.0):
        pass
    block = harrow.chaos(pause(group_coordinator("biling"), seconds=0.3))
    block.__enter__()
    place_orders(harrow, topic.name, 10)
    with pytest.raises(HarrowError, match=r"no consumer group 'biling'; did you mean 'billing'\?"):
        block.__exit__(None, None, None)


def test_a_coordinator_is_killed_when_the_service_has_joined_however_late(harrow: Harrow) -> None:
    topic = harrow.topic("orders")
    consumer = harrow.consumer(group_id="billing")
    with harrow.chaos(kill(group_coordinator("billing"), seconds=0.1)) as chaos:
        place_orders(harrow, topic.name)
        assert chaos.effects == 0, "the group does not exist"
        consumer.subscribe([topic.name])
        while not consumer.consume(10, 1.0):
            pass
    assert chaos.effects == 1
    consumer.close()


@pytest.mark.parametrize("target", [majority, all_brokers], ids=str)
def test_a_named_majority_is_hit_without_a_cap(harrow: Harrow, target: object) -> None:
    topic = harrow.topic("orders")
    with harrow.chaos(kill(target, seconds=0.5)) as chaos:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - parametrised
        place_orders(harrow, topic.name)
    assert chaos.effects == 1
    assert not chaos.running
    (step,) = harrow.schedule.steps
    assert len(step.nodes or ()) == harrow.schedule.cap == (2 if target is majority else 3)


def test_an_explicit_cap_below_the_target_is_refused_with_the_remedy(harrow: Harrow) -> None:
    harrow.topic("orders")
    with pytest.raises(HarrowError, match="give cap=2, or leave cap= out"):
        harrow.chaos(kill(majority), cap=1)


def test_the_end_of_an_async_block_does_not_stop_the_event_loop(harrow: Harrow) -> None:
    topic = harrow.topic("orders")
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "log_level": 0})
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        asyncio.get_running_loop().call_later(0.02, tick)

    def traffic_until_the_pause(chaos: Chaos) -> None:
        def paused() -> bool:
            producer.produce(topic.name, "order")
            return chaos.effects == 1

        until(paused)

    async def main() -> int:
        tick()
        async with harrow.chaos(pause(one, seconds=2.0)) as chaos:
            await asyncio.to_thread(traffic_until_the_pause, chaos)
            before = ticks  # the pause goes on, and the end of the block waits for it
        assert ticks > before + 1, "the loop did not run while the block ended"
        return chaos.effects

    assert asyncio.run(main()) == 1


def test_a_cancelled_async_block_heals_the_cluster(harrow: Harrow) -> None:
    topic = harrow.topic("orders")

    def traffic(chaos: Chaos) -> None:
        place_orders(harrow, topic.name, 30)
        until(lambda: chaos.effects == 1)

    async def main(begun: asyncio.Event) -> None:
        async with harrow.chaos(kill(one, seconds=60)) as chaos:
            await asyncio.to_thread(traffic, chaos)
            begun.set()

    async def cancel() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(main(begun))
        await begun.wait()  # the task now waits for the end of its block
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert all(broker.alive for broker in harrow.cluster.brokers.values())
    assert [step.nodes for step in harrow.schedule.steps if step.nodes]
