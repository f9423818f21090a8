"""Prints control records in the words of Kafka's tool.

Owns: transaction markers (KIP-98) and KRaft's control records (leader changes, header and footer of a snapshot,
voters). The key holds the type; an unknown type is printed as its number. Source: Kafka's `ControlRecordType`,
`ControlRecordUtils`, `EndTransactionMarker`, and their message files.
"""

from __future__ import annotations

from ..wire.records import CONTROL_KEY, END_TXN_VALUE, Record
from .java_text import json_text
from .schema import ByteCursor, Many, MessageError, Struct, field, read_message
from .source import DumpError

_VOTER = Struct("Voter", (field("voterId", "int32"), field("voterDirectoryId", "uuid", since=1)))
_ENDPOINT = Struct("Endpoint", (field("name", "string"), field("host", "string"), field("port", "uint16")))
_KRAFT_VERSIONS = Struct(
    "KRaftVersionFeature", (field("minSupportedVersion", "int16"), field("maxSupportedVersion", "int16"))
)
_REGISTERED_VOTER = Struct(
    "Voter",
    (
        field("voterId", "int32"),
        field("voterDirectoryId", "uuid"),
        field("endpoints", Many(_ENDPOINT)),
        field("kRaftVersionFeature", _KRAFT_VERSIONS),
    ),
)
_VERSION = field("version", "int16")

KRAFT_RECORDS = {
    2: (
        " LeaderChange: ",
        Struct(
            "LeaderChangeMessage",
            (
                _VERSION,
                field("leaderId", "int32"),
                field("voters", Many(_VOTER)),
                field("grantingVoters", Many(_VOTER)),
            ),
            newest=1,
            flexible=0,
        ),
    ),
    3: (
        " SnapshotHeader ",
        Struct("SnapshotHeaderRecord", (_VERSION, field("lastContainedLogTimestamp", "int64")), flexible=0),
    ),
    4: (" SnapshotFooter ", Struct("SnapshotFooterRecord", (_VERSION,), flexible=0)),
    5: (" KRaftVersion ", Struct("KRaftVersionRecord", (_VERSION, field("kRaftVersion", "int16")), flexible=0)),
    6: (" KRaftVoters ", Struct("VotersRecord", (_VERSION, field("voters", Many(_REGISTERED_VOTER))), flexible=0)),
}
"""Type -> (words before the record, schema of the record). The first field of a record is its version."""

_MARKERS = {0: "ABORT", 1: "COMMIT"}


def control_record_text(record: Record) -> str:
    """Returns the text that the tool adds to the line of a control record."""
    key, value = record.key or b"", record.value or b""
    if len(key) < CONTROL_KEY.size:
        raise DumpError(
            f"control record at offset {record.offset}: the key has {len(key)} bytes, fewer than {CONTROL_KEY.size}"
        )
    _, kind = CONTROL_KEY.unpack_from(key)
    if kind in _MARKERS:
        if len(value) < END_TXN_VALUE.size:
            raise DumpError(
                f"transaction marker at offset {record.offset}: the value has {len(value)} bytes, "
                f"fewer than {END_TXN_VALUE.size}"
            )
        _, coordinator_epoch = END_TXN_VALUE.unpack_from(value)
        return f" endTxnMarker: {_MARKERS[kind]} coordinatorEpoch: {coordinator_epoch}"
    if kind not in KRAFT_RECORDS:
        return f" controlType: UNKNOWN({kind})"
    words, schema = KRAFT_RECORDS[kind]
    try:
        version = min(ByteCursor(value).number("int16"), schema.newest)
        return words + json_text(read_message(schema, ByteCursor(value), version))
    except MessageError as error:
        raise DumpError(f"control record at offset {record.offset}: {error}") from None
