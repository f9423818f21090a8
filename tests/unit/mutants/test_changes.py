"""What a mutant on the wire changes in a request, and what it leaves as it is."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.mutants.changes import CHANGES, Change
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batches import headers, validate
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.records import NewRecord, build_batch, decode_records
from harrow.harness.mutants.catalogue import MUTANTS, WIRE

RECORDS: list[NewRecord] = [(b"a", b"1", [("h", b"x")]), (b"b", b"2", [])]


def change_of(mutant: str, api: ApiKey = ApiKey.PRODUCE) -> Change:
    (found,) = [change for change in CHANGES[mutant] if change.api_key == api]
    return found


def changed(mutant: str, request: Any, api: ApiKey = ApiKey.PRODUCE) -> Any:
    change = change_of(mutant, api)
    assert change.request is not None
    return change.request(request)


def produce(batch: bytes, *, acks: int = -1, transactional_id: str | None = None, version: int = 12) -> Any:
    rows = [{"index": 0, "records": batch}]
    return client_request(
        ApiKey.PRODUCE,
        version,
        acks=acks,
        transactional_id=transactional_id,
        timeout=1_000,
        topic_data=[{"name": "orders", "partition_data": rows}],
    ).entity


def idempotent(*, transactional: bool = False) -> bytes:
    return build_batch(
        RECORDS,
        timestamp_ms=5,
        timestamps_ms=[5, 9],
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        codec=1,
        is_transactional=transactional,
    )


def batch_in(request: Any) -> bytes:
    return bytes(request.topic_data[0].partition_data[0].records)


def test_every_mutant_on_the_wire_is_in_the_catalogue() -> None:
    assert set(CHANGES) == {mutant.name for mutant in MUTANTS if mutant.where == WIRE}


@pytest.mark.parametrize(("acks", "transactional_id", "expected"), [(-1, None, 1), (0, None, None), (-1, "t", None)])
def test_acks_of_all_replicas_become_those_of_the_leader(
    acks: int, transactional_id: str | None, expected: int | None
) -> None:
    found = changed("acks-of-leader", produce(idempotent(), acks=acks, transactional_id=transactional_id))
    assert (None if found is None else found.acks) == expected


def test_a_batch_loses_its_producer_and_keeps_its_records() -> None:
    found = batch_in(changed("no-idempotence", produce(idempotent())))
    header = validate(found, max_bytes=1 << 20)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert decode_records(found) == decode_records(idempotent())


@pytest.mark.parametrize("mutant", ["no-idempotence", "sent-twice"])
def test_a_transactional_batch_stays_as_it_is(mutant: str) -> None:
    assert changed(mutant, produce(idempotent(transactional=True), transactional_id="t")) is None


def test_the_last_record_is_there_twice() -> None:
    found = batch_in(changed("sent-twice", produce(idempotent())))
    assert validate(found, max_bytes=1 << 20).producer_id == -1
    rows = decode_records(found)
    assert [(row.key, row.value, row.headers, row.timestamp) for row in rows] == [
        (b"a", b"1", (("h", b"x"),), 5),
        (b"b", b"2", (), 9),
        (b"b", b"2", (), 9),
    ]
    assert [row.offset for row in rows] == [0, 1, 2]


def test_records_lose_their_headers_and_the_batch_its_nothing_else() -> None:
    found = batch_in(changed("no-headers", produce(idempotent())))
    ((_, _, header),) = headers(found)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 3)
    assert validate(found, max_bytes=1 << 20).attributes & 7 == 1, "the codec stays"
    assert [(row.value, row.headers, row.timestamp) for row in decode_records(found)] == [(b"1", (), 5), (b"2", (), 9)]
    plain = build_batch([(b"k", b"v", [])], timestamp_ms=1)
    assert changed("no-headers", produce(plain)) is None


def test_a_refused_produce_counts_as_sent() -> None:
    change = change_of("failed-is-sent")
    assert change.response is not None
    assert change.request is None
    s = messages.schema(int(ApiKey.PRODUCE), 12, "response")
    row = s.PartitionProduceResponse(index=0, error_code=ErrorCode.not_enough_replicas, base_offset=-1)
    refused = s.root(responses=(s.TopicProduceResponse(name="orders", partition_responses=(row,)),))
    found = change.response(refused)
    assert found is not None
    assert found.responses[0].partition_responses[0].error_code is ErrorCode.none
    assert change.response(found) is None, "nothing is left to change"


@pytest.mark.parametrize(("api", "version"), [(ApiKey.OFFSET_COMMIT, 8), (ApiKey.TXN_OFFSET_COMMIT, 3)])
def test_each_committed_offset_is_one_too_far(api: ApiKey, version: int) -> None:
    rows = [{"partition_index": index, "committed_offset": index * 10} for index in (0, 1)]
    request = client_request(api, version, group_id="billing", topics=[{"name": "orders", "partitions": rows}]).entity
    found = changed("offset-too-far", request, api)
    assert [row.committed_offset for row in found.topics[0].partitions] == [1, 11]
    assert dataclasses.replace(found, topics=request.topics) == request, "nothing else changes"


def test_the_offsets_of_a_transaction_are_not_served() -> None:
    api = ApiKey.TXN_OFFSET_COMMIT
    rows = [{"partition_index": 0, "committed_offset": 4}]
    request = client_request(api, 3, group_id="billing", topics=[{"name": "orders", "partitions": rows}]).entity
    assert not change_of("offsets-left-out", api).served
    assert changed("offsets-left-out", request, api).topics == ()


def test_only_a_fetch_of_committed_records_is_weakened() -> None:
    committed = client_request(ApiKey.FETCH, 12, isolation_level=1, topics=[]).entity
    assert changed("read-uncommitted", committed, ApiKey.FETCH).isolation_level == 0
    plain = dataclasses.replace(committed, isolation_level=0)
    assert changed("read-uncommitted", plain, ApiKey.FETCH) is None
