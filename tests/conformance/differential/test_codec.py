"""The encoder and decoder of the differential against known bytes, and each other."""

from __future__ import annotations

import json
from random import Random

import pytest
from kafka_reference import needs_jar

from . import batches
from .codec import Decoder, Encoder, UndecodableError, request_bytes, unsigned_varint
from .message_files import Message, Range, messages, parse

SAMPLE = parse(
    """
// a comment
{
  "apiKey": 1, "type": "request", "name": "SampleRequest", "validVersions": "0-3", "flexibleVersions": "2+",
  "commonStructs": [{ "name": "Row", "versions": "0+", "fields": [
    { "name": "Number", "type": "int16", "versions": "0+" },
    { "name": "Text", "type": "string", "versions": "1+", "nullableVersions": "2+" }]}],
  "fields": [
    { "name": "Rows", "type": "[]Row", "versions": "0+", "nullableVersions": "1+" },
    { "name": "Id", "type": "uuid", "versions": "3+", "taggedVersions": "3+", "tag": 4 },
    { "name": "Flag", "type": "bool", "versions": "0-2", "default": "true" }
  ]
}
"""
)
ROWS = {"rows": [{"number": -2, "text": "é"}]}


@pytest.mark.parametrize(
    ("version", "body", "encoded"),
    [
        (0, ROWS, "00000001" + "fffe" + "01"),
        (1, ROWS, "00000001" + "fffe" + "0002c3a9" + "01"),
        (1, {"rows": None, "flag": False}, "ffffffff" + "00"),
        (2, ROWS, "02" + "fffe" + "03c3a9" + "00" + "01" + "00"),
        (2, {"rows": [{"number": 1, "text": None}]}, "02" + "0001" + "00" + "00" + "01" + "00"),
        (3, {"id": "11" * 16}, "01" + "01" + "04" + "10" + "11" * 16),
        (3, {}, "01" + "00"),
    ],
)
def test_a_body_is_encoded_as_the_file_says_and_decoded_again(
    version: int, body: dict[str, object], encoded: str
) -> None:
    assert Encoder(SAMPLE, version).encode(body).hex() == encoded
    decoded = Decoder(SAMPLE, version, bytes.fromhex(encoded)).decode()
    assert Encoder(SAMPLE, version).encode(decoded).hex() == encoded


@pytest.mark.parametrize(
    ("version", "encoded"),
    [
        (0, "0000000001" + "00"),  # a byte behind the body
        (0, "00000002" + "0001" + "01"),  # a row that is missing
        (0, "ffffffff" + "01"),  # null before version 1
        (3, "01" + "01" + "04" + "0f" + "11" * 16),  # a tagged field with a wrong size
        (3, "01" + "02" + "05" + "00" + "04" + "00"),  # tags that are not sorted
    ],
)
def test_bytes_that_the_schema_does_not_explain_are_refused(version: int, encoded: str) -> None:
    with pytest.raises(UndecodableError):
        Decoder(SAMPLE, version, bytes.fromhex(encoded)).decode()


def test_a_lie_is_written_as_it_is_given() -> None:
    """Bytes that are not UTF-8 and null in a field that cannot be null."""
    rows = {"rows": [{"number": 2**20 + 1, "text": b"\xff"}, {"text": None}]}
    assert Encoder(SAMPLE, 1).encode(rows).hex() == "00000002" + "0001" + "0001ff" + "0000" + "ffff" + "01"


@pytest.mark.parametrize(("number", "encoded"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02")])
def test_varints_are_those_of_protocol_buffers(number: int, encoded: str) -> None:
    assert unsigned_varint(number).hex() == encoded


@pytest.mark.parametrize(("text", "low", "high"), [("0-3", 0, 3), ("4", 4, 4), ("2+", 2, 32_767), ("none", 1, 0)])
def test_ranges_of_versions_are_parsed(text: str, low: int, high: int) -> None:
    assert Range.parse(text) == Range(low, high)


@needs_jar
def test_a_request_has_the_bytes_that_the_java_client_sends() -> None:
    """ApiVersions v3 of the Java client 3.9, recorded from a socket."""
    body = {"clientSoftwareName": "apache-kafka-java", "clientSoftwareVersion": "3.9.1"}
    sent = request_bytes("ApiVersions", 3, body, 7, "a")
    assert sent.hex() == ("00120003000000070001610012" + b"apache-kafka-java".hex() + "06" + b"3.9.1".hex() + "00")


@needs_jar
def test_every_response_that_is_empty_decodes_in_every_version() -> None:
    """A body of defaults goes through the encoder and the decoder of all messages of the jar."""
    for message in messages().values():
        for version in range(message.versions.low, message.versions.high + 1):
            encoded = Encoder(message, version).encode({})
            decoded = Decoder(message, version, encoded).decode()
            assert Encoder(message, version).encode(decoded) == encoded, (message.name, version)


# ------------------------------------------------------------------ batches

PLAIN = (
    "00000000000000000000003affffffff02CRC0000000000000000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff0000000110000000026b027600"
)


def test_a_batch_of_one_record_has_the_bytes_of_format_v2() -> None:
    at_ms = 1_700_000_000_000
    encoded = batches.encode({"baseTimestamp": at_ms, "maxTimestamp": at_ms}).hex()
    crc = encoded[34:42]
    assert encoded == PLAIN.replace("CRC", crc)
    (decoded,) = batches.decode(bytes.fromhex(encoded))
    assert decoded["crc"] is True, "crc32c of the bytes from the attributes on"


@pytest.mark.parametrize("name", batches.NAMES)
def test_every_field_of_the_header_can_lie_under_a_right_crc(name: str) -> None:
    encoded = batches.encode({name: 1})
    fields: dict[str, int] = dict(zip(batches.NAMES, batches.HEAD.unpack_from(encoded), strict=True))
    assert fields[name] == 1
    if name not in ("crc", "length"):
        assert batches.decode(encoded)[0]["crc"] is True


def test_a_record_can_lie_in_its_length_and_have_bytes_behind_it() -> None:
    honest = batches.encode_record({}, 0)
    assert honest.hex() == "10000000026b027600"
    assert batches.encode_record({"length": -1}, 0).hex() == "01" + honest.hex()[2:]
    assert batches.encode_record({"tail": b"\xaa"}, 0).hex() == honest.hex() + "aa"
    assert batches.encode_record({"headerCount": 3}, 0)[-1] == 6


def test_numbers_are_zigzag_encoded() -> None:
    assert [batches.zigzag(each).hex() for each in (0, -1, 1, 63, 64, -65)] == ["00", "01", "02", "7e", "8001", "8101"]


def test_random_batches_decode_to_what_was_encoded() -> None:
    random = Random(3)
    for _ in range(50):
        described = {"baseSequence": random.randint(-1, 2**31 - 1), "producerId": random.randint(-1, 2**63 - 1)}
        (decoded,) = batches.decode(
            batches.encode({**described, "records": [{"value": b"x" * random.randint(0, 300)}]})
        )
        assert json.dumps({key: decoded[key] for key in described}) == json.dumps(described)


def test_the_sample_is_a_message() -> None:
    assert isinstance(SAMPLE, Message)
    assert [field.name for field in SAMPLE.fields[0].fields] == ["number", "text"]
