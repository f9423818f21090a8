"""Metadata, DescribeCluster and the configuration APIs, in every version (A4)."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.listeners import Listener
from harrow.cluster.registry import Create, Set
from harrow.cluster.wire import messages
from harrow.cluster.wire.topic_ids import topic_id_of
from manual_host import ManualHost
from request_contexts import BROKER_LISTENER, CLIENT_LISTENER

from .metadata_test_bed import MetadataTestBed, partition, run_on_host, topic, update

METADATA, UPDATE_METADATA, DESCRIBE_CLUSTER = 3, 6, 60
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL = 32, 33, 44
ID = "AQIDBAUGBwgREhMUFRYXGA"


def bed_with_orders(host: ManualHost | None = None, **settings: object) -> MetadataTestBed:
    bed = MetadataTestBed(host, **settings)  # type: ignore[arg-type] # settings only
    bed.cache.update(update(topic("orders", ID, partition(0, 2, (2, 3)), partition(1, -1, (3,)))))
    return bed


async def metadata(bed: MetadataTestBed, version: int, *names: str | None, **fields: Any) -> Any:
    rows = tuple({"name": name} for name in names)
    return await bed.request(METADATA, version, **{"topics": rows, **fields})


@pytest.mark.parametrize("version", messages.versions_known(METADATA))
def test_metadata_lists_brokers_leaders_and_replicas(version: int) -> None:
    async def scenario(host: ManualHost) -> None:
        response = await metadata(bed_with_orders(host), version, "orders")
        assert [(b.node_id, b.host, b.port) for b in response.brokers] == [
            (1, "h", 9001),
            (2, "h", 9002),
            (3, "h", 9003),
        ]
        (found,) = response.topics
        assert (found.name, found.error_code) == ("orders", ErrorCode.none)
        led, orphan = found.partitions
        assert (led.leader_id, led.replica_nodes, led.isr_nodes) == (2, (2, 3), (2, 3))
        assert (orphan.leader_id, orphan.error_code) == (-1, ErrorCode.leader_not_available)
        if version >= 1:
            assert response.controller_id == 1
        if version >= 2:
            assert response.cluster_id
        if version >= 10:
            assert found.topic_id == topic_id_of(ID)

    run_on_host(scenario)


@pytest.mark.parametrize("version", messages.versions_known(METADATA))
def test_version_decides_how_all_topics_are_requested(version: int) -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host)
        everything = await metadata(bed, version, topics=() if version == 0 else None)
        assert [row.name for row in everything.topics] == ["orders"]
        if version >= 1:
            assert (await metadata(bed, version)).topics == ()

    run_on_host(scenario)


INSIDE = replace(CLIENT_LISTENER, name="INSIDE")


@pytest.mark.parametrize(
    ("listener", "hostname", "port", "nodes"),
    [(CLIENT_LISTENER, "h", 9000, (1, 2, 3)), (BROKER_LISTENER, "h", 8000, (1, 2, 3)), (INSIDE, "i", 7000, (1, 3))],
    ids=lambda value: getattr(value, "name", None),
)
def test_brokers_are_listed_with_the_addresses_of_the_requests_listener(
    listener: Listener, hostname: str, port: int, nodes: tuple[int, ...]
) -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host)
        bed.cache.update(update(inside=(1, 3)))
        bed.listener = listener
        expected = [(node, hostname, port + node) for node in nodes]
        response = await metadata(bed, 12, "orders")
        assert [(row.node_id, row.host, row.port) for row in response.brokers] == expected
        described = await bed.request(DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False, endpoint_type=1)
        assert [(row.broker_id, row.host, row.port) for row in described.brokers] == expected

    run_on_host(scenario)


@pytest.mark.parametrize(("version", "code"), [(5, "leader_not_available"), (6, "listener_not_found")])
def test_live_leader_without_the_clients_listener_has_its_own_error(version: int, code: str) -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host)
        bed.cache.update(update(inside=(1, 3)))
        bed.listener = INSIDE
        led = (await metadata(bed, version, "orders")).topics[0].partitions[0]
        assert (led.leader_id, led.error_code) == (-1, ErrorCode[code])

    run_on_host(scenario)


def test_dead_leader_is_not_available_and_dead_replicas_are_offline() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host)
        bed.cache.update(update(brokers=(1, 3)))
        response = await metadata(bed, 12, "orders")
        led = response.topics[0].partitions[0]
        assert (led.leader_id, led.error_code) == (-1, ErrorCode.leader_not_available)
        assert (led.replica_nodes, led.offline_replicas) == ((2, 3), (2,))

    run_on_host(scenario)


def test_version_zero_lists_live_replicas_only_with_an_error() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host)
        bed.cache.update(update(brokers=(1, 2)))
        led = (await metadata(bed, 0, "orders")).topics[0].partitions[0]
        assert (led.leader_id, led.replica_nodes) == (2, (2,))
        assert led.error_code is ErrorCode.replica_not_available

    run_on_host(scenario)


def test_metadata_by_topic_id_returns_the_topic() -> None:
    async def scenario(host: ManualHost) -> None:
        rows = tuple({"name": None, "topic_id": topic_id_of(text)} for text in (ID, "BQIDBAUGBwgREhMUFRYXGA"))
        response = await bed_with_orders(host).request(METADATA, 12, topics=rows)
        assert [(row.name, row.error_code) for row in response.topics] == [
            ("orders", ErrorCode.none),
            (None, ErrorCode.unknown_topic_id),
        ]

    run_on_host(scenario)


def test_unknown_topic_is_created_once_for_repeated_requests() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host, num_partitions=3, default_replication_factor=2)
        for _ in range(2):
            (row,) = (await metadata(bed, 12, "new", "new")).topics
            assert row.error_code is ErrorCode.unknown_topic_or_partition
        await host.wait_for_tasks()
        (row,) = (await metadata(bed, 12, "new")).topics
        assert (row.error_code, len(row.partitions)) == (ErrorCode.none, 3)
        assert host.events == []

    run_on_host(scenario)


def test_auto_creation_needs_permission_brokers_and_a_valid_name() -> None:
    async def scenario(host: ManualHost) -> None:
        for bed, fields, name, code in (
            (MetadataTestBed(host), {"allow_auto_topic_creation": False}, "new", ErrorCode.unknown_topic_or_partition),
            (MetadataTestBed(host, auto_create_topics_enable=False), {}, "new", ErrorCode.unknown_topic_or_partition),
            (MetadataTestBed(host, default_replication_factor=4), {}, "new", ErrorCode.unknown_topic_or_partition),
            (MetadataTestBed(host), {}, "a b", ErrorCode.invalid_topic_exception),
        ):
            (row,) = (await metadata(bed, 12, name, **fields)).topics
            assert row.error_code is code
            assert not host.running

    run_on_host(scenario)


def test_failed_auto_creation_is_logged_and_repeated_by_the_next_request() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        await metadata(bed, 12)  # loads the cluster id
        bed.registry.is_unavailable = True
        await metadata(bed, 12, "new")
        await host.wait_for_tasks()
        assert "the registry does not respond" in str(host.events[0])
        bed.registry.is_unavailable = False
        await metadata(bed, 12, "new")
        await host.wait_for_tasks()
        assert bed.cache.topic("new") is not None

    run_on_host(scenario)


def test_metadata_is_served_without_the_registry() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host)
        bed.registry.is_unavailable = True
        response = await metadata(bed, 12, "orders")
        assert (response.cluster_id, response.topics[0].error_code) == (None, ErrorCode.none)

    run_on_host(scenario)


@pytest.mark.parametrize("version", messages.versions_known(DESCRIBE_CLUSTER))
def test_describe_cluster_returns_brokers_controller_and_cluster_id(version: int) -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        response = await bed.request(DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True)
        assert (response.error_code, response.controller_id) == (ErrorCode.none, 1)
        assert [row.broker_id for row in response.brokers] == [1, 2, 3]
        assert response.cluster_authorized_operations == 8096
        known = json.loads(bed.registry.dump()["/cluster/id"])
        assert response.cluster_id == known["id"] == bed.cache.cluster_id
        if version >= 1:
            response = await bed.request(DESCRIBE_CLUSTER, version, endpoint_type=2)
            assert response.error_code is ErrorCode.mismatched_endpoint_type

    run_on_host(scenario)


def test_all_brokers_load_one_cluster_id() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        bed.registry.apply(Create("/cluster/id", '{"version":"1","id":"theirs"}', make_parents=True))
        assert await bed.admin.load_cluster_id() == "theirs"

    run_on_host(scenario)


def test_update_metadata_is_applied_or_refused() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        fields = {field.name: getattr(update(epoch=3), field.name) for field in dataclasses.fields(update())}
        response = await bed.request(UPDATE_METADATA, 8, **fields)
        assert response.error_code is ErrorCode.none
        response = await bed.request(UPDATE_METADATA, 8, **{**fields, "controller_epoch": 2})
        assert response.error_code is ErrorCode.stale_controller_epoch

    run_on_host(scenario)


async def describe(
    bed: MetadataTestBed, version: int, kind: int, name: str, keys: tuple[str, ...] | None = None, **fields: Any
) -> Any:
    row = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (found,) = (await bed.request(DESCRIBE_CONFIGS, version, resources=(row,), **fields)).results
    return found


@pytest.mark.parametrize("version", messages.versions_known(DESCRIBE_CONFIGS))
def test_topic_settings_name_their_source(version: int) -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host, log_segment_bytes=2_000_000)
        node = '{"version":1,"config":{"min.insync.replicas":"2"}}'
        bed.registry.apply(Create("/config/topics/orders", node, make_parents=True))
        found = await describe(bed, version, 2, "orders", include_synonyms=True)
        rows = {row.name: row for row in found.configs}
        settings = {name: (rows[name].value, rows[name].config_source) for name in rows}
        assert settings["min.insync.replicas"] == ("2", 1)
        assert settings["segment.bytes"] == ("2000000", 4)
        assert settings["retention.ms"] == ("604800000", 5)
        assert settings["preallocate"] == ("false", 5)
        assert [(s.name, s.value, s.source) for s in rows["min.insync.replicas"].synonyms] == [
            ("min.insync.replicas", "2", 1),
            ("min.insync.replicas", "1", 5),
        ]
        assert not any(row.read_only for row in found.configs)

    run_on_host(scenario)


def test_broker_settings_are_read_only_and_of_this_broker() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host, num_partitions=9)
        found = await describe(bed, 4, 4, "1", keys=("num.partitions",), include_documentation=True)
        (row,) = found.configs
        assert (row.value, row.config_source, row.read_only, row.config_type) == ("9", 4, True, 3)
        assert row.documentation
        assert (await describe(bed, 4, 4, "")).configs == ()
        for kind, name, code in (
            (4, "2", ErrorCode.invalid_request),
            (2, "nothing", ErrorCode.unknown_topic_or_partition),
            (2, "a b", ErrorCode.invalid_topic_exception),
            (99, "x", ErrorCode.invalid_request),
        ):
            assert (await describe(bed, 4, kind, name)).error_code is code

    run_on_host(scenario)


async def incremental(bed: MetadataTestBed, *rows: tuple[str, int, str | None], **fields: Any) -> Any:
    configs = tuple({"name": n, "config_operation": o, "value": v} for n, o, v in rows)
    row = {"resource_type": 2, "resource_name": "orders", "configs": configs}
    (found,) = (await bed.request(INCREMENTAL, 1, resources=(row,), **fields)).responses
    return found


def overrides(bed: MetadataTestBed) -> dict[str, str]:
    found: dict[str, str] = json.loads(bed.registry.dump()["/config/topics/orders"])["config"]
    return found


def test_setting_is_appended_once_when_the_registry_fails_before_the_notification() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host)

        def lose_link() -> None:
            bed.registry.is_unavailable, bed.registry.after = True, lambda: None

        bed.registry.before = lambda _read: setattr(bed.registry, "before", at_write)

        def at_write(_write: object) -> None:
            bed.registry.reconnects, bed.registry.after = True, lose_link

        found = await incremental(bed, ("cleanup.policy", 2, "compact"))
        assert found.error_code is ErrorCode.none
        assert bed.registry.reconnects and not bed.registry.is_unavailable
        assert overrides(bed) == {"cleanup.policy": "delete,compact"}
        assert any("config_change_" in path for path in bed.registry.dump())

    run_on_host(scenario)


def test_incremental_changes_are_written_and_announced() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host)
        found = await incremental(bed, ("retention.ms", 0, "5"), ("cleanup.policy", 2, "compact"))
        assert found.error_code is ErrorCode.none
        assert overrides(bed) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
        await incremental(bed, ("retention.ms", 1, None), ("cleanup.policy", 3, "delete"))
        assert overrides(bed) == {"cleanup.policy": "compact"}
        notes = {p: d for p, d in bed.registry.dump().items() if "config_change_" in p}
        assert [json.loads(data) for data in notes.values()] == [{"version": 2, "entity_path": "topics/orders"}] * 2

    run_on_host(scenario)


def test_invalid_change_is_refused_as_a_whole() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host)
        for rows, code in (
            ([("retention.ms", 0, "soon")], ErrorCode.invalid_config),
            ([("no.such", 0, "1")], ErrorCode.invalid_config),
            ([("retention.ms", 0, None)], ErrorCode.invalid_request),
            ([("retention.ms", 2, "1")], ErrorCode.invalid_config),
            ([("retention.ms", 9, "1")], ErrorCode.invalid_request),
            ([("retention.ms", 0, "1"), ("retention.ms", 0, "2")], ErrorCode.invalid_request),
            ([("retention.ms", 0, "1"), ("no.such", 0, "1")], ErrorCode.invalid_config),
        ):
            assert (await incremental(bed, *rows)).error_code is code
        found = await incremental(bed, ("retention.ms", 0, "1"), validate_only=True)
        assert found.error_code is ErrorCode.none
        assert "/config/topics/orders" not in bed.registry.dump()

    run_on_host(scenario)


def test_concurrent_changes_of_a_topic_both_take_effect() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host)
        await incremental(bed, ("retention.ms", 0, "5"))
        theirs = '{"version":1,"config":{"retention.ms":"5","flush.ms":"9"}}'

        def race(_read: object) -> None:
            bed.registry.before = lambda _write: bed.registry.apply(Set("/config/topics/orders", theirs))

        bed.registry.before = race
        await incremental(bed, ("segment.bytes", 0, "2000000"))
        assert overrides(bed) == {"retention.ms": "5", "flush.ms": "9", "segment.bytes": "2000000"}

    run_on_host(scenario)


def test_alter_configs_replaces_all_overrides() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = bed_with_orders(host)
        await incremental(bed, ("retention.ms", 0, "5"))
        topic_row = {"resource_type": 2, "resource_name": "orders", "configs": ({"name": "flush.ms", "value": "7"},)}
        broker_row = {
            "resource_type": 4,
            "resource_name": "1",
            "configs": ({"name": "replica.lag.time.max.ms", "value": "7"},),
        }
        response = await bed.request(ALTER_CONFIGS, 2, resources=(topic_row, broker_row))
        assert [row.error_code for row in response.responses] == [ErrorCode.none, ErrorCode.invalid_request]
        assert overrides(bed) == {"flush.ms": "7"}

    run_on_host(scenario)
