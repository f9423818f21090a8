"""TxnOffsetCommit, and the end of transactions in partitions of `__consumer_offsets` (F6).

Owns: the handler of TxnOffsetCommit, and `end_transaction`, which writes a marker and makes the offsets of its
producer valid. Offsets of a transaction are logged in transactional batches with acks=all; until the marker
OffsetFetch shows the offset before, or UNSTABLE_OFFSET_COMMIT to a consumer that requires stable offsets (KIP-447).

Order: the transaction coordinator agrees (or, from v5 on, adds the partition), then the group checks the member and its
generation, then the offsets are written: so a member that was replaced while the coordinator was asked is fenced.

The tap gets a row of each offset when the commit marker has made it valid, and none of an aborted transaction.

Source: Kafka's GroupCoordinatorService.commitTransactionalOffsets, OffsetMetadataManager; KIP-447, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..authorizer import Operation, ResourceType
from ..coordinators import CoordinatorWrite, EndMarker, KeyValue, TransactionalProducer
from ..errors import ErrorCode, KafkaError
from ..host.seam import OFFSET_SENT, Committer
from ..host.seam.failpoints import AFTER_TXN_OFFSETS, BEFORE_TXN_OFFSETS, passes
from ..ids import Offset, TopicPartition
from ..internal_topics import OFFSETS
from ..replication.transaction_checks import error_for_client
from ..wire import messages
from .consumer.member_checks import check_transactional
from .group_shard import GroupShard
from .hosted_group import HostedGroup
from .membership import Group
from .membership_values import NO_MEMBER
from .offset_rows import check_metadata, errors_by_topic, offset_rows, offset_value, refused_rows
from .records import OffsetValue, encode_offset_key, encode_offset_value
from .service import GroupService
from .states import GroupState
from .streams.member_checks import check_transactional as check_streams_transactional
from .write_errors import OFFSET_ERRORS

if TYPE_CHECKING:
    from ..replication import ReplicaManager
    from ..wire.request import Request

VERSIONS = (0, 6)
ADDS_FROM = 5
"""First version whose clients do not send AddOffsetsToTxn (KIP-890)."""
ABORTABLE_FROM = 4
"""First version whose clients know TRANSACTION_ABORTABLE."""
MEMBER_EPOCH_FROM = 6
"""First version whose clients know GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH; topics have ids instead of names
(KIP-1319)."""

NOT_HERE = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)


class EndOfTransaction(Protocol):
    """The marker of a transaction, as the transaction coordinator sends it."""

    @property
    def producer_id(self) -> int:
        """Whose transaction."""
        ...

    @property
    def producer_epoch(self) -> int:
        """The epoch of the marker."""
        ...

    @property
    def coordinator_epoch(self) -> int:
        """The epoch of the transaction coordinator."""
        ...

    @property
    def commit(self) -> bool:
        """True for a commit."""
        ...


class TransactionalOffsetsApi:
    """Offsets that are committed in transactions."""

    def __init__(self, service: GroupService, replicas: ReplicaManager) -> None:
        self._service = service
        self._replicas = replicas
        self._host = service.host

    # ---- TxnOffsetCommit ---------------------------------------------------------------------------

    async def txn_offset_commit(self, request: Request) -> None:
        """TxnOffsetCommit v0 to v6; v6 names topics by id."""
        body = request.decode()
        request.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body.transactional_id)
        request.require(Operation.READ, ResourceType.GROUP, body.group_id)
        rows = list(offset_rows(body, self._service.cache))
        refused = refused_rows(self._service, request, (tp for tp, _ in rows))
        if all(refused):
            self._respond(request, body, refused)
            return
        try:
            await self._verify(body, request.version)
            accepted = [
                tp
                for known, (tp, row) in zip(refused, rows, strict=True)
                if not (known or check_metadata(self._service, row))
            ]
            shard, hosted = self._committer(body, request.version, accepted)
        except KafkaError as error:
            self._respond(request, body, [known or error.code for known in refused])
            return
        refused = [error or check_metadata(self._service, row) for error, (_, row) in zip(refused, rows, strict=True)]
        now_ms = self._host.clock.wall_ms()
        values = {
            tp: offset_value(row, now_ms)
            for error, (tp, row) in zip(refused, rows, strict=True)
            if error is ErrorCode.none
        }

        def done(error: ErrorCode) -> None:
            shard.discard_if_idle(hosted)
            self._respond(request, body, [row or error for row in refused])

        if values:
            self._write(shard, hosted, values, _committer_of(request, body), done)
        else:
            done(ErrorCode.none)

    async def _verify(self, body: Any, version: int) -> None:
        """KafkaError unless the transaction coordinator has the group's partition in the transaction."""
        if not body.group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        shard = self._service.shard_of(body.group_id)
        home = TopicPartition(OFFSETS.name, shard.shard.number)
        error = await self._replicas.transaction_checks.check_offsets(
            home, body.transactional_id, body.producer_id, body.producer_epoch, add=version >= ADDS_FROM
        )
        if error is not ErrorCode.none:
            raise KafkaError(_error_for_client(error, version))

    def _committer(
        self, body: Any, version: int, partitions: Sequence[TopicPartition]
    ) -> tuple[GroupShard, HostedGroup]:
        shard, hosted = self._service.find(body.group_id)
        generation = _generation(body)
        if hosted is None:
            if generation >= 0:
                since_1319 = version >= MEMBER_EPOCH_FROM
                raise KafkaError(ErrorCode.group_id_not_found if since_1319 else ErrorCode.illegal_generation)
            return shard, shard.create(body.group_id)
        member_id = getattr(body, "member_id", NO_MEMBER)
        instance = getattr(body, "group_instance_id", None)
        if hosted.share is not None:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {body.group_id} is not a consumer group.")
        try:
            if hosted.consumer is not None:
                named = [(self._service.cache.topic_id(tp.topic), tp.partition) for tp in partitions]
                data, member = hosted.consumer.data, (member_id, instance)
                check_transactional(data, body.group_id, member, generation, named)
                return shard, hosted
            if hosted.streams is not None:
                data_of_streams, member = hosted.streams.data, (member_id, instance)
                check_streams_transactional(data_of_streams, body.group_id, member, generation, partitions)
                return shard, hosted
        except KafkaError as refused:
            if refused.code is ErrorCode.stale_member_epoch and version < MEMBER_EPOCH_FROM:
                raise KafkaError(ErrorCode.illegal_generation) from None
            raise
        error = _check_member(hosted.group, member_id, instance, generation)
        if error is not ErrorCode.none:
            raise KafkaError(error)
        return shard, hosted

    def _write(
        self,
        shard: GroupShard,
        hosted: HostedGroup,
        values: Mapping[TopicPartition, OffsetValue],
        by: Committer,
        done: Callable[[ErrorCode], None],
    ) -> None:
        self._host.failpoints.hit(BEFORE_TXN_OFFSETS)
        offsets = hosted.offsets
        producer = TransactionalProducer(by.producer_id, by.producer_epoch)
        invoked_ns = self._host.clock.monotonic_ns()
        records: list[KeyValue] = [
            (encode_offset_key(hosted.group_id, tp), encode_offset_value(value)) for tp, value in values.items()
        ]

        def committed(base_offset: Offset) -> None:
            for delta, (tp, value) in enumerate(values.items()):
                offsets.put_pending(producer.producer_id, tp, value, Offset(base_offset + delta))
            offsets.end_in_transaction(values)
            tap = self._host.tap
            if tap.enabled:
                sent = [(tp, value.offset) for tp, value in values.items()]
                tap.committed(hosted.group_id, sent, error=0, invoked_ns=invoked_ns, by=by, kind=OFFSET_SENT)
            # the offsets are written, whatever the failpoint was armed with
            passes(self._host.failpoints, self._host.trace, AFTER_TXN_OFFSETS)
            done(ErrorCode.none)

        def failed(error: ErrorCode) -> None:
            offsets.end_in_transaction(values)
            done(error)

        offsets.begin_in_transaction(values)
        shard.shard.write(
            CoordinatorWrite(
                records=records, committed=committed, failed=failed, errors=OFFSET_ERRORS, producer=producer
            )
        )

    def _respond(self, request: Request, body: Any, errors: Sequence[ErrorCode]) -> None:
        s = messages.response(request)
        row, partition = s.TxnOffsetCommitResponseTopic, s.TxnOffsetCommitResponsePartition
        topics = errors_by_topic(self._service, body, errors, row, partition)
        request.respond(s.TxnOffsetCommitResponse(topics=topics))

    # ---- the end of a transaction ------------------------------------------------------------------

    def end_transaction(
        self, partition: int, marker: EndOfTransaction, invoked_ns: int, done: Callable[[ErrorCode], None]
    ) -> None:
        """Write the marker to a partition of `__consumer_offsets`; its offsets become valid, or are dropped.

        NOT_LEADER_OR_FOLLOWER while the shard is not here or loading; else the error of the log.
        """
        hosted = self._service.runtime.hosted(partition)
        if hosted is None or not hosted.shard.is_active:
            done(ErrorCode.not_leader_or_follower)
            return
        machine = hosted.machine

        def committed(_base_offset: Offset) -> None:
            self.marker_written(machine, marker, invoked_ns, done)

        def failed(error: ErrorCode) -> None:
            done(ErrorCode.not_leader_or_follower if error in NOT_HERE else error)

        hosted.shard.write(
            CoordinatorWrite(
                records=(),
                committed=committed,
                failed=failed,
                errors={},
                producer=TransactionalProducer(marker.producer_id, marker.producer_epoch),
                end_marker=EndMarker(marker.commit, marker.coordinator_epoch),
            )
        )

    def marker_written(
        self, machine: GroupShard, marker: EndOfTransaction, invoked_ns: int, done: Callable[[ErrorCode], None]
    ) -> None:
        """The marker is in the log: acknowledge it when its offsets have taken effect (rule of KAFKA-17507)."""
        self.take_effect(machine, marker, invoked_ns)
        done(ErrorCode.none)

    def take_effect(self, machine: GroupShard, marker: EndOfTransaction, invoked_ns: int) -> None:
        """Make the offsets of a committed transaction valid, drop those of an aborted one."""
        ended = machine.end_transaction(marker.producer_id, commit=marker.commit)
        tap = self._host.tap
        by = Committer(producer_id=marker.producer_id, producer_epoch=marker.producer_epoch)
        for group_id, rows in ended if tap.enabled else ():
            offsets = [(tp, value.offset) for tp, value in rows]
            tap.committed(group_id, offsets, error=0, invoked_ns=invoked_ns, by=by)


