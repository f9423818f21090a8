"""A listener of an older release (harrow.as.version) lists and serves what a broker of that release does (A2)."""

from __future__ import annotations

import pytest
from harrow.cluster.config import BY_NAME
from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import INTER_BROKER_APIS, ApiKey
from harrow.cluster.wire.api_table import ApiRow, ApiTable, VersionRange
from harrow.cluster.wire.features import Feature, features_of
from harrow.cluster.wire.release_table import RELEASES
from harrow.cluster.wire.request import Request
from harrow.harness.plugin.options import AS_VERSIONS

from .fake_requests import Answer, body_of, request_of

PUBLIC = sorted(set(ApiKey) - INTER_BROKER_APIS - {ApiKey.API_VERSIONS})
SHARE_FETCH, STREAMS_GROUP_HEARTBEAT = 78, 88


def nothing(request: Request) -> None:
    """A handler."""


def table(release: str | None, *, inter_broker: bool = False) -> ApiTable:
    """A table of every API, in every version that has a schema."""
    rows: list[ApiRow] = []
    for api_key in PUBLIC:
        known = messages.versions_known(api_key)
        rows.append(ApiRow(api_key, known[0], known[-1], nothing))
    return ApiTable(rows, inter_broker=inter_broker, release=RELEASES[release] if release else None)


@pytest.mark.parametrize("release", sorted(RELEASES))
def test_each_range_is_inside_that_of_the_release(release: str) -> None:
    offered = RELEASES[release].apis
    listed = {row.api_key: (row.low, row.high) for row in table(release).versions()}
    assert set(listed) == {*PUBLIC, ApiKey.API_VERSIONS} & set(offered)
    assert all(low >= offered[key][0] and high <= offered[key][1] for key, (low, high) in listed.items())
    assert listed[ApiKey.METADATA] == offered[ApiKey.METADATA]


def test_the_setting_and_the_option_name_every_release() -> None:
    assert BY_NAME["harrow.as.version"].choices == ("", *sorted(RELEASES))
    assert tuple(sorted(RELEASES)) == AS_VERSIONS


def test_without_a_release_everything_is_listed() -> None:
    assert VersionRange(ApiKey.METADATA, 0, 13) in table(None).versions()
    assert {row.api_key for row in table(None).versions()} == {*PUBLIC, ApiKey.API_VERSIONS}


@pytest.mark.parametrize(("api_key", "version"), [(ApiKey.FETCH, 18), (ApiKey.PRODUCE, 12), (ApiKey.OFFSET_COMMIT, 10)])
def test_a_version_that_the_release_does_not_have_closes_the_connection(api_key: int, version: int) -> None:
    assert table("4.4").lookup(api_key, version).handler is nothing
    with pytest.raises(WireError, match=f"not {version}"):
        table("3.9").lookup(api_key, version)
    assert table("3.9", inter_broker=True).lookup(api_key, version).handler is nothing, "brokers use their own versions"


def test_api_versions_of_a_later_version_gets_the_range_of_the_release() -> None:
    answers: list[Answer] = []
    request = request_of(ApiKey.API_VERSIONS, 5, b"\xff", answers)
    table("4.2").lookup(ApiKey.API_VERSIONS, 5).handler(request)
    answer = messages.decode_response(ApiKey.API_VERSIONS, 0, body_of(answers[0]))
    assert answer.error_code is ErrorCode.unsupported_version
    assert [(row.min_version, row.max_version) for row in answer.api_keys] == [(0, 4)]


def test_kafka_3_9_refuses_the_requests_of_consumer_groups() -> None:
    """It lists them, and has no group.version (KIP-848)."""
    answers: list[Answer] = []
    body = messages.encode_request(68, 0, messages.schema(68, 0, "request").ConsumerGroupHeartbeatRequest(group_id="g"))
    table("3.9").lookup(68, 0).handler(request_of(68, 0, body, answers))
    answer = messages.decode_response(68, 0, body_of(answers[0]))
    assert answer.error_code is ErrorCode.unsupported_version
    assert table("4.0").lookup(68, 0).handler is nothing


def test_features_are_those_of_served_requests_and_of_the_release() -> None:
    groups, transactions = Feature("group.version", 0, 1, 1), Feature("transaction.version", 0, 2, 2)
    share, streams = Feature("share.version", 0, 2, 2), Feature("streams.version", 0, 1, 1)
    every = {SHARE_FETCH, STREAMS_GROUP_HEARTBEAT}
    assert features_of(()) == (groups, transactions)
    assert features_of(every) == (groups, share, streams, transactions)
    assert features_of({SHARE_FETCH}, RELEASES["4.4"]) == (groups, share, transactions)
    assert features_of(every, RELEASES["4.0"]) == (groups, transactions)
    assert features_of(every, RELEASES["3.9"]) == ()
