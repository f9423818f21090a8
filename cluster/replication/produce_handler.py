"""The Produce handler: bytes in, `Appends`, bytes out (C5). The waiting is in `delayed_produce.py`.

Owns: `ProduceHandler`, and the tap of acknowledged batches (J6). acks=0 has no response; if a batch was refused, the
connection is closed instead (WireError), as Kafka does: that alone makes such a producer look for the new leader.

Transactional batches need a transactional id, and where the log has no open transaction of the producer, the
agreement of its coordinator (`transaction_checks.py`).

Source: Kafka's `KafkaApis.handleProduceRequest`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode, WireError
from ..ids import TopicPartition
from ..storage.results import Origin
from ..wire.api_keys import ApiKey
from ..wire.batch_header import HEADER_SIZE, header_at, is_transactional
from ..wire.compression import Codec
from ..wire.error_versions import code_at
from ..wire.produce import ProduceAnswer, ProduceEntry, ProduceRequest, decode_produce, encode_produce_response
from ..wire.request import ARRIVES
from .appends import ADMIN_CLIENT
from .current_leaders import MOVED
from .produce_result import ProduceResult

if TYPE_CHECKING:
    from ..host.seam import Buffer, Host
    from ..wire.request import Fate, OnSend, Request
    from .appends import Appends
    from .current_leaders import CurrentLeaders
    from .partition_directory import PartitionDirectory
    from .transaction_checks import TransactionChecks

ZSTD_FROM_VERSION = 7


class ProduceHandler:
    """Appends what producers send."""

    def __init__(
        self,
        host: Host,
        directory: PartitionDirectory,
        appends: Appends,
        transactions: TransactionChecks,
        leaders: CurrentLeaders,
    ) -> None:
        self._host = host
        self._leaders = leaders
        self._directory = directory
        self._appends = appends
        self._transactions = transactions

    def handle(self, request: Request) -> Coroutine[Any, Any, None] | None:
        """Append what `request` carries and answer as its acks ask. A coroutine where a coordinator must be asked."""
        produce = decode_produce(request)
        entries, refused, keys = self._sorted(produce, request.version)
        transactional_id = produce.transactional_id
        transactional = any(is_transactional(records) for records in entries.values())
        if transactional and (not transactional_id or _is_denied(request, transactional_id)):
            request.fail(ErrorCode.transactional_id_authorization_failed)
            return None
        if not request.unrestricted:
            _refuse_denied(request, entries, refused, keys)
        if transactional and transactional_id:
            unverified = self._transactions.unverified(entries, request.version)
            if unverified:
                checked = self._transactions.check(transactional_id, unverified, request.version)
                return self._check_and_append(request, produce, entries, refused, keys, checked)
        self._append(request, produce, entries, refused, keys)
        return None

    async def _check_and_append(
        self,
        request: Request,
        produce: ProduceRequest,
        entries: dict[TopicPartition, Buffer],
        refused: dict[int, ProduceResult],
        keys: list[TopicPartition | None],
        checked: Coroutine[Any, Any, dict[TopicPartition, ProduceResult]],
    ) -> None:
        """Append what the transaction coordinator allows. The connection's next request waits: batches keep order."""
        results = await checked
        for index, tp in enumerate(keys):
            if tp is not None and tp in results and index not in refused:
                refused[index] = results[tp]
        allowed = {tp: records for tp, records in entries.items() if tp not in results}
        self._append(request, produce, allowed, refused, keys)

    def _sorted(
        self, produce: ProduceRequest, version: int
    ) -> tuple[dict[TopicPartition, Buffer], dict[int, ProduceResult], list[TopicPartition | None]]:
        """The batches by partition, the entries that are refused at once, and the partition of each entry."""
        entries: dict[TopicPartition, Buffer] = {}
        refused: dict[int, ProduceResult] = {}
        keys: list[TopicPartition | None] = []
        for index, entry in enumerate(produce.entries):
            tp, problem = self._resolve(entry)
            keys.append(tp)
            if problem is not None:
                refused[index] = ProduceResult.refused(problem)
            elif tp in entries:
                refused[index] = ProduceResult.refused(ErrorCode.invalid_request)
            elif entry.records is None or (version < ZSTD_FROM_VERSION and _is_zstd(entry.records)):
                assert tp is not None
                refused[index] = self._unreadable(tp, entry, version)
            else:
                assert tp is not None
                entries[tp] = entry.records
        return entries, refused, keys

    def _unreadable(self, tp: TopicPartition, entry: ProduceEntry, version: int) -> ProduceResult:
        """Refuse an entry without records, or in a codec that its version does not have.

        As in Kafka, a partition that does not exist is named first.
        """
        if self._directory.is_unknown(tp):
            return ProduceResult.refused(ErrorCode.unknown_topic_or_partition)
        if entry.records is None:
            return ProduceResult.refused(ErrorCode.invalid_record)
        return ProduceResult.refused(
            ErrorCode.unsupported_compression_type,
            f"Produce version {version} does not allow batches in zstd; version {ZSTD_FROM_VERSION} does",
        )

    def _append(
        self,
        request: Request,
        produce: ProduceRequest,
        entries: dict[TopicPartition, Buffer],
        refused: dict[int, ProduceResult],
        keys: list[TopicPartition | None],
    ) -> None:
        acks = produce.acks

        def done(results: dict[TopicPartition, ProduceResult]) -> None:
            if acks == 0:
                self._tap_unanswered(request, produce.entries, keys, refused, results)
                codes = [row.error for row in (*refused.values(), *results.values())]
                if any(code is not ErrorCode.none for code in codes):
                    raise WireError(f"acks=0 and {', '.join(code.name for code in codes)}")
                request.no_response()
                return
            rows = [refused.get(index) or results[_known(keys[index])] for index in range(len(produce.entries))]
            self._respond(request, produce.entries, keys, rows, acks)

        self._appends.append(
            entries,
            acks=acks,
            timeout_ms=produce.timeout_ms,
            done=done,
            origin=Origin.CLIENT,
            internal_topics=request.client_id == ADMIN_CLIENT,
        )

    def refuse(self, request: Request, code: ErrorCode) -> None:
        """Answer every batch of `request` with `code`, and append none; the tap sees it."""
        produce = decode_produce(request)
        if produce.acks == 0:
            request.no_response()
            return
        keys = [self._resolve(entry)[0] for entry in produce.entries]
        given = code_at(ApiKey.PRODUCE, request.version, code)
        rows = [ProduceResult.refused(given)] * len(keys)
        self._respond(request, produce.entries, keys, rows, produce.acks)

    def _resolve(self, entry: ProduceEntry) -> tuple[TopicPartition | None, ErrorCode | None]:
        if isinstance(entry.topic, str):
            return TopicPartition(entry.topic, entry.partition), None
        directory = self._directory
        name = directory.topic_name(entry.topic) or directory.topic_elsewhere(entry.topic)
        if name is None:
            return None, ErrorCode.unknown_topic_id
        return TopicPartition(name, entry.partition), None

    def _respond(
        self,
        request: Request,
        entries: list[ProduceEntry],
        keys: list[TopicPartition | None],
        rows: list[ProduceResult],
        acks: int,
    ) -> None:
        answers = [self._answer(entry, tp, row) for entry, tp, row in zip(entries, keys, rows, strict=True)]
        moved = [row.leader_id for row in answers if row.error and row.leader_id >= 0]
        endpoints = self._leaders.endpoints(moved, request.listener.name) if moved else ()
        parts = encode_produce_response(request.version, answers, node_endpoints=endpoints)
        on_send: OnSend | None = None
        if self._host.tap.enabled:

            def sent(fate: Fate) -> int:
                for entry, tp, row in zip(entries, keys, rows, strict=True):
                    self._tap(request, entry, tp, row, acks, fate)
                return next((int(row.error) for row in rows if row.error), 0)

            on_send = sent
        request.respond_parts(parts, on_send=on_send)

    def _answer(self, entry: ProduceEntry, tp: TopicPartition | None, row: ProduceResult) -> ProduceAnswer:
        if row.error is ErrorCode.none:
            return ProduceAnswer(
                entry.topic, entry.partition, 0, row.base_offset, row.append_time_ms, row.log_start_offset
            )
        leader, epoch = -1, -1
        if row.error in MOVED and tp is not None:
            leader, epoch = self._leaders.of(tp)
        return ProduceAnswer(
            entry.topic,
            entry.partition,
            row.error,
            record_errors=row.record_errors,
            error_message=row.message or None,
            leader_id=leader,
            leader_epoch=epoch,
        )

    def _tap_unanswered(
        self,
        request: Request,
        entries: list[ProduceEntry],
        keys: list[TopicPartition | None],
        refused: dict[int, ProduceResult],
        results: dict[TopicPartition, ProduceResult],
    ) -> None:
        if self._host.tap.enabled:
            for index, entry in enumerate(entries):
                row = refused.get(index) or results[_known(keys[index])]
                self._tap(request, entry, keys[index], row, 0, ARRIVES)

    def _tap(
        self,
        request: Request,
        entry: ProduceEntry,
        tp: TopicPartition | None,
        row: ProduceResult,
        acks: int,
        fate: Fate,
    ) -> None:
        self._host.tap.produced(
            request.client_id,
            str(entry.topic) if tp is None else tp.topic,
            entry.partition,
            base_offset=row.base_offset,
            error=int(row.error) or fate.error,
            acks=acks,
            invoked_ns=request.received_ns,
            batches=_as_stored(entry.records or b"", row),
            lost=fate.lost,
        )


