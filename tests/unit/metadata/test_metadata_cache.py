"""The metadata cache after UpdateMetadata requests of the controller (D2, D6)."""

from __future__ import annotations

import pytest
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import BrokerEpoch, NodeId, TopicPartition
from harrow.cluster.wire.internal import FULL
from harrow.cluster.wire.topic_ids import topic_id_of
from manual_host import ManualHost

from .metadata_test_bed import DELETED_LEADER, MetadataTestBed, partition, run_on_host, topic, update

ID_A, ID_B = "AQIDBAUGBwgREhMUFRYXGA", "BQIDBAUGBwgREhMUFRYXGA"


def bed(host: ManualHost | None = None) -> MetadataTestBed:
    found = MetadataTestBed(host)
    found.cache.update(update(topic("a", ID_A, partition(0, 1, (1, 2)), partition(1, 2, (2, 3)))))
    return found


def test_update_stores_brokers_with_both_listeners() -> None:
    cache = bed().cache
    assert [row.node_id for row in cache.brokers()] == [1, 2, 3]
    assert cache.address(NodeId(2), "CLIENTS") == ("h", 9002)
    assert cache.address(NodeId(2), "OTHER") is None
    assert cache.peer_endpoint(NodeId(2)) == ("h", 8002)
    assert cache.peer_endpoint(NodeId(9)) is None
    assert cache.broker(NodeId(9)) is None
    assert cache.controller_id == 1


def test_topics_are_found_by_name_and_by_id() -> None:
    cache = bed().cache
    assert cache.topic_name(topic_id_of(ID_A)) == "a"
    assert cache.topic_id("a") == topic_id_of(ID_A)
    assert cache.topic_by_id(topic_id_of(ID_A)) is cache.topic("a")
    assert cache.topic_by_id(topic_id_of(ID_B)) is None
    assert cache.leader(TopicPartition("a", 1)) == 2
    assert cache.leader(TopicPartition("a", 7)) == -1
    assert (cache.partition_count("a"), cache.partition_count("b")) == (2, 0)


def test_update_changes_its_partitions_and_all_live_brokers() -> None:
    cache = bed().cache
    cache.update(update(topic("a", ID_A, partition(0, 2, (1, 2), isr=(2,), epoch=1)), brokers=(2, 3)))
    found = cache.partition(TopicPartition("a", 0))
    assert found is not None
    assert (found.leader, found.leader_epoch, found.isr) == (2, 1, (2,))
    assert cache.leader(TopicPartition("a", 1)) == 2
    assert not cache.is_alive(NodeId(1))


def test_partitions_with_the_deletion_leader_are_removed_and_reported() -> None:
    cache = bed().cache
    deletions: list[list[TopicPartition]] = []
    cache.on_deleted.append(deletions.append)
    deleted = cache.update(update(topic("a", ID_A, partition(0, DELETED_LEADER, ()), partition(1, DELETED_LEADER, ()))))
    assert deleted == [TopicPartition("a", 0), TopicPartition("a", 1)]
    assert deletions == [deleted]
    assert cache.topic("a") is None
    assert cache.topic_name(topic_id_of(ID_A)) is None


def test_topic_with_a_new_id_replaces_the_older_topic() -> None:
    cache = bed().cache
    deleted = cache.update(update(topic("a", ID_B, partition(0, 3, (3,)))))
    assert sorted(deleted) == [TopicPartition("a", 0), TopicPartition("a", 1)]
    assert cache.partition_count("a") == 1
    assert cache.topic_name(topic_id_of(ID_A)) is None
    assert cache.topic_name(topic_id_of(ID_B)) == "a"


def test_full_update_removes_topics_that_it_does_not_list() -> None:
    cache = bed().cache
    cache.update(update(topic("b", ID_B, partition(0, 3, (3,))), kind=FULL))
    assert [row.name for row in cache.topics()] == ["b"]


def test_update_of_an_older_controller_is_refused_and_changes_nothing() -> None:
    cache = bed().cache
    cache.update(update(epoch=5, controller=2))
    with pytest.raises(KafkaError) as refused:
        cache.update(update(epoch=4, controller=3, brokers=()))
    assert refused.value.code is ErrorCode.stale_controller_epoch
    assert (cache.controller_id, len(cache.brokers())) == (2, 3)


def test_update_for_an_earlier_registration_is_refused() -> None:
    cache = bed().cache
    cache.broker_epoch = BrokerEpoch(20)
    cache.update(update(broker_epoch=20))
    cache.update(update(broker_epoch=-1))
    cache.update(update(broker_epoch=21))  # of a newer registration that this broker has not processed yet
    with pytest.raises(KafkaError) as refused:
        cache.update(update(broker_epoch=19))
    assert refused.value.code is ErrorCode.stale_broker_epoch


def test_wait_completes_with_the_update_that_fulfils_it() -> None:
    async def scenario(host: ManualHost) -> None:
        cache = bed(host).cache
        woken = host.start(cache.await_leaders("b", 2, 60_000))
        await host.tasks.sleep(0)
        cache.update(update(topic("b", ID_B, partition(0, 1, (1,)))))
        cache.update(update(topic("b", ID_B, partition(1, -1, (2,)))))
        await host.tasks.sleep(0)
        assert not woken.done()
        cache.update(update(topic("b", ID_B, partition(1, 2, (2,)))))
        assert await woken

    run_on_host(scenario)


def test_wait_ends_at_its_deadline_and_leaves_no_operation() -> None:
    async def scenario(host: ManualHost) -> None:
        cache = bed(host).cache
        assert not await cache.await_absence("a", 0)
        assert await cache.await_absence("nothing", 0)
        cache.update(update())

    run_on_host(scenario)


def test_wait_for_brokers_includes_this_broker() -> None:
    async def scenario(host: ManualHost) -> None:
        cache = MetadataTestBed(host).cache
        cache.update(update(brokers=(2, 3)))
        woken = host.start(cache.await_brokers(2))
        await host.tasks.sleep(0)
        assert not woken.done()
        cache.update(update(brokers=(1, 2)))
        await woken

    run_on_host(scenario)
