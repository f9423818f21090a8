"""The coordinator runtime over a state machine that is not a group: load, serve, write, unload (G3)."""

from __future__ import annotations

import pytest
from coordinator_fakes import FakeLog, FakePartition
from counting_coordinator import COUNTERS, IDLE_MS, PARTITIONS, CountingCoordinator
from harrow.cluster.coordinators import (
    COORDINATOR_ERRORS,
    CoordinatorWrite,
    EndMarker,
    ShardState,
    TransactionalProducer,
)
from harrow.cluster.errors import ErrorCode, StorageError
from harrow.cluster.internal_topics import OFFSETS, partition_for
from harrow.cluster.wire.batches import build_batch, build_end_txn_marker, header_at

KEY = "apples"
HOME = partition_for(KEY, PARTITIONS)
PRODUCER = TransactionalProducer(7, 1)


@pytest.fixture
def bed() -> CountingCoordinator:
    made = CountingCoordinator()
    made.replicas.lead(HOME)
    return made


def warnings(bed: CountingCoordinator) -> list[object]:
    return [fields["message"] for event, fields in bed.host.events if event == "log.warning"]


def test_write_is_answered_and_applied_once_its_record_is_committed(bed: CountingCoordinator) -> None:
    bed.replicas.automatic = False
    request = bed.increment(KEY)
    assert not request.is_answered
    assert bed.count(KEY) == 0
    bed.replicas.acknowledge()
    assert request.count == 1
    assert bed.count(KEY) == 1
    assert bed.replicas.logs[HOME].records() == [(b"apples", b"1")]


def test_key_of_a_partition_that_is_not_led_is_refused_with_not_coordinator() -> None:
    bed = CountingCoordinator()
    bed.replicas.lead(1 - HOME)
    assert bed.increment(KEY).error is ErrorCode.not_coordinator
    assert not bed.runtime.is_hosted(KEY)


def test_leadership_of_another_topic_hosts_nothing(bed: CountingCoordinator) -> None:
    partition = bed.replicas.partitions[HOME]
    partition.topic_partition = partition.topic_partition._replace(topic=OFFSETS.name, partition=1 - HOME)
    bed.replicas.announce([partition], [])
    assert bed.runtime.hosted(1 - HOME) is None


@pytest.mark.parametrize(
    ("log_error", "shown"),
    [
        *COORDINATOR_ERRORS.items(),
        (ErrorCode.message_too_large, ErrorCode.invalid_request),
        (ErrorCode.corrupt_message, ErrorCode.corrupt_message),
    ],
)
def test_failed_write_answers_the_translated_error_and_changes_nothing(
    bed: CountingCoordinator, log_error: ErrorCode, shown: ErrorCode
) -> None:
    bed.replicas.next_error = log_error
    assert bed.increment(KEY).error is shown
    assert bed.count(KEY) == 0
    assert bed.increment(KEY).count == 1


def test_shard_that_waits_for_the_high_watermark_answers_load_in_progress_until_it_moves(
    bed: CountingCoordinator,
) -> None:
    assert bed.increment(KEY).count == 1
    assert bed.increment(KEY).count == 2
    bed.replicas.resign(HOME)
    partition = bed.replicas.lead(HOME, high_watermark=1)
    bed.host.advance(5_000)
    assert bed.count(KEY) is ErrorCode.coordinator_load_in_progress
    assert bed.runtime.any_loading
    assert bed.runtime.all_active() == []
    bed.replicas.advance_high_watermark(partition, 2)
    assert bed.count(KEY) == 2
    assert not bed.runtime.any_loading


def test_load_reads_no_record_above_the_high_watermark(bed: CountingCoordinator) -> None:
    log = bed.replicas.logs[HOME]
    assert bed.increment(KEY).count == 1
    bed.replicas.resign(HOME)
    partition = bed.replicas.lead(HOME)
    log.append(build_batch([(b"apples", b"99", ())], timestamp_ms=0))
    partition.epoch_start = 1
    bed.replicas.resign(HOME)
    partition = bed.replicas.lead(HOME, high_watermark=1)
    partition.epoch_start = 1
    bed.replicas.advance_high_watermark(partition, 1)
    assert bed.count(KEY) == 1


def test_load_that_was_overtaken_by_a_newer_generation_serves_nothing(bed: CountingCoordinator) -> None:
    assert bed.increment(KEY).count == 1
    bed.replicas.resign(HOME)
    stale = bed.replicas.lead(HOME, high_watermark=0)
    bed.replicas.resign(HOME)
    bed.replicas.lead(HOME)
    assert bed.increment(KEY).count == 2
    stale.high_watermark = 99
    bed.replicas.produces.check_and_complete(stale.topic_partition)
    bed.host.advance(2_000)
    assert bed.count(KEY) == 2
    assert [machine.life for machine in bed.made] == [["loaded", "unloaded"], ["unloaded"], ["loaded"]]


