"""What a member says of records: the types, and acknowledgements as requests have them (KIP-932, KIP-1222).

May fail: KafkaError(invalid_request) for batches out of order, for unknown types, for a fetch beside a renewal.

Source: KafkaApis.validateAcknowledgementBatches, AcknowledgeType.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ..errors import ErrorCode, KafkaError
from ..ids import Offset
from ..share_coordinator.values import DeliveryState
from ..wire import messages

RENEW_FROM = 2
"""The version of both requests that has AckType.RENEW."""


class AckType(IntEnum):
    """What a member says of records."""

    GAP = 0
    """The offset has no record for the application: a control record, or one that compaction removed."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


STATE_AFTER = {
    AckType.GAP: DeliveryState.ARCHIVED,
    AckType.ACCEPT: DeliveryState.ACKNOWLEDGED,
    AckType.RELEASE: DeliveryState.AVAILABLE,
    AckType.REJECT: DeliveryState.ARCHIVED,
}


class Acknowledgement(NamedTuple):
    """What a member says of the records from `first_offset` to `last_offset`: one type for all, or one for each."""

    first_offset: Offset
    last_offset: Offset
    types: tuple[AckType, ...]


def runs_of(types: Sequence[AckType], first: Offset, last: Offset) -> Iterator[tuple[AckType, Offset, Offset]]:
    """Neighbouring offsets with one type."""
    if len(types) == 1:
        yield types[0], first, last
        return
    start = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] is not types[start]:
            yield types[start], Offset(first + start), Offset(first + at - 1)
            start = at


def check_renewal(body: Any) -> None:
    """A request that renews locks fetches nothing (KIP-1222): it would come back after the locks ended."""
    given = {
        "maxBytes": body.max_bytes,
        "minBytes": body.min_bytes,
        "maxRecords": body.max_records,
        "maxWaitMs": messages.to_milliseconds(body.max_wait),
    }
    wrong = "".join(f"{name} must be set to 0, " for name, value in given.items() if value != 0)
    if wrong:
        raise KafkaError(ErrorCode.invalid_request, f"{wrong}if isRenewAck is true.")


def read_acknowledgements(batches: Sequence[Any], version: int, *, renews: bool) -> list[Acknowledgement]:
    """What a member says of one partition; KafkaError(invalid_request) for batches out of order and unknown types."""
    refused = KafkaError(ErrorCode.invalid_request)
    most = AckType.RENEW if version >= RENEW_FROM else AckType.REJECT
    found: list[Acknowledgement] = []
    end = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first < end or not types or (len(types) > 1 and last - first != len(types) - 1):
            raise refused
        if any(not AckType.GAP <= kind <= most for kind in types) or (AckType.RENEW in types and not renews):
            raise refused
        end = last
        found.append(Acknowledgement(Offset(first), Offset(last), tuple(map(AckType, types))))
    return found
