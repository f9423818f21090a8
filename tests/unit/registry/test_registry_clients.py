"""The registry's client behaves the same with the embedded server and with a real ZooKeeper (D3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.registry import (
    BadRequestError,
    BadVersionError,
    Check,
    Create,
    Delete,
    DeleteTree,
    Exists,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RegistryClient,
    Set,
)
from harrow.cluster.registry.operations import WriteOperation
from registry_in_process import Event, RecordedEvents, RegistryFixture, run

Test = Callable[[RegistryFixture], Coroutine[Any, Any, None]]
Run = Callable[[Test], None]


@pytest.fixture(params=["embedded", "zookeeper"])
def on_each(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return lambda test: run(tmp_path, test, request.param)


async def refused(kind: type[NodeError], operation: Any, path: str, index: int = -1) -> None:
    with pytest.raises(kind) as raised:
        await operation
    assert type(raised.value) is kind
    assert (raised.value.path, raised.value.index) == (path, index)


def test_node_operations_succeed_or_are_refused(on_each: Run) -> None:
    async def test(registry: RegistryFixture) -> None:
        client = await registry.client()
        made = await client.create("/a", "eins")
        assert (made.path, made.stat.version, made.stat.ephemeral_owner) == ("/a", 0, 0)
        data, stat = await client.get("/a")
        assert (data, stat.czxid, stat.mzxid) == ("eins", made.czxid, made.czxid)
        changed = await client.set("/a", "zwei ü", 0)
        assert changed.version == 1
        assert changed.mzxid > made.czxid
        assert (await client.get("/a"))[0] == "zwei ü"
        await refused(NodeExistsError, client.create("/a"), "/a")
        await refused(BadVersionError, client.set("/a", "x", 0), "/a")
        await refused(BadVersionError, client.delete("/a", 7), "/a")
        await refused(NoNodeError, client.get("/none"), "/none")
        await refused(NoNodeError, client.set("/none", "x"), "/none")
        await refused(NoNodeError, client.create("/none/child"), "/none")
        await refused(BadRequestError, client.create("no-path"), "no-path")
        await client.create("/a/child")
        await refused(NotEmptyError, client.delete("/a"), "/a")
        assert await client.children("/a") == ["child"]
        assert (await client.exists("/a") or stat).children == 1
        await client.delete_tree("/a")
        assert await client.exists("/a") is None
        await client.delete_tree("/a")  # deleting an absent tree is no error

    on_each(test)


def test_parents_sequential_nodes_and_trees_are_created_and_deleted(on_each: Run) -> None:
    async def test(registry: RegistryFixture) -> None:
        client = await registry.client()
        await client.create("/p/q/r", "deep", make_parents=True)
        await client.ensure("/p/q/r")
        assert (await client.get("/p"))[0] == ""
        names = [(await client.create("/p/n_", str(number), sequential=True)).path for number in range(3)]
        assert names == sorted(names)
        assert all(len(name) == len("/p/n_") + 10 for name in names)
        tree = await client.read_tree("/p")
        assert sorted(tree) == sorted(["/p", "/p/q", "/p/q/r", *names])
        assert tree["/p/q/r"][0] == "deep"
        assert await client.read_tree("/none") == {}
        found = await client.get_many(["/p/q/r", "/none"])
        assert found == [tree["/p/q/r"], None]

    on_each(test)


def test_refused_multi_changes_nothing_and_names_the_operation(on_each: Run) -> None:
    async def test(registry: RegistryFixture) -> None:
        client = await registry.client()
        epoch, created, deep = await client.multi(
            [Create("/epoch", "1"), Create("/a", "x"), Create("/t/0/state", "s", make_parents=True)]
        )
        assert epoch.czxid == created.czxid == deep.czxid
        assert (await client.get("/t/0/state"))[1].czxid == deep.czxid
        results = await client.multi([Check("/epoch", 0), Set("/a", "y", 0), Set("/t/0/state", "z", 0)])
        assert results[0] is None
        assert [stat.version for stat in results[1:]] == [1, 1]
        await refused(BadVersionError, client.multi([Check("/epoch", 5), Set("/a", "no")]), "/epoch", 0)
        by_czxid: list[WriteOperation] = [Set("/a", "no"), Check("/epoch", created=epoch.czxid + 1)]
        await refused(BadVersionError, client.multi(by_czxid), "/epoch", 1)
        gone: list[WriteOperation] = [Set("/a", "no"), Check("/gone", created=epoch.czxid)]
        await refused(NoNodeError, client.multi(gone), "/gone", 1)
        await client.multi([Check("/epoch", created=epoch.czxid)])
        await refused(BadVersionError, client.multi([Set("/a", "no"), Set("/t/0/state", "no", 0)]), "/t/0/state", 1)
        assert (await client.get("/a"))[0] == "y"
        many: list[WriteOperation] = [Create("/b"), Create("/t/0/state", make_parents=True)]
        await refused(NodeExistsError, client.multi(many), "/t/0/state", 1)
        assert await client.exists("/b") is None
        await client.multi([Check("/epoch", 0), DeleteTree("/t"), DeleteTree("/none"), Delete("/a", 1)])
        assert await client.exists("/t") is None
        assert await client.children("/") == sorted({"epoch"} | set(await client.children("/")) - {"a", "t"})

    on_each(test)


def test_refused_multi_creates_no_parents(on_each: Run) -> None:
    async def test(registry: RegistryFixture) -> None:
        client = await registry.client()
        await client.create("/epoch")
        await client.set("/epoch", "2")
        stale: list[Check | Create] = [Check("/epoch", 0), Create("/topics/t/state", make_parents=True)]
        await refused(BadVersionError, client.multi(stale), "/epoch", 0)
        assert await client.exists("/topics") is None

    on_each(test)


def test_events_arrive_before_later_responses(on_each: Run) -> None:
    async def test(registry: RegistryFixture) -> None:
        writer, reader = await registry.client("broker 1"), await registry.client("broker 2")
        await writer.create("/a", "0")
        recorder = RecordedEvents()
        for value in range(1, 40):
            await reader.get("/a", watch=recorder)
            await writer.set("/a", str(value))
            while (await reader.get("/a"))[0] != str(value):  # another server of an ensemble may lag
                assert len(recorder.events) < value
            assert len(recorder.events) == value

    on_each(test)


def test_each_kind_of_watch_fires_once(on_each: Run) -> None:
    async def test(registry: RegistryFixture) -> None:
        writer, reader = await registry.client("broker 1"), await registry.client("broker 2")
        await writer.create("/p")
        data, below, absent = RecordedEvents(), RecordedEvents(), RecordedEvents()
        await reader.get("/p", watch=data)
        await reader.children("/p", watch=below)
        assert await reader.exists("/p/x", watch=absent) is None
        await writer.create("/p/x")
        assert await absent.next() == [Event("created", "/p/x")]
        assert await below.next() == [Event("children", "/p")]
        await writer.set("/p", "1")
        await writer.set("/p", "2")
        assert await data.next() == [Event("changed", "/p")]
        deleted = RecordedEvents()
        await reader.get("/p/x", watch=deleted)
        await writer.delete("/p/x")
        assert await deleted.next() == [Event("deleted", "/p/x")]
        with pytest.raises(NoNodeError):
            await reader.get("/none", watch=data)
        await writer.create("/none")
        await reader.get("/none")
        assert [len(recorder.events) for recorder in (data, below, absent, deleted)] == [1, 1, 1, 1]

    on_each(test)


def test_session_end_deletes_its_ephemeral_nodes(on_each: Run) -> None:
    async def test(registry: RegistryFixture) -> None:
        owner, other = await registry.client("broker 1"), await registry.client("broker 2")
        made = await owner.create("/mine", ephemeral=True)
        assert made.stat.ephemeral_owner == owner.session_id != other.session_id
        assert (await other.get("/mine"))[1].ephemeral_owner == owner.session_id
        await refused(BadRequestError, owner.create("/mine/child"), "/mine/child")
        recorder = RecordedEvents()
        await other.exists("/mine", watch=recorder)
        await owner.close()
        assert await recorder.next() == [Event("deleted", "/mine")]
        assert await other.exists("/mine") is None

    on_each(test)


def test_pipelined_operations_keep_their_order(on_each: Run) -> None:
    async def test(registry: RegistryFixture) -> None:
        client: RegistryClient = await registry.client()
        await client.create("/n", "-1")
        writes = [client.submit(Set("/n", str(number), number)) for number in range(50)]
        last = client.submit(Exists("/n"))
        stats = await asyncio.gather(*writes)
        assert [stat.version for stat in stats] == list(range(1, 51))
        assert (await last).version == 50

    on_each(test)
