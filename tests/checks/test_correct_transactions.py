"""Correct applications with transactions and groups have no anomaly; each wrong history has its own (L1, L2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transaction_histories import PartitionHistory

Story = Callable[[PartitionHistory], None]
A, B = 1, 2


def a_commit(h: PartitionHistory) -> None:
    h.transaction()
    h.read()


def an_abort_that_the_response_lists(h: PartitionHistory) -> None:
    aborted = h.transaction(commit=False)
    h.transaction()
    h.read(dropped=(aborted,))


def an_abort_that_is_read_as_uncommitted_data(h: PartitionHistory) -> None:
    h.transaction(commit=False)
    h.read(committed=False)


def an_open_transaction_that_is_read_as_uncommitted_data(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.read(committed=False)
    h.finish()


def a_retried_batch(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.again()
    h.finish()
    h.read()


def a_retry_whose_first_response_was_lost(h: PartitionHistory) -> None:
    h.state(1)
    h.send(tapped=False)
    h.again()
    h.finish()
    h.read()


def an_end_whose_result_a_proxy_did_not_see(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.state(16)
    h.marker(commit=True)
    h.read()


def an_abort_in_the_same_epoch_after_an_end_without_result(h: PartitionHistory) -> None:
    an_end_whose_result_a_proxy_did_not_see(h)
    h.state(1)
    aborted = h.send()
    h.finish(commit=False)
    h.read(dropped=(aborted,), first=aborted)


def an_abort_and_the_same_epoch_again(h: PartitionHistory) -> None:
    """A producer of an old version keeps its epoch from one transaction to the next."""
    aborted = h.transaction(commit=False)
    h.transaction()
    again = h.transaction(commit=False)
    h.transaction()
    h.read(dropped=(aborted, again))


def the_same_epoch_without_acknowledgements(h: PartitionHistory) -> None:
    h.state(1)
    aborted = h.send(tapped=False)
    h.finish(commit=False)
    h.send(tapped=False)
    h.finish()
    h.read(dropped=(aborted,))


def an_abort_of_a_refused_batch_and_the_same_sequence_again(h: PartitionHistory) -> None:
    """Found in a job of ten minutes: librdkafka keeps its epoch, and no log has a record of the aborted transaction."""
    h.state(1)
    h.refuse()
    h.state(3)
    h.state(5)
    h.state(1)
    h.send()
    h.finish()
    h.read()


def a_retry_after_fencing(h: PartitionHistory) -> None:
    """A zombie's transaction is aborted with the next epoch, and its heir sends the records again."""
    h.state(1)
    zombie = h.send()
    h.finish(commit=False)
    h.transaction(epoch=1)
    h.read(dropped=(zombie,))


def an_abort_by_timeout(h: PartitionHistory) -> None:
    h.state(1, timeout_ms=1_000)
    late = h.send()
    h.tick(12)
    h.finish(commit=False)
    h.transaction(epoch=1)
    h.read(dropped=(late,))