def _is_denied(request: Request, transactional_id: str) -> bool:
    return bool(request.denied(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, (transactional_id,)))


def _refuse_denied(
    request: Request,
    entries: dict[TopicPartition, Buffer],
    refused: dict[int, ProduceResult],
    keys: list[TopicPartition | None],
) -> None:
    """Move the batches of topics that the producer may not write from `entries` to `refused`."""
    denied = request.denied(Operation.WRITE, ResourceType.TOPIC, (tp.topic for tp in keys if tp is not None))
    for index, tp in enumerate(keys):
        if tp is not None and tp.topic in denied:
            entries.pop(tp, None)
            refused[index] = ProduceResult.refused(ErrorCode.topic_authorization_failed)


def _as_stored(records: Buffer, row: ProduceResult) -> Buffer:
    """The batch with the header that the log has: the CRC in the tap must be the one in the log."""
    return row.stored_header + records[HEADER_SIZE:] if row.stored_header else records


def _is_zstd(records: Buffer) -> bool:
    """True for a batch of magic 2 in zstd (KIP-110)."""
    if len(records) < HEADER_SIZE:
        return False
    header = header_at(records)
    return header.magic == 2 and header.codec == Codec.ZSTD


def _known(tp: TopicPartition | None) -> TopicPartition:
    assert tp is not None, "an entry without a topic was refused before"
    return tp
