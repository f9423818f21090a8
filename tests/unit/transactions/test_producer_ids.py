"""No producer id is assigned twice, and InitProducerId returns them (F1)."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harrow.cluster.errors import ErrorCode, RegistryError
from harrow.cluster.host.seam import bytes_of
from harrow.cluster.ids import NodeId
from harrow.cluster.transactions import ProducerIds
from harrow.cluster.transactions.producer_api import ProducerApi
from harrow.cluster.wire import messages
from harrow.cluster.wire.request import Request
from registry_in_process import RegistryFixture, run
from request_contexts import client_context


async def init_producer_id(ids: ProducerIds, version: int, *given: int) -> tuple[ErrorCode, int, int]:
    fields: dict[str, Any] = {"transactional_id": None, "transaction_timeout": timedelta(seconds=60)}
    if version >= 3 and given:
        fields |= {"producer_id": given[0], "producer_epoch": given[1]}
    entity = messages.request_type(22, version)(**fields)
    responses: list[bytes] = []
    request = Request(
        22,
        version,
        1,
        "test",
        messages.encode_request(22, version, entity),
        0,
        client_context(),
        0,
        lambda parts, _on_send: responses.append(b"".join(map(bytes_of, parts or ()))),
    )
    service = cast("Any", SimpleNamespace(host=ids.host))
    (row,) = [r for r in ProducerApi(service, ids).handlers() if r.api_key == 22]
    assert row.low <= version <= row.high
    handled = row.handler(request)
    assert handled is not None
    await handled
    response = messages.decode_response(22, version, responses[0])
    return response.error_code, response.producer_id, response.producer_epoch


def test_producer_ids_of_several_brokers_are_distinct(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        brokers: list[ProducerIds] = []
        for number in range(3):
            client = await registry.client(f"broker {number}")
            brokers.append(ProducerIds(client.host, client, NodeId(number)))
        assigned = await asyncio.gather(*[ids.new_id() for ids in brokers for _ in range(1100)])
        assert len(set(assigned)) == 3300
        client = await registry.client("broker 9")
        block = json.loads((await client.get("/latest_producer_id_block"))[0])
        assert block["version"] == 1
        assert (block["block_start"], block["block_end"]) == ("5000", "5999")

    run(tmp_path, test)


NAMED = ((0, 0), (1, 0), (1, 32766), (1, 32767), (-2, -2), (-2, 0), (2**63 - 1, 32767))
HALF_NAMED = ((1, -1), (-1, 0), (-1, -2))


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_without_a_transactional_id_always_returns_a_new_id(tmp_path: Path, version: int) -> None:
    """As Apache Kafka, which ignores the id and the epoch that such a request names."""

    async def test(registry: RegistryFixture) -> None:
        client = await registry.client()
        ids = ProducerIds(client.host, client, NodeId(1))
        assert await init_producer_id(ids, version) == (ErrorCode.none, 0, 0)
        assert await init_producer_id(ids, version) == (ErrorCode.none, 1, 0)
        if version >= 3:
            for number, named in enumerate(NAMED, start=2):
                assert await init_producer_id(ids, version, *named) == (ErrorCode.none, number, 0)
            for named in HALF_NAMED:
                refused = await init_producer_id(ids, version, *named)
                assert refused == (ErrorCode.invalid_request, -1, -1), named

    run(tmp_path, test)


def test_init_producer_id_without_a_registry_returns_coordinator_not_available(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        client = await registry.client()
        ids = ProducerIds(client.host, client, NodeId(1))
        await client.close()
        with pytest.raises(RegistryError):
            await ids.new_id()
        assert (await init_producer_id(ids, 4))[0] is ErrorCode.coordinator_not_available

    run(tmp_path, test)