def test_new_leader_epoch_of_one_generation_keeps_the_shard(bed: CountingCoordinator) -> None:
    assert bed.increment(KEY).count == 1
    partition = bed.replicas.partitions[HOME]
    partition.leader_epoch += 1
    bed.replicas.announce([partition], [])
    assert len(bed.made) == 1
    assert bed.made[0].shard.leader_epoch == partition.leader_epoch
    assert bed.count(KEY) == 1


def test_another_replica_object_of_the_same_generation_number_is_loaded(bed: CountingCoordinator) -> None:
    """The topic was deleted and created again: the new replica counts its generations from the start."""
    assert bed.increment(KEY).count == 1
    before = bed.replicas.partitions[HOME]
    created = FakePartition(before.topic_partition.topic, HOME, FakeLog())
    assert created.leadership_generation == before.leadership_generation
    bed.replicas.partitions[HOME] = created
    bed.replicas.announce([created], [])
    assert bed.count(KEY) == 0
    assert [machine.life for machine in bed.made] == [["loaded", "unloaded"], ["loaded"]]


def test_new_generation_without_a_resignation_loads_a_new_shard(bed: CountingCoordinator) -> None:
    assert bed.increment(KEY).count == 1
    bed.replicas.lead(HOME)
    assert [machine.life for machine in bed.made] == [["loaded", "unloaded"], ["loaded"]]
    assert bed.count(KEY) == 1


def test_lost_leadership_answers_writes_in_progress_and_drops_the_late_answer_of_the_log(
    bed: CountingCoordinator,
) -> None:
    bed.replicas.automatic = False
    request = bed.increment(KEY)
    assert bed.made[0].shard.writes_in_progress == 1
    bed.replicas.resign(HOME)
    assert request.error is ErrorCode.not_coordinator
    bed.replicas.acknowledge()
    assert bed.made[0].counts == {}
    assert bed.made[0].shard.writes_in_progress == 0


def test_write_that_was_refused_and_yet_replicated_is_served_after_the_reload(bed: CountingCoordinator) -> None:
    bed.replicas.automatic = False
    request = bed.increment(KEY)
    bed.replicas.acknowledge(ErrorCode.request_timed_out)
    assert request.error is ErrorCode.coordinator_not_available
    assert bed.count(KEY) == 0
    bed.replicas.resign(HOME)
    bed.replicas.lead(HOME)
    assert bed.count(KEY) == 1


def test_write_on_an_unloaded_shard_fails_with_not_coordinator(bed: CountingCoordinator) -> None:
    bed.replicas.resign(HOME)
    machine = bed.made[0]
    errors: list[ErrorCode] = []
    machine.shard.write(
        CoordinatorWrite(
            records=[(b"apples", b"1")],
            committed=lambda _offset: pytest.fail("committed"),
            failed=errors.append,
            errors={},
        )
    )
    assert errors == [ErrorCode.not_coordinator]
    assert bed.replicas.logs[HOME].records() == []


def test_write_on_a_loading_shard_is_a_bug_of_the_state_machine() -> None:
    bed = CountingCoordinator()
    bed.replicas.logs[HOME] = FakeLog()
    bed.replicas.logs[HOME].append(build_batch([(b"apples", b"1", ())], timestamp_ms=0))
    bed.replicas.lead(HOME, high_watermark=0)
    (machine,) = bed.made
    assert machine.shard.state is ShardState.LOADING
    with pytest.raises(AssertionError, match="write while loading"):
        machine.shard.write(
            CoordinatorWrite(
                records=[(b"apples", b"1")], committed=lambda _offset: None, failed=lambda _error: None, errors={}
            )
        )


def test_record_that_the_state_machine_refuses_is_reported_and_skipped() -> None:
    bed = CountingCoordinator()
    log = bed.replicas.logs[HOME] = FakeLog()
    log.append(build_batch([(b"apples", b"4", ()), (b"apples", b"no", ())], timestamp_ms=0))
    log.append(build_batch([(None, b"5", ())], timestamp_ms=0))
    bed.replicas.lead(HOME)
    assert bed.count(KEY) == 4
    assert [str(message).split(":")[0] for message in warnings(bed)] == [f"__counters-{HOME}"] * 2
    assert "record 1 skipped" in str(warnings(bed)[0])


