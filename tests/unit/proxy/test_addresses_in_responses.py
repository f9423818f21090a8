"""The proxy replaces brokers' addresses in every response of Kafka 4.2 that has them, at every version (J2, J6)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.listeners import Address
from harrow.cluster.proxy.addresses import IDS, rewrite, walk_of
from harrow.cluster.proxy.apis import CONTROLLER_APIS, check_passes, cut_api_versions, passing_versions
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map
from kio_entities import entities, kio_bytes

PASSING = [(key, version) for key in sorted(api_key_map) for version in passing_versions(key)]
SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
REWRITTEN = [
    (int(key), version)
    for key, versions in {
        ApiKey.PRODUCE: range(10, 14),
        ApiKey.FETCH: range(16, 19),
        ApiKey.METADATA: range(14),
        ApiKey.FIND_COORDINATOR: range(7),
        ApiKey.DESCRIBE_CLUSTER: range(3),
        SHARE_FETCH: (1, 2),
        SHARE_ACKNOWLEDGE: (1, 2),
    }.items()
    for version in versions
]
"""Every response with brokers' addresses. A list and no search: each worker imports this module, and a search
imports all of kio's responses."""
SLOW_OR_LARGE = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
OTHER_HOSTS = {ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS, 88, 89}
"""Responses with hosts that are not brokers: ACLs, and Kafka Streams applications."""


def address_of(node_id: int, old: Address) -> Address | None:
    return Address(f"proxy-of-{old.host}"[:40], node_id % 65_536) if node_id >= 0 else None


def replaced(value: Any) -> Any:
    """The entity with replaced addresses, by its fields' names."""
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return tuple(replaced(item) for item in items)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    new: dict[str, Any] = {field.name: replaced(getattr(value, field.name)) for field in dataclasses.fields(value)}
    identity = next((name for name in IDS if name in new), "")
    if identity and {"host", "port"} <= new.keys():
        address = address_of(new[identity], Address(new["host"], new["port"]))
        if address is not None:
            new |= address._asdict()
    return dataclasses.replace(value, **new)


def test_the_responses_with_brokers_addresses_are_these() -> None:
    found = {(key, version) for key, version in PASSING if walk_of(key, version) is not None}
    assert found == set(REWRITTEN)


def names_hosts(entity_type: Any) -> bool:
    """Whether a message has a field for a host anywhere."""
    for field in dataclasses.fields(entity_type):
        if field.name == "host":
            return True
        arguments = (field.type, *getattr(field.type, "__args__", ()))
        if any(dataclasses.is_dataclass(each) and names_hosts(each) for each in arguments):
            return True
    return False


def test_no_response_passes_with_the_host_of_a_foreign_broker() -> None:
    with_hosts = {row for row in PASSING if names_hosts(messages.response_type(*row))}
    assert set(REWRITTEN) < with_hosts
    assert {key for key, _ in with_hosts - set(REWRITTEN)} <= OTHER_HOSTS


@pytest.mark.parametrize(("api_key", "version"), REWRITTEN)
def test_addresses_are_replaced_and_every_other_byte_stays(api_key: int, version: int) -> None:
    @settings(max_examples=12, suppress_health_check=SLOW_OR_LARGE)
    @given(entities(messages.response_type(api_key, version)))
    def check(entity: Any) -> None:
        frame = b"\0\0\0\7" + kio_bytes(entity)
        found = rewrite(api_key, version, frame, 4, address_of)
        assert (frame if found is None else found)[4:] == kio_bytes(replaced(entity))

    check()


@pytest.mark.parametrize(("api_key", "version"), [(3, 0), (3, 13), (0, 13), (1, 18), (10, 6)])
def test_damaged_responses_raise_wire_errors_only(api_key: int, version: int) -> None:
    @settings(max_examples=60, suppress_health_check=SLOW_OR_LARGE)
    @given(entities(messages.response_type(api_key, version)), st.data())
    def check(entity: Any, data: st.DataObject) -> None:
        body = bytearray(kio_bytes(entity))
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
        cut = bytes(body[: data.draw(st.integers(0, len(body)))])
        for frame in (bytes(body), cut):
            try:
                rewrite(api_key, version, frame, 0, address_of)
            except WireError:
                continue

    check()


