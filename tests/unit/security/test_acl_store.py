"""ACLs in the registry are Kafka's nodes, concurrent changes are all made, and every broker follows them (A5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.authorizer import Operation, ResourceType
from harrow.cluster.credentials.acl_store import AclStore, entries_of_json, json_of
from harrow.cluster.credentials.change_feed import NOTIFICATIONS_MOST
from harrow.cluster.errors import KafkaError
from harrow.cluster.registry import RegistryClient
from harrow.cluster.security.acls import Acl, AclEntry, AclFilter, PatternType, Permission, ResourcePattern
from harrow.cluster.security.standard_authorizer import StandardAuthorizer
from hypothesis import given
from hypothesis import strategies as st
from registry_in_process import REGISTRIES, RecordedEvents, RegistryFixture, deleted, run

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE = Operation.READ, Operation.WRITE
ALICE_READS = AclEntry("User:alice", "*", READ, Permission.ALLOW)
ALICE_WRITES = AclEntry("User:alice", "*", WRITE, Permission.ALLOW)
BOB_READS_NOT = AclEntry("User:bob", "10.0.0.7", READ, Permission.DENY)
LITERAL = ResourcePattern(TOPIC, "t")
PREFIXED = ResourcePattern(TOPIC, "team-", PatternType.PREFIXED)


class WatchedAuthorizer(StandardAuthorizer):
    """Tells a test when its ACLs change."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = RecordedEvents()

    def replace(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        super().replace(pattern, entries)
        self.changes()


class Broker:
    """A store with the authorizer that decides by it."""

    def __init__(self, client: RegistryClient) -> None:
        self.client = client
        self.authorizer = WatchedAuthorizer()
        self.store = AclStore(client.host, client, self.authorizer, 10_000)

    def acls(self) -> set[Acl]:
        return set(self.authorizer.acls())

    async def has(self, acls: set[Acl]) -> None:
        """Waits until the broker decides by these ACLs."""
        await self.authorizer.changes.until(lambda: self.acls() == acls)


async def started(registry: RegistryFixture, name: str) -> Broker:
    broker = Broker(await registry.client(name))
    await broker.store.start()
    return broker


@pytest.mark.parametrize("on", REGISTRIES)
def test_the_nodes_are_those_of_kafka(tmp_path: Path, on: str) -> None:
    async def test(registry: RegistryFixture) -> None:
        broker = await started(registry, "broker 1")
        await broker.store.add(LITERAL, [ALICE_READS, BOB_READS_NOT])
        await broker.store.add(PREFIXED, [ALICE_READS])
        await broker.store.add(ResourcePattern(ResourceType.TRANSACTIONAL_ID, "*"), [ALICE_WRITES])
        await broker.store.add(ResourcePattern(GROUP, "a/b%c"), [ALICE_READS])
        data = json.loads((await broker.client.get("/kafka-acl/Topic/t"))[0])
        assert data["version"] == 1
        assert data["acls"] == [
            {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"},
            {"principal": "User:bob", "permissionType": "Deny", "operation": "Read", "host": "10.0.0.7"},
        ]
        tree = await broker.client.read_tree("/kafka-acl")
        assert {"/kafka-acl/TransactionalId/*", "/kafka-acl/Group/a%2Fb%25c"} <= set(tree)
        assert "/kafka-acl-extended/prefixed/Topic/team-" in await broker.client.read_tree("/kafka-acl-extended")
        announced = await broker.client.get("/kafka-acl-changes/acl_changes_0000000000")
        assert announced[0] == "TOPIC:t"
        extended = json.loads((await broker.client.get("/kafka-acl-extended-changes/acl_changes_0000000000"))[0])
        assert extended == {"version": 1, "resourceType": "TOPIC", "name": "team-", "patternType": "PREFIXED"}
        other = await started(registry, "broker 2")
        assert other.acls() == broker.acls()

    run(tmp_path, test, on)


def test_every_broker_follows_additions_and_removals(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        first, second = await started(registry, "broker 1"), await started(registry, "broker 2")
        for pattern in (LITERAL, PREFIXED):
            await first.store.add(pattern, [ALICE_READS, BOB_READS_NOT])
            assert Acl(pattern, ALICE_READS) in first.acls()
        # a removal does not wait for the announcements
        removed = await second.store.remove([AclFilter(principal="User:bob"), AclFilter(type=TOPIC, name="t")])
        assert [len(rows) for rows in removed] == [2, 2]
        assert second.acls() == {Acl(PREFIXED, ALICE_READS)}
        await first.has(second.acls())
        assert "/kafka-acl/Topic/t" not in await first.client.read_tree("/kafka-acl")
        assert await second.store.remove([AclFilter(host="nowhere")]) == [[]]
        await first.store.add(LITERAL, [ALICE_WRITES])
        await second.has(first.acls())

    run(tmp_path, test)


def test_many_acls_are_removed_by_as_many_filters(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        broker = await started(registry, "broker 1")
        names = [f"User:u{number}" for number in range(3_000)]
        await broker.store.add(LITERAL, [AclEntry(name, "*", READ, Permission.ALLOW) for name in names])
        exact: dict[str, Any] = {"host": "*", "operation": READ, "permission": Permission.ALLOW}
        of_topic: dict[str, Any] = {"type": TOPIC, "name": "t", "pattern_type": PatternType.LITERAL}
        filters = [AclFilter(principal=name, **exact, **of_topic) for name in names]
        removed = await broker.store.remove([*filters, AclFilter(principal="User:u7"), AclFilter(operation=WRITE)])
        assert [len(rows) for rows in removed] == [1] * 3_001 + [0]
        assert broker.acls() == set()

    run(tmp_path, test)


def test_concurrent_changes_of_one_topic_are_all_made(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        brokers = [await started(registry, f"broker {number}") for number in range(3)]
        entries = [AclEntry(f"User:u{number}", "*", READ, Permission.ALLOW) for number in range(60)]
        adding = [brokers[number % 3].store.add(LITERAL, [entry]) for number, entry in enumerate(entries)]
        await asyncio.gather(*adding)
        wanted = {Acl(LITERAL, entry) for entry in entries}
        for broker in brokers:
            await broker.has(wanted)

    run(tmp_path, test)


def test_a_broker_reads_everything_again_in_a_new_session_and_where_announcements_are_gone(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        first, second = await started(registry, "broker 1"), await started(registry, "broker 2")
        await first.store.add(LITERAL, [ALICE_READS])
        await second.has(first.acls())
        second.store.session_expired()
        await first.client.set("/kafka-acl/Topic/t", json_of([ALICE_WRITES]))  # without an announcement
        second.store.session_expired()
        await second.has({Acl(LITERAL, ALICE_WRITES)})
        for name in await first.client.children("/kafka-acl-changes"):
            await first.client.delete(f"/kafka-acl-changes/{name}")
        await first.has(second.acls())

    run(tmp_path, test)


def test_acls_whose_announcement_was_lost_are_announced_by_the_next_attempt(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        first, second = await started(registry, "broker 1"), await started(registry, "broker 2")
        await first.client.create("/kafka-acl/Topic/t", json_of([ALICE_READS]), make_parents=True)
        await second.store.add(LITERAL, [ALICE_READS])
        assert second.acls() == {Acl(LITERAL, ALICE_READS)}
        await first.has(second.acls())
        await second.store.add(LITERAL, [ALICE_READS])
        assert len(await first.client.children("/kafka-acl-changes")) == 1

    run(tmp_path, test)


def test_old_announcements_are_deleted(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        broker = await started(registry, "broker 1")
        for _ in range(NOTIFICATIONS_MOST + 1):
            await broker.client.create("/kafka-acl-changes/acl_changes_", "TOPIC:t", sequential=True)
        await broker.store.add(LITERAL, [ALICE_READS])
        await deleted(broker.client, "/kafka-acl-changes/acl_changes_0000000000")
        assert broker.acls() == {Acl(LITERAL, ALICE_READS)}

    run(tmp_path, test)


def test_a_node_that_is_no_json_of_acls_changes_nothing(tmp_path: Path) -> None:
    async def test(registry: RegistryFixture) -> None:
        broker = await started(registry, "broker 1")
        await broker.store.add(LITERAL, [ALICE_READS])
        for data in ("{", "[]", '{"acls": [{}]}', '{"acls": [{"principal": 1, "host": 2, "operation": 3}]}'):
            await broker.client.set("/kafka-acl/Topic/t", data)
            await broker.client.create("/kafka-acl-changes/acl_changes_", "TOPIC:t", sequential=True)
            with pytest.raises(KafkaError, match="no JSON of ACLs; delete it"):
                await broker.store.add(LITERAL, [ALICE_WRITES])
        for words in ("nothing", "{", "WHAT:t", '{"name": "t"}'):
            await broker.client.create("/kafka-acl-changes/acl_changes_", words, sequential=True)
        await broker.client.set("/kafka-acl/Topic/t", json_of([ALICE_READS, ALICE_WRITES]))
        await broker.client.create("/kafka-acl-changes/acl_changes_", "TOPIC:t", sequential=True)
        await broker.has({Acl(LITERAL, ALICE_READS), Acl(LITERAL, ALICE_WRITES)})

    run(tmp_path, test)


ENTRIES = st.builds(
    AclEntry,
    st.text().map(lambda name: f"User:{name}"),
    st.text(),
    st.sampled_from([row for row in Operation if row > Operation.ANY]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


@given(entries=st.frozensets(ENTRIES, max_size=5))
def test_the_json_of_acls_is_read_as_it_was_written(entries: frozenset[AclEntry]) -> None:
    assert entries_of_json(json_of(entries)) == entries


@pytest.mark.parametrize("operation", ["Read", "READ", "read"])
def test_names_in_json_are_read_whatever_their_case(operation: str) -> None:
    acl = {"principal": "User:alice", "permissionType": "ALLOW", "operation": operation, "host": "*"}
    assert entries_of_json(json.dumps({"version": 1, "acls": [acl]})) == {ALICE_READS}
    assert entries_of_json("") == frozenset()