def test_log_that_cannot_be_read_leaves_the_partition_without_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = CountingCoordinator()
    log = bed.replicas.logs[HOME] = FakeLog()
    log.append(build_batch([(b"apples", b"4", ())], timestamp_ms=0))

    def refuse(*_args: object, **_fields: object) -> None:
        raise StorageError("EIO")

    monkeypatch.setattr(log, "read", refuse)
    bed.replicas.lead(HOME)
    assert bed.count(KEY) is ErrorCode.not_coordinator
    assert [event for event, _ in bed.host.events] == ["log.error"]


def test_transactional_records_and_end_markers_are_replayed_with_their_producer() -> None:
    bed = CountingCoordinator()
    log = bed.replicas.logs[HOME] = FakeLog()
    transactional = {"producer_id": 7, "producer_epoch": 1, "is_transactional": True}
    log.append(build_batch([(b"apples", b"4", ())], timestamp_ms=0, **transactional))  # type: ignore[arg-type] # one dict
    for commit in (True, False):
        log.append(
            build_end_txn_marker(commit=commit, producer_id=7, producer_epoch=1, coordinator_epoch=0, timestamp_ms=0)
        )
    bed.replicas.lead(HOME)
    (machine,) = bed.made
    assert machine.transactional == [("apples", PRODUCER)]
    assert machine.markers == [(PRODUCER, True), (PRODUCER, False)]
    assert machine.counts == {}


def test_transactional_write_and_end_marker_carry_their_producer(bed: CountingCoordinator) -> None:
    offsets: list[int] = []
    for records, marker in (([(b"apples", b"4")], None), ([], EndMarker(True, 3))):
        bed.made[0].shard.write(
            CoordinatorWrite(
                records=records,
                committed=offsets.append,
                failed=lambda error: pytest.fail(error.name),
                errors={},
                producer=PRODUCER,
                end_marker=marker,
            )
        )
    assert offsets == [0, 1]
    written = [header_at(batch) for batch in bed.replicas.logs[HOME].batches]
    assert [(h.producer_id, h.producer_epoch, h.is_transactional) for h in written] == [(7, 1, True)] * 2
    assert [h.is_control for h in written] == [False, True]
    bed.replicas.resign(HOME)
    bed.replicas.lead(HOME)
    assert bed.made[1].markers == [(PRODUCER, True)]


def test_timer_of_a_key_runs_once_after_its_delay_and_is_replaced_by_a_newer_one(bed: CountingCoordinator) -> None:
    bed.increment(KEY)
    bed.host.advance(IDLE_MS - 1)
    bed.increment(KEY)
    bed.host.advance(IDLE_MS - 1)
    assert bed.count(KEY) == 2
    bed.host.advance(1)
    assert bed.count(KEY) == 0
    assert bed.replicas.logs[HOME].records()[-1] == (b"apples", None)
    assert len(bed.made[0].shard.timers) == 0


def test_timers_of_an_unloaded_shard_never_run(bed: CountingCoordinator) -> None:
    bed.increment(KEY)
    bed.replicas.resign(HOME)
    bed.host.advance(2 * IDLE_MS)
    assert bed.replicas.logs[HOME].records() == [(b"apples", b"1")]
    with pytest.raises(AssertionError, match="unloaded shard"):
        bed.made[0].shard.timers.schedule("late", 1, lambda: None)


def test_close_unloads_every_shard_and_answers_every_write_in_progress() -> None:
    bed = CountingCoordinator()
    for number in range(PARTITIONS):
        bed.replicas.lead(number)
    bed.replicas.automatic = False
    requests = [bed.increment(key) for key in ("a", "b", "c", "d")]
    assert len({partition_for(request.key, PARTITIONS) for request in requests}) == PARTITIONS
    bed.runtime.close()
    assert [request.error for request in requests] == [ErrorCode.not_coordinator] * 4
    assert [machine.life for machine in bed.made] == [["loaded", "unloaded"]] * PARTITIONS
    assert bed.count(KEY) is ErrorCode.not_coordinator


def test_partition_count_is_the_created_one_and_the_configured_one_before_the_creation(
    bed: CountingCoordinator,
) -> None:
    assert bed.runtime.partition_count() == PARTITIONS
    del bed.cache.topics[COUNTERS.name]
    assert bed.runtime.partition_count() == 50


def test_write_without_records_is_refused() -> None:
    with pytest.raises(AssertionError, match="without records"):
        CoordinatorWrite(records=[], committed=print, failed=print, errors={})