def here(_node_id: int, _old: Address) -> Address:
    return Address("here", 1)


def test_an_unknown_tagged_field_and_an_unknown_error_code_pass() -> None:
    s = messages.schema(ApiKey.METADATA, 9, "response")
    entity = s.MetadataResponse(
        brokers=(s.MetadataResponseBroker(node_id=1, host="far", port=9092, rack=None),),
        topics=(s.MetadataResponseTopic(error_code=ErrorCode.none, name="t", partitions=()),),
        cluster_id="c",
        controller_id=1,
    )
    body = bytearray(kio_bytes(entity))
    assert body[-1] == 0
    body[-1:] = b"\1\x63\3abc"  # tag 99 with three bytes
    at = body.index(b"\2t") - 2
    body[at : at + 2] = (30_000).to_bytes(2, "big")
    found = rewrite(ApiKey.METADATA, 9, bytes(body), 0, here)
    assert found is not None
    assert found == bytes(body).replace(b"\4far\0\0\x23\x84", b"\5here\0\0\0\1")


# ------------------------------------------------------------------------------ ApiVersions


def api_versions(version: int, rows: dict[int, tuple[int, int]]) -> bytes:
    s = messages.schema(ApiKey.API_VERSIONS, version, "response")
    keys = tuple(s.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in rows.items())
    return b"\0\0\0\1" + kio_bytes(s.ApiVersionsResponse(error_code=ErrorCode.none, api_keys=keys))


def advertised(version: int, frame: bytes) -> dict[int, tuple[int, int]]:
    entity = messages.decode_response(ApiKey.API_VERSIONS, version, frame, 4)
    return {row.api_key: (row.min_version, row.max_version) for row in entity.api_keys}


@pytest.mark.parametrize("version", range(6))
def test_ranges_are_cut_to_the_versions_that_the_proxy_can_read(version: int) -> None:
    rows = {
        0: (0, 99),
        1: (0, 18),
        3: (5, 20),
        10: (0, 3),
        17: (0, 1),
        36: (0, 2),
        55: (0, 2),
        52: (0, 2),
        18: (0, 9),
        71: (0, 0),
        99: (0, 3),
        2: (90, 91),
    }
    found = advertised(version, cut_api_versions(version, api_versions(version, rows), 4))
    unchanged = {10: (0, 3), 36: (0, 2), 71: (0, 0)}
    assert found == {0: (0, 13), 1: (4, 18), 3: (5, 13), 17: (1, 1), 55: (0, 1), 18: (0, 5), **unchanged}


def test_the_refusal_of_a_version_of_api_versions_has_the_body_of_version_0() -> None:
    s = messages.schema(ApiKey.API_VERSIONS, 0, "response")
    row = s.ApiVersion(api_key=18, min_version=0, max_version=7)
    frame = b"\0\0\0\1" + kio_bytes(s.ApiVersionsResponse(error_code=ErrorCode.unsupported_version, api_keys=(row,)))
    assert advertised(0, cut_api_versions(4, frame, 4)) == {18: (0, 5)}


@pytest.mark.parametrize(
    ("api_key", "version", "reason"),
    [
        (17, 0, "versions 1 to 1, not 0"),
        (52, 0, "does not pass"),
        (3, 14, "0 to 13, not 14"),
        (0, 2, "3 to 13, not 2"),
        (4, 7, "does not pass"),
        (32_000, 0, "does not pass"),
        (55, 2, "0 to 1, not 2"),
    ],
)
def test_a_request_that_does_not_pass_is_refused_with_the_reason(api_key: int, version: int, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        check_passes(api_key, version)
    assert not CONTROLLER_APIS & {key for key, _ in PASSING}