def a_coordinator_that_crashes_between_prepare_and_complete(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.state(2)
    h.tick(20)
    h.state(2)
    h.marker(commit=True)
    h.state(4)
    h.read()


def a_coordinator_that_crashes_before_its_row_of_prepare(h: PartitionHistory) -> None:
    """The record is in the log; the next coordinator finds it there, and records it before it sends markers."""
    h.state(1)
    h.send()
    h.tick(15)
    h.state(3)
    h.marker(commit=False)
    h.state(5)
    h.read(dropped=(0,))


def a_marker_that_is_written_twice(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.state(2)
    h.marker(commit=True)
    h.marker(commit=True)
    h.state(4)
    h.read()


def a_marker_without_records(h: PartitionHistory) -> None:
    """The partition was added to the transaction, and nothing was sent to it."""
    h.state(1)
    h.finish(commit=False)
    h.transaction()
    h.read()


def two_producers_at_once(h: PartitionHistory) -> None:
    h.state(1, producer=5)
    h.state(1, producer=6)
    first = h.send(producer=5)
    h.send(producer=6)
    h.finish(commit=False, producer=5)
    h.finish(producer=6)
    h.read(dropped=(first,))


def records_without_a_transaction_between(h: PartitionHistory) -> None:
    h.send(producer=-1, epoch=-1, transactional=False)
    h.read()
    h.transaction()
    h.send(producer=6, transactional=False)
    h.read()


def a_read_between_two_transactions(h: PartitionHistory) -> None:
    h.transaction()
    h.read()
    h.state(1)
    h.send()
    h.finish()
    h.read(first=2)


def an_open_transaction_at_the_end(h: PartitionHistory) -> None:
    h.state(1)
    h.send()


def an_open_transaction_of_a_long_job(h: PartitionHistory) -> None:
    h.state(1, timeout_ms=900_000)
    h.send()
    h.tick(120)


def markers_that_are_on_their_way(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.state(2)


def an_abort_by_an_administrator(h: PartitionHistory) -> None:
    """No coordinator decided on a hanging transaction; kafka-transactions.sh ends it."""
    h.transaction(producer=6)
    hanging = h.send()
    h.marker(commit=False)
    h.read(dropped=(hanging,))


def a_group_that_goes_on(h: PartitionHistory) -> None:
    for _ in range(3):
        h.transaction()
    h.read()
    h.owns(A)
    for number in range(1, 6):
        h.offset(number, A)
    h.offset(5, kind=3)


def a_seek_back_by_the_owner(h: PartitionHistory) -> None:
    a_commit(h)
    h.owns(A)
    h.offset(2, A)
    h.offset(0, A)
    h.offset(0, kind=3)


def a_reset_by_an_administrator(h: PartitionHistory) -> None:
    a_commit(h)
    h.owns(A)
    h.offset(2, A)
    h.releases(A)
    h.offset(0, 0, -1)
    h.offset(0, kind=3)


def a_new_owner_that_begins_again(h: PartitionHistory) -> None:
    """The second member had the partition never before: it seeks to the beginning."""
    a_commit(h)
    h.owns(A)
    h.offset(2, A)
    h.releases(A)
    h.owns(B, 2)
    h.offset(1, B, 2)


def a_rebalance_there_and_back(h: PartitionHistory) -> None:
    for _ in range(4):
        h.transaction()
    for generation, member in ((1, A), (2, B), (3, A)):
        h.owns(member, generation)
        h.offset(generation * 2, member, generation)
        h.releases(member, generation)


def a_static_member_that_restarts(h: PartitionHistory) -> None:
    """The member has a new id in the same generation; the coordinator has replaced the old one before."""
    a_commit(h)
    h.owns(A)
    h.offset(1, A)
    h.releases(A)
    h.owns(B)
    h.offset(2, B)


def a_coordinator_that_loads_its_group(h: PartitionHistory) -> None:
    a_commit(h)
    h.owns(A)
    h.offset(1, A)
    h.owns(A)
    h.offset(1, kind=3, node=2)
    h.offset(2, A, node=2)


def a_coordinator_that_was_replaced_returns_an_old_offset(h: PartitionHistory) -> None:
    a_commit(h)
    h.owns(A)
    h.offset(1, A, node=1)
    h.offset(2, A, node=2)
    h.offset(1, kind=3, node=1)


def a_commit_that_failed_and_is_there(h: PartitionHistory) -> None:
    a_commit(h)
    h.owns(A)
    h.offset(0, A, error=7)
    h.offset(2, A)
    h.offset(0, kind=3)


def a_group_that_was_deleted_and_begins_again(h: PartitionHistory) -> None:
    a_commit(h)
    h.owns(A, 3)
    h.offset(2, A, 3)
    h.releases(A, 3)
    h.owns(B, 1)
    h.offset(1, B, 1)


def an_offset_in_a_transaction_that_is_aborted(h: PartitionHistory) -> None:
    a_commit(h)
    h.owns(A)
    h.offset(1, A)
    h.offset(2, A, kind=2)
    h.offset(1, kind=3)


def an_offset_at_the_last_stable_offset(h: PartitionHistory) -> None:
    h.transaction()
    h.read()
    h.owns(A)
    h.state(1)
    opened = h.send()
    h.offset(opened, A)
    h.finish()


def an_uncommitted_reader_beyond_the_last_stable_offset(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.read(committed=False)
    h.owns(A)
    h.offset(1, A)
    h.finish()


CORRECT: tuple[Story, ...] = (
    a_commit, an_abort_that_the_response_lists, an_abort_that_is_read_as_uncommitted_data,
    an_open_transaction_that_is_read_as_uncommitted_data, a_retried_batch, a_retry_whose_first_response_was_lost,
    an_end_whose_result_a_proxy_did_not_see, an_abort_in_the_same_epoch_after_an_end_without_result,
    an_abort_and_the_same_epoch_again, the_same_epoch_without_acknowledgements, a_retry_after_fencing,
    an_abort_of_a_refused_batch_and_the_same_sequence_again,
    an_abort_by_timeout, a_coordinator_that_crashes_between_prepare_and_complete,
    a_coordinator_that_crashes_before_its_row_of_prepare, a_marker_that_is_written_twice, a_marker_without_records,
    two_producers_at_once, records_without_a_transaction_between, a_read_between_two_transactions,
    an_open_transaction_at_the_end, an_open_transaction_of_a_long_job, markers_that_are_on_their_way,
    an_abort_by_an_administrator, a_group_that_goes_on, a_seek_back_by_the_owner, a_reset_by_an_administrator,
    a_new_owner_that_begins_again, a_rebalance_there_and_back, a_static_member_that_restarts,
    a_coordinator_that_loads_its_group, a_coordinator_that_was_replaced_returns_an_old_offset,
    a_commit_that_failed_and_is_there, a_group_that_was_deleted_and_begins_again,
    an_offset_in_a_transaction_that_is_aborted, an_offset_at_the_last_stable_offset,
    an_uncommitted_reader_beyond_the_last_stable_offset,
)  # fmt: skip


@pytest.mark.parametrize("story", CORRECT, ids=lambda story: str(story.__name__))
def test_a_correct_history_has_no_anomaly(story: Story) -> None:
    history = PartitionHistory()
    story(history)
    assert history.judge() == set()


def an_abort_that_the_response_does_not_list(h: PartitionHistory) -> None:
    h.transaction(commit=False)
    h.transaction()
    h.read()


def a_read_before_an_end_without_result(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.read()
    h.state(16)
    h.marker(commit=True)


def a_read_before_the_decision(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.read()
    h.finish()


def a_read_before_the_second_decision_of_an_epoch(h: PartitionHistory) -> None:
    h.transaction()
    h.state(1)
    h.send()
    h.read(first=2)
    h.finish()


def a_marker_that_aborts_what_was_committed(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.state(2)
    h.marker(commit=False)
    h.state(4)


def a_coordinator_that_decides_twice(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.state(2)
    h.state(3)
    h.marker(commit=False)
    h.state(5)


def a_zombie_that_commits_its_position(h: PartitionHistory) -> None:
    for _ in range(3):
        h.transaction()
    h.owns(A)
    h.offset(2, A)
    h.releases(A)
    h.owns(B, 2)
    h.offset(4, B, 2)
    h.offset(3, A, 1)


def a_coordinator_that_loses_a_commit(h: PartitionHistory) -> None:
    for _ in range(3):
        h.transaction()
    h.owns(A)
    h.offset(2, A)
    h.offset(4, A)
    h.offset(2, kind=3, node=2)


def an_offset_beyond_the_end(h: PartitionHistory) -> None:
    a_commit(h)
    h.owns(A)
    h.offset(7, A)


def a_committed_reader_beyond_an_open_transaction(h: PartitionHistory) -> None:
    h.transaction()
    h.read()
    h.state(1)
    h.send()
    h.owns(A)
    h.offset(3, A)
    h.finish()


def a_transaction_without_timeout(h: PartitionHistory) -> None:
    h.state(1, timeout_ms=1_000)
    h.send()
    h.tick(60)


def markers_that_do_not_come(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.state(2)
    h.tick(60)


def a_completed_transaction_without_marker(h: PartitionHistory) -> None:
    h.state(1)
    h.send()
    h.state(2)
    h.state(4)


def a_hanging_transaction(h: PartitionHistory) -> None:
    h.transaction(producer=6)
    h.send()
    h.tick(60)


WRONG: tuple[tuple[Story, str], ...] = (
    (an_abort_that_the_response_does_not_list, "aborted-read"),
    (a_read_before_the_decision, "precommitted-read"),
    (a_read_before_the_second_decision_of_an_epoch, "precommitted-read"),
    (a_marker_that_aborts_what_was_committed, "torn-transaction"),
    (a_coordinator_that_decides_twice, "torn-transaction"),
    (a_zombie_that_commits_its_position, "committed-offset-regression"),
    (a_coordinator_that_loses_a_commit, "committed-offset-regression"),
    (an_offset_beyond_the_end, "commit-beyond-lso"),
    (a_committed_reader_beyond_an_open_transaction, "commit-beyond-lso"),
    (a_transaction_without_timeout, "stuck-transaction"),
    (markers_that_do_not_come, "stuck-transaction"),
    (a_completed_transaction_without_marker, "stuck-lso"),
    (a_read_before_an_end_without_result, "precommitted-read"),
    (a_hanging_transaction, "stuck-lso"),
)


@pytest.mark.parametrize(("story", "name"), WRONG, ids=[story.__name__ for story, _ in WRONG])
def test_a_wrong_history_has_its_anomaly(story: Story, name: str) -> None:
    history = PartitionHistory()
    story(history)
    assert history.judge() == {name}


def test_the_time_of_a_fault_is_no_part_of_a_timeout() -> None:
    history = PartitionHistory()
    a_transaction_without_timeout(history)
    assert history.judge(healed_ns=history.now) == set()
