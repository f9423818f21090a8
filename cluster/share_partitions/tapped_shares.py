"""What the tap gets of share-partitions: records acquired, acknowledged, released, expired, given up (J6).

Owns: the translation into `Tap.shared`. Acquisitions are reported just before their response leaves; everything else
when it has taken effect, whether or not a response arrives: a record that was accepted is never delivered again even if
the member does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..host.seam import (
    SHARE_ACCEPTED,
    SHARE_ACQUIRED,
    SHARE_ARCHIVED,
    SHARE_COPIED,
    SHARE_EXPIRED,
    SHARE_LOADED,
    SHARE_REJECTED,
    SHARE_RELEASED,
    SHARE_RENEWED,
    Host,
    SharedRecords,
)
from ..ids import LeaderEpoch, Offset, TopicPartition
from ..share_coordinator.values import DeliveryState, SharePartition, StateBatch
from .acknowledgements import Acknowledgement, AckType, runs_of
from .in_flight_records import AcquiredRecords, DeadLetters

KINDS = {
    AckType.GAP: SHARE_ARCHIVED,
    AckType.ACCEPT: SHARE_ACCEPTED,
    AckType.RELEASE: SHARE_RELEASED,
    AckType.REJECT: SHARE_REJECTED,
    AckType.RENEW: SHARE_RENEWED,
}
GIVEN_UP = (DeliveryState.ARCHIVING, DeliveryState.ARCHIVED)
NS_IN_MS = 1_000_000


class TappedShare(Protocol):
    """What this module needs of a share-partition on its leader."""

    @property
    def share(self) -> SharePartition:
        """Which one it is."""
        ...

    @property
    def topic_partition(self) -> TopicPartition:
        """Its topic's name and its number."""
        ...

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """In which the leader loaded it."""
        ...


class TappedShares:
    """Reports to the tap of a host."""

    def __init__(self, host: Host) -> None:
        self._tap = host.tap

    @property
    def enabled(self) -> bool:
        """Whether the broker has a tap."""
        return self._tap.enabled

    def loaded(self, led: TappedShare, start: Offset, limit: int) -> None:
        """A leader has the state of a share-partition: it begins at `start`, and delivers a record `limit` times."""
        if self.enabled:
            rows = [_records(led, start, Offset(start - 1), limit)]
            self._tap.shared(led.share.group_id, "", "", rows, kind=SHARE_LOADED)

    def acquired(
        self,
        led: TappedShare,
        member: str,
        client: str,
        found: Sequence[AcquiredRecords],
        *,
        invoked_ns: int,
        until_ms: int,
        lost: bool,
    ) -> None:
        """A response gives records to a member."""
        rows = [_records(led, row.first_offset, row.last_offset, row.delivery_count) for row in found]
        self._tap.shared(
            led.share.group_id,
            member,
            client,
            rows,
            kind=SHARE_ACQUIRED,
            invoked_ns=invoked_ns,
            lock_until_ns=until_ms * NS_IN_MS,
            lost=lost,
        )

    def acknowledged(
        self,
        led: TappedShare,
        member: str,
        client: str,
        said: Iterable[Acknowledgement],
        *,
        error: int,
        invoked_ns: int,
        until_ms: int,
    ) -> None:
        """An acknowledgement has its result: it is stored, or refused with `error`."""
        if not self.enabled:
            return
        for first, last, types in said:
            for kind, start, end in runs_of(types, first, last):
                self._tap.shared(
                    led.share.group_id,
                    member,
                    client,
                    [_records(led, start, end, 0)],
                    kind=KINDS[kind],
                    error=error,
                    invoked_ns=invoked_ns,
                    lock_until_ns=until_ms * NS_IN_MS if kind is AckType.RENEW and not error else 0,
                )

    def given_up(
        self, led: TappedShare, member: str, said: Iterable[Acknowledgement], batches: Sequence[StateBatch]
    ) -> None:
        """Of what a member released, report what was delivered as often as is allowed: it is archived."""
        if not self.enabled:
            return
        released = [
            (start, end)
            for first, last, types in said
            for kind, start, end in runs_of(types, first, last)
            if kind is AckType.RELEASE
        ]
        for batch in batches:
            if batch.state in GIVEN_UP and any(s <= batch.first_offset <= e for s, e in released):
                row = _records(led, batch.first_offset, batch.last_offset, batch.delivery_count)
                self._tap.shared(led.share.group_id, member, "", [row], kind=SHARE_ARCHIVED)

    def released(self, led: TappedShare, member: str, batches: Sequence[StateBatch]) -> None:
        """The session of a member has ended: its records are free, or given up."""
        self._batches(led, member, batches, SHARE_RELEASED)

    def expired(
        self, led: TappedShare, batches: Sequence[StateBatch], held: Sequence[tuple[str, Offset, Offset]]
    ) -> None:
        """Locks have ended; `held`: who had which records before."""
        if not self.enabled:
            return
        for batch in batches:
            member = next((name for name, first, last in held if first <= batch.first_offset <= last), "")
            self._batches(led, member, [batch], SHARE_EXPIRED)

    def copied(self, led: TappedShare, letters: DeadLetters, error: int) -> None:
        """The dead-letter queue has these records, or cannot have them."""
        if self.enabled:
            row = _records(led, letters.first_offset, letters.last_offset, letters.delivery_count)
            self._tap.shared(led.share.group_id, "", "", [row], kind=SHARE_COPIED, error=error)

    def _batches(self, led: TappedShare, member: str, batches: Sequence[StateBatch], kind: int) -> None:
        if not self.enabled:
            return
        for batch in batches:
            row = _records(led, batch.first_offset, batch.last_offset, batch.delivery_count)
            self._tap.shared(led.share.group_id, member, "", [row], kind=kind)
            if batch.state in GIVEN_UP:
                self._tap.shared(led.share.group_id, member, "", [row], kind=SHARE_ARCHIVED)


def _records(led: TappedShare, first: Offset, last: Offset, count: int) -> SharedRecords:
    topic, partition = led.topic_partition
    return SharedRecords(topic, partition, first, last, count, led.leader_epoch)
