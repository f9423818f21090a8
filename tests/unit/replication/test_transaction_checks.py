"""A transactional batch is appended only with the agreement of its coordinator (F4, KIP-890)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import TopicPartition
from harrow.cluster.replication import transaction_checks
from harrow.cluster.replication.transaction_checks import TransactionChecks
from harrow.cluster.storage.producers.producer_entry import BatchMetadata, ProducerEntry
from manual_host import ManualHost
from raw_kafka import batch

HERE = TopicPartition("orders", 0)
Code = ErrorCode
VERSION_1, VERSION_2 = 11, 12


class FakeProducers:
    def __init__(self) -> None:
        self.entry: ProducerEntry | None = None

    def get(self, _producer_id: int) -> ProducerEntry | None:
        return self.entry


class FakePartition:
    def __init__(self) -> None:
        self.is_leader = True
        self.leadership_generation = 1
        self.producers = FakeProducers()
        self.log = self


class Directory:
    def __init__(self, partition: FakePartition) -> None:
        self._partition = partition

    def partition(self, _tp: TopicPartition) -> FakePartition:
        return self._partition


class Coordinator:
    """Answers at once, or when the test says so; `meanwhile` runs before the answer."""

    def __init__(self) -> None:
        self.answer = Code.none
        self.asked: list[tuple[str, int, int, bool]] = []
        self.meanwhile: Any = None

    async def check(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, add))
        if self.meanwhile is not None:
            self.meanwhile()
        return dict.fromkeys(partitions, self.answer)


class Bed:
    def __init__(self, *, enabled: bool = True) -> None:
        self.host = ManualHost()
        self.partition = FakePartition()
        self.coordinator = Coordinator()
        directory: Any = Directory(self.partition)
        config = BrokerConfig.parse({"transaction.partition.verification.enable": enabled})
        self.config = config
        self.checks = TransactionChecks(self.host, config, directory)
        self.checks.queries = cast("Any", self.coordinator)

    def produce(
        self, version: int = VERSION_1, *, sequence: int = 0, epoch: int = 0, producer_id: int = 7
    ) -> ErrorCode:
        """The error of a batch; `none`: it may be appended."""
        data = batch(
            ["a"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )
        unverified = self.checks.unverified({HERE: data}, version)
        if not unverified:
            return Code.none
        results = self.host.run(self.checks.check("payments", unverified, version))
        return results[HERE].error if HERE in results else Code.none

    def set_entry(self, **fields: Any) -> None:
        self.partition.producers.entry = ProducerEntry(7, **fields)


def test_the_first_batch_of_a_transaction_is_verified_or_added() -> None:
    bed = Bed()
    assert bed.produce(VERSION_1) is Code.none
    assert bed.produce(VERSION_2) is Code.none
    assert bed.coordinator.asked == [("payments", 7, 0, False), ("payments", 7, 0, True)]


def test_later_batches_of_an_open_transaction_are_not_verified_again() -> None:
    bed = Bed()
    bed.set_entry(epoch=0, txn_first_offset=5)
    assert bed.produce(sequence=3) is Code.none
    assert not bed.coordinator.asked
    assert bed.produce(epoch=1) is Code.none
    assert len(bed.coordinator.asked) == 1, "another epoch is another transaction"


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
@pytest.mark.parametrize("first_offset", [-1, 5])
def test_a_batch_of_an_older_epoch_than_the_log_knows_is_refused_and_adds_nothing(
    version: int, first_offset: int
) -> None:
    bed = Bed()
    bed.set_entry(epoch=3, txn_first_offset=first_offset)
    assert bed.produce(version, epoch=2) is Code.invalid_producer_epoch
    assert not bed.coordinator.asked
    assert bed.produce(version, epoch=4) is Code.none
    assert len(bed.coordinator.asked) == 1


def test_plain_batches_are_never_verified() -> None:
    bed = Bed()
    assert not bed.checks.unverified({HERE: batch(["a"]), HERE._replace(partition=1): b"x"}, 11)


def test_without_verification_only_additions_are_asked_for() -> None:
    bed = Bed(enabled=False)
    assert bed.produce(VERSION_1) is Code.none
    assert not bed.coordinator.asked
    assert bed.produce(VERSION_2) is Code.none
    assert len(bed.coordinator.asked) == 1


def test_a_running_broker_switches_verification_off_and_on() -> None:
    bed = Bed()
    for enabled, asked in ((False, 0), (True, 1)):
        bed.config.dynamic["transaction.partition.verification.enable"] = enabled
        assert bed.produce(VERSION_1) is Code.none
        assert len(bed.coordinator.asked) == asked


def test_a_marker_that_arrives_during_the_question_makes_the_leader_ask_again() -> None:
    """The answer may be of the time before the abort: an append would then hold back readers for ever."""
    bed = Bed()

    def abort() -> None:
        bed.coordinator.meanwhile = None
        bed.set_entry(epoch=0, marker_offset=9, coordinator_epoch=1)

        def refuse() -> None:
            bed.coordinator.answer = Code.transaction_abortable

        bed.coordinator.meanwhile = refuse

    bed.coordinator.meanwhile = abort
    assert bed.produce() is Code.transaction_abortable
    assert len(bed.coordinator.asked) == 2


def test_the_next_transaction_of_version_2_waits_for_the_markers_of_the_last() -> None:
    bed = Bed()
    bed.coordinator.answer = Code.concurrent_transactions

    def end() -> None:
        if len(bed.coordinator.asked) == 3:
            bed.set_entry(epoch=1, marker_offset=9, coordinator_epoch=1)
            bed.coordinator.answer = Code.none

    bed.coordinator.meanwhile = end
    assert bed.produce(VERSION_2, epoch=1) is Code.none
    assert len(bed.coordinator.asked) == 4, "the third answer may be older than the marker"


def test_markers_without_end_refuse_the_batch() -> None:
    bed = Bed()
    offsets = iter(range(1_000_000))

    def mark() -> None:
        bed.host.advance(30)
        bed.set_entry(epoch=0, marker_offset=next(offsets), coordinator_epoch=1)

    bed.coordinator.meanwhile = mark
    assert bed.produce() is Code.invalid_txn_state


def test_a_batch_that_opened_the_transaction_meanwhile_is_no_refusal() -> None:
    bed = Bed()
    bed.coordinator.meanwhile = lambda: bed.set_entry(epoch=0, txn_first_offset=9)
    assert bed.produce() is Code.none


def test_leadership_that_is_lost_during_the_question_refuses_the_batch() -> None:
    bed = Bed()

    def lead_again() -> None:
        bed.partition.leadership_generation += 1

    bed.coordinator.meanwhile = lead_again
    assert bed.produce() is Code.not_leader_or_follower


def test_after_a_refusal_a_later_batch_does_not_pass_an_unknown_producer() -> None:
    bed = Bed()
    bed.coordinator.answer = Code.concurrent_transactions
    assert bed.produce(sequence=0) is Code.not_enough_replicas
    bed.coordinator.answer = Code.none
    for _ in range(2):
        assert bed.produce(sequence=4) is Code.out_of_order_sequence_number
    assert bed.produce(sequence=0) is Code.none
    bed.set_entry(epoch=0, batches=(BatchMetadata(0, 3, 0, 3, 0),))
    assert bed.produce(sequence=4) is Code.none, "the log checks it from now on"


def test_an_unknown_producer_of_version_2_begins_with_sequence_0() -> None:
    bed = Bed()
    assert bed.produce(VERSION_2, sequence=4) is Code.out_of_order_sequence_number
    assert bed.produce(VERSION_1, sequence=4) is Code.out_of_order_sequence_number, "the first question decides"
    assert bed.produce(VERSION_1, sequence=0) is Code.none
    assert Bed().produce(VERSION_1, sequence=4) is Code.none, "its older batches may be deleted"


def test_the_lowest_sequence_that_was_asked_about_counts_in_the_highest_epoch() -> None:
    """As Apache Kafka 4.2 responds (`VerificationStateEntry`)."""
    bed = Bed()
    bed.coordinator.answer = Code.producer_fenced
    assert bed.produce(epoch=99, sequence=5) is Code.invalid_producer_epoch
    bed.coordinator.answer = Code.none
    assert bed.produce(sequence=6) is Code.out_of_order_sequence_number
    assert bed.produce(VERSION_2, sequence=1) is Code.none, "the first question was no addition"
    assert bed.produce(sequence=5) is Code.none, "an older epoch does not lower the sequence"
    assert bed.produce(epoch=100, sequence=9) is Code.none, "a higher epoch counts alone"


def test_a_batch_that_was_verified_and_not_appended_holds_back_the_next() -> None:
    bed = Bed()
    assert bed.produce(sequence=3) is Code.none
    assert bed.produce(sequence=4) is Code.out_of_order_sequence_number
    assert bed.produce(sequence=3) is Code.none


def test_a_marker_ends_what_was_asked_before() -> None:
    bed = Bed()
    assert bed.produce(VERSION_2, sequence=4) is Code.out_of_order_sequence_number
    bed.set_entry(epoch=0, coordinator_epoch=0, marker_offset=7)
    assert bed.produce(VERSION_1, sequence=4) is Code.none


def test_what_was_asked_is_remembered_of_a_bounded_number_of_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_checks, "REMEMBERED_MOST", 1)
    bed = Bed()
    assert bed.produce(sequence=3) is Code.none
    assert bed.produce(sequence=3, producer_id=8) is Code.none
    assert bed.produce(sequence=4) is Code.none, "producer 7 is forgotten"


@pytest.mark.parametrize(
    ("answer", "version", "wanted"),
    [
        (Code.network_exception, 11, Code.not_enough_replicas),
        (Code.not_coordinator, 12, Code.not_enough_replicas),
        (Code.concurrent_transactions, 12, Code.concurrent_transactions),
        (Code.transaction_abortable, 10, Code.invalid_txn_state),
        (Code.transaction_abortable, 11, Code.transaction_abortable),
        (Code.producer_fenced, 12, Code.invalid_producer_epoch),
        (Code.invalid_producer_id_mapping, 11, Code.invalid_producer_id_mapping),
    ],
)
def test_refusals_have_codes_that_the_client_knows(answer: ErrorCode, version: int, wanted: ErrorCode) -> None:
    bed = Bed()
    bed.coordinator.answer = answer
    assert bed.produce(version) is wanted


@pytest.mark.parametrize(
    ("open_at", "epoch", "version", "accepted"),
    [
        (5, 3, 2, False),
        (5, 4, 2, True),
        (-1, 3, 2, True),
        (-1, 2, 2, False),
        (5, 3, 0, True),
        (-1, 3, 0, True),
        (5, 2, 0, False),
    ],
)
def test_a_late_marker_cannot_end_the_next_transaction(open_at: int, epoch: int, version: int, accepted: bool) -> None:
    entry = ProducerEntry(7, epoch=3, txn_first_offset=open_at)
    assert entry.accepts_marker(epoch, version) is accepted
