"""CreateTopics and DeleteTopics: refusals, creation, deletion, and waiting for both (A4)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.registry import Create
from harrow.cluster.wire import messages
from harrow.cluster.wire.topic_ids import text_of
from manual_host import ManualHost

from .metadata_test_bed import MetadataTestBed, run_on_host, update

CREATE, DELETE = 19, 20


def creatable(version: int = 7, **fields: Any) -> Any:
    values = {"name": "orders", "num_partitions": 2, "replication_factor": 3, **fields}
    values["configs"] = tuple({"name": n, "value": v} for n, v in dict(values.get("configs", ())).items())
    values["assignments"] = tuple(
        {"partition_index": p, "broker_ids": tuple(ids)} for p, ids in dict(values.get("assignments", ())).items()
    )
    return {**values}


async def create(
    bed: MetadataTestBed, *topics: Any, version: int = 7, timeout_ms: int = 5_000, **fields: Any
) -> list[Any]:
    response = await bed.request(CREATE, version, topics=topics, timeout=messages.milliseconds(timeout_ms), **fields)
    return list(response.topics)


@pytest.mark.parametrize("version", messages.versions_known(CREATE))
def test_created_topic_has_the_nodes_of_kafka_3_9(version: int) -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        row = creatable(version, configs={"min.insync.replicas": "2"})
        (result,) = await create(bed, row, version=version)
        assert (result.name, result.error_code, result.error_message) == ("orders", ErrorCode.none, None)
        nodes = bed.registry.dump()
        node = json.loads(nodes["/brokers/topics/orders"])
        assert sorted(node) == ["adding_replicas", "partitions", "removing_replicas", "topic_id", "version"]
        assert node["version"] == 3
        assert sorted(node["partitions"]) == ["0", "1"]
        assert all(sorted(replicas) == [1, 2, 3] for replicas in node["partitions"].values())
        config = json.loads(nodes["/config/topics/orders"])
        assert config == {"version": 1, "config": {"min.insync.replicas": "2"}}
        assert bed.cache.partition_count("orders") == 2
        if version >= 7:
            assert text_of(result.topic_id) == node["topic_id"]
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (2, 3)
            in_force = {entry.name: entry.value for entry in result.configs}
            assert in_force["min.insync.replicas"] == "2"

    run_on_host(scenario)


REFUSALS: list[tuple[dict[str, Any], ErrorCode, str]] = [
    ({"name": "a b"}, ErrorCode.invalid_topic_exception, "a b"),
    ({"name": ""}, ErrorCode.invalid_topic_exception, "empty"),
    ({"name": ".."}, ErrorCode.invalid_topic_exception, ".."),
    ({"name": "x" * 250}, ErrorCode.invalid_topic_exception, "249"),
    ({"num_partitions": 0}, ErrorCode.invalid_partitions, "0"),
    ({"replication_factor": 0}, ErrorCode.invalid_replication_factor, "0"),
    (
        {"replication_factor": 4},
        ErrorCode.invalid_replication_factor,
        "Replication factor: 4 larger than available brokers: 3.",
    ),
    ({"configs": {"min.insync.replica": "1"}}, ErrorCode.invalid_config, "min.insync.replicas"),
    ({"configs": {"segment.bytes": "many"}}, ErrorCode.invalid_config, "segment.bytes"),
    ({"configs": {"segment.bytes": None}}, ErrorCode.invalid_config, "segment.bytes"),
    ({"assignments": {0: [1]}}, ErrorCode.invalid_request, "Both"),
    (
        {"assignments": {1: [1]}, "num_partitions": -1, "replication_factor": -1},
        ErrorCode.invalid_replica_assignment,
        "consecutive",
    ),
    (
        {"assignments": {0: [1, 1]}, "num_partitions": -1, "replication_factor": -1},
        ErrorCode.invalid_replica_assignment,
        "duplicate",
    ),
    (
        {"assignments": {0: [1, 2], 1: [1]}, "num_partitions": -1, "replication_factor": -1},
        ErrorCode.invalid_replica_assignment,
        "1 replicas",
    ),
    (
        {"assignments": {0: [1, 9]}, "num_partitions": -1, "replication_factor": -1},
        ErrorCode.invalid_replica_assignment,
        "9",
    ),
]


@pytest.mark.parametrize(("fields", "code", "message"), REFUSALS)
def test_invalid_topic_is_refused_with_the_code_of_kafka(fields: dict[str, Any], code: ErrorCode, message: str) -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        (result,) = await create(bed, creatable(**fields))
        assert result.error_code is code
        assert message in result.error_message
        assert not any(path.startswith("/brokers/topics/") for path in bed.registry.dump())

    run_on_host(scenario)


def test_creation_without_counts_uses_the_settings() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host, num_partitions=4, default_replication_factor=2)
        (result,) = await create(bed, creatable(num_partitions=-1, replication_factor=-1))
        assert (result.num_partitions, result.replication_factor) == (4, 2)

    run_on_host(scenario)


def test_manual_assignment_is_written() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        row = creatable(num_partitions=-1, replication_factor=-1, assignments={0: [3, 1], 1: [2, 3]})
        (result,) = await create(bed, row)
        assert result.error_code is ErrorCode.none
        node = json.loads(bed.registry.dump()["/brokers/topics/orders"])
        assert node["partitions"] == {"0": [3, 1], "1": [2, 3]}

    run_on_host(scenario)


def test_each_topic_of_a_request_has_its_own_result() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        results = await create(bed, creatable(name="a"), creatable(name="b!"), creatable(name="c"), creatable(name="c"))
        assert [(row.name, row.error_code) for row in results] == [
            ("a", ErrorCode.none),
            ("b!", ErrorCode.invalid_topic_exception),
            ("c", ErrorCode.invalid_request),
        ]

    run_on_host(scenario)


def test_existing_name_and_colliding_metric_name_are_refused() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        await create(bed, creatable(name="a.b"))
        results = await create(bed, creatable(name="a.b"), creatable(name="a_b"))
        assert [row.error_code for row in results] == [
            ErrorCode.topic_already_exists,
            ErrorCode.invalid_topic_exception,
        ]

    run_on_host(scenario)


def test_concurrent_creation_changes_neither_topic_nor_settings() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host, controller_acts=False)
        bed.registry.apply(Create("/brokers/topics/orders", "theirs", make_parents=True))
        bed.registry.apply(Create("/config/topics/orders", "theirs", make_parents=True))
        (result,) = await create(bed, creatable())
        assert result.error_code is ErrorCode.topic_already_exists
        nodes = bed.registry.dump()
        assert (nodes["/brokers/topics/orders"], nodes["/config/topics/orders"]) == ("theirs", "theirs")

    run_on_host(scenario)


def test_settings_left_behind_by_a_deleted_topic_are_replaced() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        bed.registry.apply(Create("/config/topics/orders", "old", make_parents=True))
        bed.registry.apply(Create("/brokers/topics", make_parents=True))
        (result,) = await create(bed, creatable())
        assert result.error_code is ErrorCode.none
        assert json.loads(bed.registry.dump()["/config/topics/orders"])["config"] == {}

    run_on_host(scenario)


def test_broker_that_is_not_the_controller_refuses() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        bed.cache.update(update(controller=2))
        (result,) = await create(bed, creatable())
        assert result.error_code is ErrorCode.not_controller
        (result,) = await delete(bed, "orders")
        assert result.error_code is ErrorCode.not_controller

    run_on_host(scenario)


def test_validate_only_writes_nothing() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        (result,) = await create(bed, creatable(), validate_only=True)
        assert (result.error_code, result.num_partitions) == (ErrorCode.none, 2)
        assert result.topic_id is not None, "as in Kafka"
        assert "/brokers/topics/orders" not in bed.registry.dump()

    run_on_host(scenario)


@pytest.mark.parametrize("timeout_ms", [0, 1])
def test_creation_without_leaders_in_time_times_out(timeout_ms: int) -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host, controller_acts=False)
        (result,) = await create(bed, creatable(), timeout_ms=timeout_ms)
        assert result.error_code is ErrorCode.request_timed_out
        assert "/brokers/topics/orders" in bed.registry.dump()

    run_on_host(scenario)


def test_creation_without_a_registry_times_out() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        bed.registry.is_unavailable = True
        (result,) = await create(bed, creatable())
        assert result.error_code is ErrorCode.request_timed_out
        assert "/brokers/topics/orders" not in bed.registry.dump()

    run_on_host(scenario)


def test_requests_are_applied_when_the_registry_returns_in_time() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        bed.registry.is_unavailable = bed.registry.reconnects = True
        (result,) = await create(bed, creatable())
        assert result.error_code is ErrorCode.none
        bed.registry.is_unavailable = True
        (result,) = await delete(bed, "orders")
        assert result.error_code is ErrorCode.none
        assert bed.cache.topic("orders") is None

    run_on_host(scenario)


async def delete(bed: MetadataTestBed, *names: str, version: int = 6, timeout_ms: int = 5_000) -> list[Any]:
    response = await bed.request(
        DELETE,
        version,
        topics=tuple({"name": name} for name in names),
        topic_names=names,
        timeout=messages.milliseconds(timeout_ms),
    )
    return list(response.responses)


@pytest.mark.parametrize("version", messages.versions_known(DELETE))
def test_deletion_marks_the_topic_and_waits_for_its_removal(version: int) -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        await create(bed, creatable())
        results = await delete(bed, "orders", "nothing", version=version)
        assert [(row.name, row.error_code) for row in results] == [
            ("orders", ErrorCode.none),
            ("nothing", ErrorCode.unknown_topic_or_partition),
        ]
        assert "/admin/delete_topics/orders" in bed.registry.dump()
        assert bed.cache.topic("orders") is None

    run_on_host(scenario)


def test_delete_by_topic_id_deletes_the_topic() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        (made,) = await create(bed, creatable())
        row = {"name": None, "topic_id": made.topic_id}
        timeout = messages.milliseconds(5_000)
        response = await bed.request(DELETE, 6, topics=(row,), timeout=timeout)
        assert [(r.name, r.topic_id, r.error_code) for r in response.responses] == [
            ("orders", made.topic_id, ErrorCode.none)
        ]
        response = await bed.request(DELETE, 6, topics=(row,), timeout=timeout)
        assert response.responses[0].error_code is ErrorCode.unknown_topic_id

    run_on_host(scenario)


def test_deletion_is_refused_if_disabled_and_may_time_out() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host, delete_topic_enable=False)
        for version, code in ((6, ErrorCode.topic_deletion_disabled), (1, ErrorCode.invalid_request)):
            (result,) = await delete(bed, "orders", version=version)
            assert result.error_code is code
        bed = MetadataTestBed(host)
        await create(bed, creatable())
        bed.registry.after = lambda: None
        for _ in range(2):  # a topic that is already marked is no error
            (result,) = await delete(bed, "orders", timeout_ms=0)
            assert result.error_code is ErrorCode.request_timed_out

    run_on_host(scenario)


def test_internal_topic_waits_for_enough_brokers_and_is_created_once() -> None:
    async def scenario(host: ManualHost) -> None:
        bed = MetadataTestBed(host)
        arguments = {"partitions": 5, "replication_factor": 3, "config": {"cleanup.policy": "compact"}}
        bed.cache.update(update(brokers=(1, 2)))
        with pytest.raises(KafkaError) as refused:
            await bed.admin.ensure_topic("__consumer_offsets", **arguments)  # type: ignore[arg-type] # spelled once
        assert refused.value.code is ErrorCode.invalid_replication_factor
        bed.cache.update(update())
        creations = [
            host.start(bed.admin.ensure_topic("__consumer_offsets", **arguments))  # type: ignore[arg-type] # as above
            for _ in range(2)
        ]
        for creation in creations:
            await creation
        assert bed.cache.partition_count("__consumer_offsets") == 5
        config = json.loads(bed.registry.dump()["/config/topics/__consumer_offsets"])
        assert config["config"] == {"cleanup.policy": "compact"}

    run_on_host(scenario)
