"""A share coordinator that started before its metadata came has the leader try again (KIP-932)."""

from __future__ import annotations

import pytest
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import NodeId
from harrow.cluster.internal_topics import SHARE_STATE
from harrow.cluster.metadata import MetadataCache
from harrow.cluster.share_coordinator.service import check_known
from harrow.cluster.share_coordinator.values import SharePartition
from harrow.cluster.wire.topic_ids import UUID, text_of
from manual_host import ManualHost

from ..metadata.metadata_test_bed import partition, topic, update

ORDERS = UUID(int=7)


def refused(cache: MetadataCache, number: int) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        check_known(cache, SharePartition("workers", ORDERS, number))
    return error.value.code


def test_a_topic_is_unknown_only_once_the_metadata_are_there() -> None:
    cache = MetadataCache(ManualHost(), NodeId(1), "BROKERS")
    assert refused(cache, 0) is ErrorCode.coordinator_load_in_progress
    cache.update(update(topic(SHARE_STATE.name, text_of(UUID(int=8)), partition(0, 1, (1,)))))
    assert refused(cache, 0) is ErrorCode.unknown_topic_or_partition
    cache.update(update(topic("orders", text_of(ORDERS), partition(0, 1, (1,)))))
    check_known(cache, SharePartition("workers", ORDERS, 0))
    assert refused(cache, 1) is ErrorCode.unknown_topic_or_partition
