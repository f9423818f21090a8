"""Metadata, DescribeCluster and the configuration APIs, in every version (A4)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.listeners import Listener
from harrow.cluster.registry import Create, Set
from harrow.cluster.wire import messages
from harrow.cluster.wire.topic_ids import topic_id_of
from request_contexts import BROKER_LISTENER, CLIENT_LISTENER

from .metadata_test_bed import MetadataTestBed, partition, topic, update

METADATA, UPDATE_METADATA, DESCRIBE_CLUSTER = 3, 6, 60
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL = 32, 33, 44
ID = "AQIDBAUGBwgREhMUFRYXGA"


def world_with_orders(**settings: object) -> MetadataTestBed:
    world = MetadataTestBed(**settings)  # type: ignore[arg-type] # settings only
    world.cache.update(update(topic("orders", ID, partition(0, 2, (2, 3)), partition(1, -1, (3,)))))
    return world


async def metadata(world: MetadataTestBed, version: int, *names: str | None, **fields: Any) -> Any:
    s = messages.schema(METADATA, version, "request")
    rows = tuple(s.MetadataRequestTopic(name=name) for name in names)
    return await world.ask(METADATA, version, **{"topics": rows, **fields})


@pytest.mark.parametrize("version", messages.versions_known(METADATA))
def test_metadata_lists_brokers_leaders_and_replicas(version: int) -> None:
    async def story() -> None:
        answer = await metadata(world_with_orders(), version, "orders")
        assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
            (1, "h", 9001),
            (2, "h", 9002),
            (3, "h", 9003),
        ]
        (found,) = answer.topics
        assert (found.name, found.error_code) == ("orders", ErrorCode.none)
        led, orphan = found.partitions
        assert (led.leader_id, led.replica_nodes, led.isr_nodes) == (2, (2, 3), (2, 3))
        assert (orphan.leader_id, orphan.error_code) == (-1, ErrorCode.leader_not_available)
        if version >= 1:
            assert answer.controller_id == 1
        if version >= 2:
            assert answer.cluster_id
        if version >= 10:
            assert found.topic_id == topic_id_of(ID)

    asyncio.run(story())


@pytest.mark.parametrize("version", messages.versions_known(METADATA))
def test_version_decides_how_all_topics_are_requested(version: int) -> None:
    async def story() -> None:
        world = world_with_orders()
        everything = await metadata(world, version, topics=() if version == 0 else None)
        assert [row.name for row in everything.topics] == ["orders"]
        if version >= 1:
            assert (await metadata(world, version)).topics == ()

    asyncio.run(story())


INSIDE = replace(CLIENT_LISTENER, name="INSIDE")


@pytest.mark.parametrize(
    ("listener", "host", "port", "nodes"),
    [(CLIENT_LISTENER, "h", 9000, (1, 2, 3)), (BROKER_LISTENER, "h", 8000, (1, 2, 3)), (INSIDE, "i", 7000, (1, 3))],
    ids=lambda value: getattr(value, "name", None),
)  # fmt: skip
def test_brokers_are_named_by_the_listener_that_the_request_came_in_on(
    listener: Listener, host: str, port: int, nodes: tuple[int, ...]
) -> None:
    async def story() -> None:
        world = world_with_orders()
        world.cache.update(update(inside=(1, 3)))
        world.listener = listener
        expected = [(node, host, port + node) for node in nodes]
        answer = await metadata(world, 12, "orders")
        assert [(row.node_id, row.host, row.port) for row in answer.brokers] == expected
        described = await world.ask(
            DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False, endpoint_type=1
        )
        assert [(row.broker_id, row.host, row.port) for row in described.brokers] == expected

    asyncio.run(story())


@pytest.mark.parametrize(
    ("version", "code"), [(5, "leader_not_available"), (6, "listener_not_found")]
)
def test_a_live_leader_without_the_clients_listener_has_an_error_of_its_own(
    version: int, code: str
) -> None:
    async def story() -> None:
        world = world_with_orders()
        world.cache.update(update(inside=(1, 3)))
        world.listener = INSIDE
        led = (await metadata(world, version, "orders")).topics[0].partitions[0]
        assert (led.leader_id, led.error_code) == (-1, ErrorCode[code])

    asyncio.run(story())


def test_dead_leader_is_not_available_and_dead_replicas_are_offline() -> None:
    async def story() -> None:
        world = world_with_orders()
        world.cache.update(update(brokers=(1, 3)))
        answer = await metadata(world, 12, "orders")
        led = answer.topics[0].partitions[0]
        assert (led.leader_id, led.error_code) == (-1, ErrorCode.leader_not_available)
        assert (led.replica_nodes, led.offline_replicas) == ((2, 3), (2,))

    asyncio.run(story())


def test_version_zero_lists_live_replicas_only_with_an_error() -> None:
    async def story() -> None:
        world = world_with_orders()
        world.cache.update(update(brokers=(1, 2)))
        led = (await metadata(world, 0, "orders")).topics[0].partitions[0]
        assert (led.leader_id, led.replica_nodes) == (2, (2,))
        assert led.error_code is ErrorCode.replica_not_available

    asyncio.run(story())


def test_a_topic_is_found_by_its_id() -> None:
    async def story() -> None:
        s = messages.schema(METADATA, 12, "request")
        rows = tuple(
            s.MetadataRequestTopic(name=None, topic_id=topic_id_of(text))
            for text in (ID, "BQIDBAUGBwgREhMUFRYXGA")
        )
        answer = await world_with_orders().ask(METADATA, 12, topics=rows)
        assert [(row.name, row.error_code) for row in answer.topics] == [
            ("orders", ErrorCode.none),
            (None, ErrorCode.unknown_topic_id),
        ]

    asyncio.run(story())


def test_unknown_topic_is_created_once_for_repeated_requests() -> None:
    async def story() -> None:
        world = MetadataTestBed(num_partitions=3, default_replication_factor=2)
        for _ in range(2):
            (row,) = (await metadata(world, 12, "new", "new")).topics
            assert row.error_code is ErrorCode.leader_not_available
        await world.host.tasks.idle()
        (row,) = (await metadata(world, 12, "new")).topics
        assert (row.error_code, len(row.partitions)) == (ErrorCode.none, 3)
        assert world.host.trace.lines == []

    asyncio.run(story())


def test_auto_creation_needs_permission_brokers_and_a_valid_name() -> None:
    async def story() -> None:
        for world, fields, name, code in (
            (
                MetadataTestBed(),
                {"allow_auto_topic_creation": False},
                "new",
                ErrorCode.unknown_topic_or_partition,
            ),
            (
                MetadataTestBed(auto_create_topics_enable=False),
                {},
                "new",
                ErrorCode.unknown_topic_or_partition,
            ),
            (
                MetadataTestBed(default_replication_factor=4),
                {},
                "new",
                ErrorCode.invalid_replication_factor,
            ),
            (MetadataTestBed(), {}, "a b", ErrorCode.invalid_topic_exception),
        ):
            (row,) = (await metadata(world, 12, name, **fields)).topics
            assert row.error_code is code
            assert not world.host.tasks.running

    asyncio.run(story())


def test_failed_auto_creation_is_logged_and_begins_again() -> None:
    async def story() -> None:
        world = MetadataTestBed()
        await metadata(world, 12)  # learns the cluster's id
        world.registry.away = True
        await metadata(world, 12, "new")
        await world.host.tasks.idle()
        assert "nobody answers" in world.host.trace.lines[0]
        world.registry.away = False
        await metadata(world, 12, "new")
        await world.host.tasks.idle()
        assert world.cache.topic("new") is not None

    asyncio.run(story())


def test_metadata_is_served_without_the_registry() -> None:
    async def story() -> None:
        world = world_with_orders()
        world.registry.away = True
        answer = await metadata(world, 12, "orders")
        assert (answer.cluster_id, answer.topics[0].error_code) == (None, ErrorCode.none)

    asyncio.run(story())


@pytest.mark.parametrize("version", messages.versions_known(DESCRIBE_CLUSTER))
def test_describe_cluster(version: int) -> None:
    async def story() -> None:
        world = MetadataTestBed()
        answer = await world.ask(
            DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True
        )
        assert (answer.error_code, answer.controller_id) == (ErrorCode.none, 1)
        assert [row.broker_id for row in answer.brokers] == [1, 2, 3]
        assert answer.cluster_authorized_operations == 8096
        known = json.loads(world.registry.dump()["/cluster/id"])
        assert answer.cluster_id == known["id"] == world.cache.cluster_id
        if version >= 1:
            answer = await world.ask(DESCRIBE_CLUSTER, version, endpoint_type=2)
            assert answer.error_code is ErrorCode.mismatched_endpoint_type

    asyncio.run(story())


def test_all_brokers_load_one_cluster_id() -> None:
    async def story() -> None:
        world = MetadataTestBed()
        world.registry.apply(
            Create("/cluster/id", '{"version":"1","id":"theirs"}', make_parents=True)
        )
        assert await world.admin.load_cluster_id() == "theirs"

    asyncio.run(story())


def test_update_metadata_is_applied_or_refused() -> None:
    async def story() -> None:
        world = MetadataTestBed()
        fields = {name: getattr(update(epoch=3), name) for name in update().__dataclass_fields__}
        answer = await world.ask(UPDATE_METADATA, 8, **fields)
        assert answer.error_code is ErrorCode.none
        answer = await world.ask(UPDATE_METADATA, 8, **{**fields, "controller_epoch": 2})
        assert answer.error_code is ErrorCode.stale_controller_epoch

    asyncio.run(story())


async def describe(
    world: MetadataTestBed,
    version: int,
    kind: int,
    name: str,
    keys: tuple[str, ...] | None = None,
    **fields: Any,
) -> Any:
    s = messages.schema(DESCRIBE_CONFIGS, version, "request")
    row = s.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    (found,) = (await world.ask(DESCRIBE_CONFIGS, version, resources=(row,), **fields)).results
    return found


@pytest.mark.parametrize("version", messages.versions_known(DESCRIBE_CONFIGS))
def test_topic_settings_name_their_source(version: int) -> None:
    async def story() -> None:
        world = world_with_orders(log_segment_bytes=1_000_000)
        node = '{"version":1,"config":{"min.insync.replicas":"2"}}'
        world.registry.apply(Create("/config/topics/orders", node, make_parents=True))
        found = await describe(world, version, 2, "orders", include_synonyms=True)
        rows = {row.name: row for row in found.configs}
        told = {name: (rows[name].value, rows[name].config_source) for name in rows}
        assert told["min.insync.replicas"] == ("2", 1)
        assert told["segment.bytes"] == ("1000000", 4)
        assert told["retention.ms"] == ("604800000", 5)
        assert told["preallocate"] == ("false", 5)
        assert [(s.name, s.value, s.source) for s in rows["min.insync.replicas"].synonyms] == [
            ("min.insync.replicas", "2", 1),
            ("min.insync.replicas", "1", 5),
        ]
        assert not any(row.read_only for row in found.configs)

    asyncio.run(story())


def test_broker_settings_are_read_only_and_of_this_broker() -> None:
    async def story() -> None:
        world = MetadataTestBed(num_partitions=9)
        found = await describe(
            world, 4, 4, "1", keys=("num.partitions",), include_documentation=True
        )
        (row,) = found.configs
        assert (row.value, row.config_source, row.read_only, row.config_type) == ("9", 4, True, 3)
        assert row.documentation
        assert (await describe(world, 4, 4, "")).configs == ()
        for kind, name, code in (
            (4, "2", ErrorCode.invalid_request),
            (2, "nothing", ErrorCode.unknown_topic_or_partition),
            (2, "a b", ErrorCode.invalid_topic_exception),
            (99, "x", ErrorCode.invalid_request),
        ):
            assert (await describe(world, 4, kind, name)).error_code is code

    asyncio.run(story())


async def incremental(
    world: MetadataTestBed, *rows: tuple[str, int, str | None], **fields: Any
) -> Any:
    s = messages.schema(INCREMENTAL, 1, "request")
    configs = tuple(s.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in rows)
    row = s.AlterConfigsResource(resource_type=2, resource_name="orders", configs=configs)
    (found,) = (await world.ask(INCREMENTAL, 1, resources=(row,), **fields)).responses
    return found


def overrides(world: MetadataTestBed) -> dict[str, str]:
    found: dict[str, str] = json.loads(world.registry.dump()["/config/topics/orders"])["config"]
    return found


def test_setting_is_appended_once_when_the_registry_fails_before_the_notification() -> None:
    async def story() -> None:
        world = world_with_orders()

        def lose_link() -> None:
            world.registry.away, world.registry.after = True, lambda: None

        world.registry.before = lambda _read: setattr(world.registry, "before", at_write)

        def at_write(_write: object) -> None:
            world.registry.comes_back, world.registry.after = True, lose_link

        found = await incremental(world, ("cleanup.policy", 2, "compact"))
        assert found.error_code is ErrorCode.none
        assert world.registry.comes_back and not world.registry.away
        assert overrides(world) == {"cleanup.policy": "delete,compact"}
        assert any("config_change_" in path for path in world.registry.dump())

    asyncio.run(story())


def test_incremental_changes_are_written_and_announced() -> None:
    async def story() -> None:
        world = world_with_orders()
        found = await incremental(world, ("retention.ms", 0, "5"), ("cleanup.policy", 2, "compact"))
        assert found.error_code is ErrorCode.none
        assert overrides(world) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
        await incremental(world, ("retention.ms", 1, None), ("cleanup.policy", 3, "delete"))
        assert overrides(world) == {"cleanup.policy": "compact"}
        notes = {p: d for p, d in world.registry.dump().items() if "config_change_" in p}
        assert [json.loads(data) for data in notes.values()] == [
            {"version": 2, "entity_path": "topics/orders"}
        ] * 2

    asyncio.run(story())


def test_invalid_change_is_refused_as_a_whole() -> None:
    async def story() -> None:
        world = world_with_orders()
        for rows, code in (
            ([("retention.ms", 0, "soon")], ErrorCode.invalid_config),
            ([("no.such", 0, "1")], ErrorCode.invalid_config),
            ([("retention.ms", 0, None)], ErrorCode.invalid_request),
            ([("retention.ms", 2, "1")], ErrorCode.invalid_config),
            ([("retention.ms", 9, "1")], ErrorCode.invalid_request),
            ([("retention.ms", 0, "1"), ("retention.ms", 0, "2")], ErrorCode.invalid_request),
            ([("retention.ms", 0, "1"), ("no.such", 0, "1")], ErrorCode.invalid_config),
        ):
            assert (await incremental(world, *rows)).error_code is code
        found = await incremental(world, ("retention.ms", 0, "1"), validate_only=True)
        assert found.error_code is ErrorCode.none
        assert "/config/topics/orders" not in world.registry.dump()

    asyncio.run(story())


def test_concurrent_changes_of_a_topic_both_take_effect() -> None:
    async def story() -> None:
        world = world_with_orders()
        await incremental(world, ("retention.ms", 0, "5"))
        theirs = '{"version":1,"config":{"retention.ms":"5","flush.ms":"9"}}'

        def race(_read: object) -> None:
            world.registry.before = lambda _write: world.registry.apply(
                Set("/config/topics/orders", theirs)
            )

        world.registry.before = race
        await incremental(world, ("segment.bytes", 0, "99"))
        assert overrides(world) == {"retention.ms": "5", "flush.ms": "9", "segment.bytes": "99"}

    asyncio.run(story())


def test_alter_configs_replaces_all_overrides() -> None:
    async def story() -> None:
        world = world_with_orders()
        await incremental(world, ("retention.ms", 0, "5"))
        s = messages.schema(ALTER_CONFIGS, 2, "request")
        topic_row = s.AlterConfigsResource(
            resource_type=2,
            resource_name="orders",
            configs=(s.AlterableConfig(name="flush.ms", value="7"),),
        )
        broker_row = s.AlterConfigsResource(
            resource_type=4,
            resource_name="1",
            configs=(s.AlterableConfig(name="replica.lag.time.max.ms", value="7"),),
        )
        answer = await world.ask(ALTER_CONFIGS, 2, resources=(topic_row, broker_row))
        assert [row.error_code for row in answer.responses] == [
            ErrorCode.none,
            ErrorCode.invalid_request,
        ]
        assert overrides(world) == {"flush.ms": "7"}

    asyncio.run(story())
