"""The transaction coordinator without a cluster: states, markers, fencing, timeouts, take-over (F2, F3, F4, F7)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from coordinator_fakes import Sent
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.seam import NoTap
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.api_keys import ApiKey
from transaction_fakes import BILLS, NAME, ORDERS, TransactionBed

Code = ErrorCode
CONCURRENT = Code.concurrent_transactions


@pytest.fixture
def bed() -> TransactionBed:
    made = TransactionBed()
    made.lead()
    return made


def test_a_commit_logs_prepare_writes_markers_and_logs_complete(bed: TransactionBed) -> None:
    answer = bed.init().response
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (Code.none, 100, 0)
    assert bed.described() == ("Empty", 100, 0)
    assert bed.add(100, 0) is Code.none
    assert bed.described() == ("Ongoing", 100, 0)
    assert not bed.commits
    ended = bed.end(100, 0, commit=True).response
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (Code.none, 100, 1)
    assert sorted(bed.commits) == [(1, True, 1, ORDERS), (2, True, 1, BILLS)]
    assert bed.described() == ("CompleteCommit", 100, 1)
    assert len(bed.markers) == 0


def test_nothing_takes_effect_before_its_record_is_committed(bed: TransactionBed) -> None:
    bed.init()
    bed.add(100, 0)
    bed.replicas.automatic = False
    waiting = bed.end(100, 0, commit=True)
    assert not waiting.has_response
    assert not bed.commits, "no marker before PREPARE is on all in-sync replicas"
    assert bed.described()[0] == "Ongoing"
    assert bed.end(100, 0, commit=True).response.error_code is CONCURRENT
    assert bed.add(100, 0) is CONCURRENT
    assert bed.init().response.error_code is CONCURRENT
    bed.replicas.acknowledge()
    bed.host.run_due()
    assert waiting.response.error_code is Code.none
    assert len(bed.commits) == 2
    assert bed.described()[0] == "PrepareCommit", "COMPLETE is not committed yet"
    bed.replicas.acknowledge()
    assert bed.described()[0] == "CompleteCommit"


def ending(bed: TransactionBed) -> None:
    """A commit whose markers are not written yet."""
    bed.init()
    bed.add(100, 0)
    bed.brokers.automatic = False
    assert bed.end(100, 0, commit=True, version=4).response.error_code is Code.none


def add_next(bed: TransactionBed) -> Sent:
    """The first request of the next transaction."""
    topic = {"name": BILLS.topic, "partitions": (BILLS.partition,)}
    return bed.send(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=100,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=(topic,),
    )


def error_of(sent: Sent) -> ErrorCode:
    row = sent.response.results_by_topic_v3_and_below[0].results_by_partition[0]
    return ErrorCode(row.partition_error_code)


def test_the_next_transaction_of_a_client_waits_for_the_markers_of_the_last_one(bed: TransactionBed) -> None:
    ending(bed)
    waiting = add_next(bed)
    assert not waiting.has_response
    bed.brokers.answer()
    bed.host.run_due()
    assert error_of(waiting) is Code.none
    assert bed.described()[0] == "Ongoing"
    bed.host.advance(1_000)
    assert bed.described()[0] == "Ongoing", "the request is not served again"


def test_the_next_transaction_does_not_wait_for_long(bed: TransactionBed) -> None:
    ending(bed)
    waiting = add_next(bed)
    bed.host.advance(99)
    assert not waiting.has_response
    bed.host.advance(1)
    assert error_of(waiting) is CONCURRENT
    bed.brokers.answer()
    bed.host.run_due()
    assert bed.described()[0] == "CompleteCommit"


def test_the_next_transaction_waits_for_no_coordinator_that_was_deposed(bed: TransactionBed) -> None:
    ending(bed)
    waiting = add_next(bed)
    bed.replicas.resign(0)
    bed.host.advance(100)
    assert error_of(waiting) is Code.not_coordinator


def listed(bed: TransactionBed, pattern: str) -> tuple[ErrorCode, list[str]]:
    """The result of ListTransactions v2 with a pattern."""
    answer = bed.send(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern=pattern).response
    return answer.error_code, [row.transactional_id for row in answer.transaction_states]


@pytest.mark.parametrize(
    ("pattern", "names"), [(NAME, [NAME]), (NAME[:-1], []), (NAME[:-1] + ".", [NAME]), (".*?", [NAME]), ("", [NAME])]
)
def test_a_pattern_of_list_transactions_matches_whole_ids(bed: TransactionBed, pattern: str, names: list[str]) -> None:
    bed.init()
    assert listed(bed, pattern) == (Code.none, names)


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "(?<!a)b"])
def test_a_pattern_of_list_transactions_has_the_syntax_of_re2(bed: TransactionBed, pattern: str) -> None:
    bed.init()
    assert listed(bed, pattern) == (Code.invalid_regular_expression, [])


def test_a_pattern_of_list_transactions_matches_in_linear_time(bed: TransactionBed) -> None:
    long = "a" * 2_000  # a backtracking matcher does not end
    bed.init(name=long)
    assert listed(bed, "(a*)*b") == (Code.none, [])


class TransactionTap(NoTap):
    """A tap that stores the states of transactions, and how many markers were written before each."""

    enabled = True

    def __init__(self, bed: TransactionBed) -> None:
        self.rows: list[tuple[int, int, set[TopicPartition], int]] = []
        self._bed = bed

    def transaction(
        self,
        transactional_id: str,
        partitions: Iterable[TopicPartition],
        *,
        state: int,
        producer_id: int,
        producer_epoch: int,
        timeout_ms: int,
        since_ns: int = 0,
    ) -> None:
        """One call."""
        assert (transactional_id, producer_id) == (NAME, 100)
        assert timeout_ms > 0
        self.rows.append((state, producer_epoch, {*partitions}, len(self._bed.commits)))


@pytest.mark.parametrize(("commit", "prepared", "completed"), [(True, 2, 4), (False, 3, 5)])
def test_the_tap_has_the_result_before_any_marker(
    bed: TransactionBed, commit: bool, prepared: int, completed: int
) -> None:
    tap = bed.host.tap = TransactionTap(bed)
    bed.init()
    bed.add(100, 0)
    bed.end(100, 0, commit=commit)
    both = {ORDERS, BILLS}
    # the end raises the epoch of the producer; the rows have that of the records
    assert tap.rows == [(1, 0, both, 0), (prepared, 0, both, 0), (completed, 0, both, 2)]


def test_the_tap_has_what_a_new_coordinator_finds(bed: TransactionBed) -> None:
    bed.init()
    bed.add(100, 0)
    bed.brokers.automatic = False
    bed.end(100, 0, commit=True)
    tap = bed.host.tap = TransactionTap(bed)
    bed.crash_and_take_over()
    assert tap.rows == [(2, 0, {ORDERS, BILLS}, 0)]


@pytest.mark.parametrize("commit", [True, False])
def test_a_new_coordinator_writes_the_markers_of_a_prepared_transaction(bed: TransactionBed, commit: bool) -> None:
    bed.init()
    bed.add(100, 0)
    bed.brokers.automatic = False
    assert bed.end(100, 0, commit=commit).response.error_code is Code.none
    bed.crash_and_take_over()
    bed.brokers.automatic = True
    bed.brokers.answer()
    assert {row[1:] for row in bed.commits} == {(commit, 1, ORDERS), (commit, 1, BILLS)}
    assert bed.described()[0] == ("CompleteCommit" if commit else "CompleteAbort")
    assert bed.end(100, 0, commit=not commit).response.error_code is Code.invalid_txn_state


def test_an_open_transaction_survives_a_new_coordinator(bed: TransactionBed) -> None:
    bed.init()
    bed.add(100, 0)
    bed.crash_and_take_over()
    assert bed.described() == ("Ongoing", 100, 0)
    assert bed.end(100, 0, commit=True).response.error_code is Code.none
    assert bed.described()[0] == "CompleteCommit"


def test_a_prepare_that_was_not_acknowledged_can_be_asked_for_again(bed: TransactionBed) -> None:
    bed.init()
    bed.add(100, 0)
    bed.replicas.next_error = Code.not_enough_replicas
    refused = bed.end(100, 0, commit=True).response
    assert refused.error_code is Code.coordinator_not_available
    assert bed.described() == ("Ongoing", 100, 0)
    assert bed.end(100, 0, commit=True).response.error_code is Code.none
    assert bed.described() == ("CompleteCommit", 100, 1)


def test_complete_is_written_again_until_it_is_acknowledged(bed: TransactionBed) -> None:
    bed.init()
    bed.add(100, 0)
    bed.brokers.automatic = False
    bed.end(100, 0, commit=True)
    bed.replicas.next_error = Code.not_enough_replicas_after_append
    bed.brokers.answer()
    assert bed.described()[0] == "PrepareCommit"
    bed.host.advance(100)
    assert bed.described()[0] == "CompleteCommit"


def test_a_new_producer_aborts_the_open_transaction_and_gets_a_later_epoch(bed: TransactionBed) -> None:
    bed.init()
    bed.add(100, 0)
    assert bed.init().response.error_code is CONCURRENT
    assert {row[1:3] for row in bed.commits} == {(False, 1)}, "the markers fence epoch 0"
    heir = bed.init().response
    assert (heir.error_code, heir.producer_epoch) == (Code.none, 2)
    assert bed.end(100, 0, commit=True).response.error_code is Code.producer_fenced
    assert bed.add(100, 0) is Code.producer_fenced


def test_a_transaction_is_aborted_after_its_timeout_and_its_producer_is_fenced() -> None:
    bed = TransactionBed()
    bed.lead()
    bed.init(timeout_ms=15_000)
    bed.add(100, 0)
    bed.host.advance(10_000)
    assert bed.described() == ("Ongoing", 100, 0)
    bed.host.advance(10_001)
    assert bed.described() == ("CompleteAbort", 100, 1)
    assert bed.end(100, 0, commit=True).response.error_code is Code.invalid_txn_state
    assert bed.add(100, 0) is Code.producer_fenced


def test_the_timeout_also_counts_for_a_transaction_that_another_coordinator_began() -> None:
    bed = TransactionBed()
    bed.lead()
    bed.init(timeout_ms=15_000)
    bed.add(100, 0)
    bed.host.advance(12_000)
    bed.crash_and_take_over()
    bed.host.advance(10_100)
    assert bed.described() == ("CompleteAbort", 100, 1)


def test_an_unused_transactional_id_expires_with_a_tombstone() -> None:
    bed = TransactionBed(
        transactional_id_expiration_ms=10_000, transaction_remove_expired_transaction_cleanup_interval_ms=1_000
    )
    partition = bed.lead()
    bed.init()
    bed.add(100, 0)
    bed.end(100, 0, commit=True)
    bed.host.advance(9_000)
    assert bed.described()[0] == "CompleteCommit"
    bed.host.advance(2_000)
    assert bed.described()[0] == ""
    assert partition.log.records()[-1][1] is None
    bed.crash_and_take_over()
    assert bed.described()[0] == ""
    assert bed.init().response.producer_id == 101
    assert bed.end(100, 1, commit=True).response.error_code is Code.invalid_producer_id_mapping


def test_an_open_transaction_never_expires() -> None:
    bed = TransactionBed(
        transactional_id_expiration_ms=1_000, transaction_remove_expired_transaction_cleanup_interval_ms=100
    )
    bed.lead()
    bed.init()
    bed.add(100, 0)
    bed.host.advance(5_000)
    assert bed.described()[0] == "Ongoing"


def test_markers_are_sent_again_until_the_leader_has_them(bed: TransactionBed) -> None:
    bed.init()
    bed.add(100, 0)
    bed.brokers.errors[ORDERS] = Code.not_leader_or_follower
    bed.brokers.lost.add(2)
    bed.end(100, 0, commit=True)
    bed.host.advance(500)
    assert bed.described()[0] == "PrepareCommit", "broker 2 cannot be reached"
    bed.brokers.lost.clear()
    bed.host.advance(100)
    assert bed.described()[0] == "CompleteCommit"


def test_markers_follow_a_partition_to_its_new_leader(bed: TransactionBed) -> None:
    bed.init()
    bed.add(100, 0)
    bed.brokers.automatic = False
    bed.end(100, 0, commit=True)
    assert sorted(node for node, _, _ in bed.brokers.waiting) == [1, 2]
    bed.metadata.change(BILLS, 3)
    bed.host.run_due()
    assert sorted(node for node, _, _ in bed.brokers.waiting) == [1, 2, 3]
    bed.brokers.waiting = [row for row in bed.brokers.waiting if row[0] != 2]
    bed.brokers.answer()
    assert bed.described()[0] == "CompleteCommit", "the old leader never answers"


def test_a_partition_that_metadata_does_not_know_keeps_its_marker(bed: TransactionBed) -> None:
    """The metadata of a broker that has just started is empty: that is no proof of a deletion."""
    bed.init()
    bed.add(100, 0)
    del bed.metadata.leaders[BILLS]
    bed.end(100, 0, commit=True)
    bed.host.advance(1_000)
    assert bed.described()[0] == "PrepareCommit"
    bed.metadata.change(BILLS, 2)
    bed.host.advance(100)
    assert (2, True, 1, BILLS) in bed.commits
    assert bed.described()[0] == "CompleteCommit"


def test_a_partition_that_is_deleted_in_the_registry_needs_no_marker(bed: TransactionBed) -> None:
    bed.init()
    bed.add(100, 0)
    del bed.metadata.leaders[BILLS]
    bed.deleted.add(BILLS)
    bed.end(100, 0, commit=True)
    bed.host.advance(200)
    assert bed.described()[0] == "CompleteCommit"
    assert [row[3] for row in bed.commits] == [ORDERS]


def test_a_coordinator_that_lost_its_partition_completes_nothing(bed: TransactionBed) -> None:
    bed.init()
    bed.add(100, 0)
    bed.brokers.automatic = False
    bed.end(100, 0, commit=True)
    bed.replicas.resign(0)
    length = len(bed.replicas.logs[0].batches)
    bed.brokers.automatic = True
    bed.brokers.answer()
    bed.host.advance(1_000)
    assert len(bed.replicas.logs[0].batches) == length
    assert bed.end(100, 0, commit=True).response.error_code is Code.not_coordinator
    assert len(bed.markers) == 0


def test_a_refused_marker_epoch_stops_the_sending(bed: TransactionBed) -> None:
    bed.init()
    bed.add(100, 0)
    bed.brokers.errors[ORDERS] = Code.transaction_coordinator_fenced
    bed.end(100, 0, commit=True)
    bed.host.advance(1_000)
    assert bed.described()[0] == "PrepareCommit"
    assert any("refused" in str(fields) for event, fields in bed.host.events if "error" in event)


@pytest.mark.parametrize(
    ("state", "commit", "epoch", "wanted"),
    [
        ("Empty", True, 0, Code.invalid_txn_state),
        ("Empty", False, 0, Code.none),
        ("Empty", False, 5, Code.producer_fenced),
        ("CompleteCommit", True, 0, Code.none),
        ("CompleteCommit", False, 0, Code.invalid_txn_state),
        ("CompleteCommit", False, 1, Code.none),
        ("CompleteCommit", True, 1, Code.invalid_txn_state),
        ("CompleteAbort", False, 0, Code.none),
        ("CompleteAbort", True, 0, Code.invalid_txn_state),
        ("CompleteAbort", False, 1, Code.none),
        ("CompleteAbort", True, 1, Code.invalid_txn_state),
    ],
)
def test_end_txn_of_version_2_follows_the_table(
    bed: TransactionBed, state: str, commit: bool, epoch: int, wanted: ErrorCode
) -> None:
    bed.init()
    if state != "Empty":
        bed.add(100, 0)
        bed.end(100, 0, commit=state == "CompleteCommit")
    assert bed.described()[0] == state
    assert bed.end(100, epoch, commit=commit).response.error_code is wanted


def test_end_txn_of_version_1_keeps_the_epoch_and_accepts_the_same_result_again(bed: TransactionBed) -> None:
    bed.init()
    assert bed.end(100, 0, commit=False, version=4).response.error_code is Code.invalid_txn_state
    bed.add(100, 0)
    assert bed.end(100, 0, commit=True, version=4).response.error_code is Code.none
    assert bed.described() == ("CompleteCommit", 100, 0)
    assert {row[2] for row in bed.commits} == {0}
    assert bed.end(100, 0, commit=True, version=4).response.error_code is Code.none
    assert bed.end(100, 0, commit=False, version=4).response.error_code is Code.invalid_txn_state


def test_used_up_epochs_give_a_new_producer_id_at_the_end_of_a_transaction(bed: TransactionBed) -> None:
    bed.init()
    transaction = bed.service.shard_of(NAME).get(NAME)
    object.__setattr__(transaction.value, "producer_epoch", 32766)
    bed.add(100, 32766)
    ended = bed.end(100, 32766, commit=True).response
    assert (ended.producer_id, ended.producer_epoch) == (101, 0)
    assert {row[2] for row in bed.commits} == {32767}, "the last epoch is for markers alone"
    assert bed.described() == ("CompleteCommit", 101, 0)
    again = bed.end(100, 32766, commit=True).response
    assert (again.error_code, again.producer_id, again.producer_epoch) == (Code.none, 101, 0)


def test_used_up_epochs_give_a_new_producer_id_to_a_producer_that_starts(bed: TransactionBed) -> None:
    bed.init()
    transaction = bed.service.shard_of(NAME).get(NAME)
    object.__setattr__(transaction.value, "producer_epoch", 32766)
    for _ in range(2):  # the second time the response was lost
        answer = bed.init(100, 32766).response
        assert (answer.producer_id, answer.producer_epoch) == (101, 0)
    assert bed.init().response.producer_epoch == 1
    assert bed.init(100, 32766).response.error_code is Code.producer_fenced


def test_a_timeout_is_between_one_and_the_maximum(bed: TransactionBed) -> None:
    refused = Code.invalid_transaction_timeout
    assert bed.init(timeout_ms=0).response.error_code is refused
    assert bed.init(timeout_ms=900_001).response.error_code is refused
    assert bed.init(timeout_ms=900_000).response.error_code is Code.none