def _committer_of(request: Request, body: Any) -> Committer:
    """Who sent a TxnOffsetCommit; the member and its generation are named from version 3 on."""
    return Committer(
        request.client_id,
        getattr(body, "member_id", NO_MEMBER),
        _generation(body),
        body.producer_id,
        body.producer_epoch,
    )


def _generation(body: Any) -> int:
    """The generation, or the member epoch, that a TxnOffsetCommit names; -1 where it names none (versions 0 to 2)."""
    return int(getattr(body, "generation_id_or_member_epoch", getattr(body, "generation_id", -1)))


def _check_member(group: Group, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
    """NONE when this member may commit in a transaction (KIP-447).

    A client that names no member is not checked: older versions of the request cannot name one.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.coordinator_not_available
    if generation < 0 and (group.state is GroupState.EMPTY or (member_id == NO_MEMBER and group_instance_id is None)):
        return ErrorCode.none
    error = group.members.check(member_id, group_instance_id)
    if error is ErrorCode.none and generation != group.generation:
        return ErrorCode.illegal_generation
    return error


def _error_for_client(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.not_leader_or_follower:
        return ErrorCode.coordinator_load_in_progress
    return error_for_client(
        error,
        again=ErrorCode.coordinator_load_in_progress,
        adds=version >= ADDS_FROM,
        knows_abortable=version >= ABORTABLE_FROM,
    )
