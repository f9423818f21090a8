"""The registry's tree against a simple model, and its rules as tables (D3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from harrow.cluster.registry import (
    BadRequestError,
    BadVersionError,
    Check,
    Children,
    Create,
    Delete,
    DeleteTree,
    Event,
    Exists,
    Get,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ReadTree,
    RegistryTree,
    SessionExpiredError,
    Set,
)
from harrow.cluster.registry.operations import Multi, Operation, decode, encode
from harrow.cluster.registry.store import MemoryStore
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples

PATHS = ("/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/z")


def opened(tree: RegistryTree, name: str = "broker 1", timeout_ms: int = 100, now: int = 0) -> int:
    session: int = tree.open_session(name, timeout_ms, now).result
    return session


# ---------------------------------------------------------------------- model


class Model:
    """A simple model of the tree: it copies all nodes before each operation."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[str, int, int]] = {}  # data, version, owner

    def perform(self, session: int, operation: Operation) -> None:
        before = dict(self.nodes)
        try:
            parts = operation.operations if isinstance(operation, Multi) else (operation,)
            for part in parts:
                self.perform_one(session, part)
        except KeyError:
            self.nodes = before
            raise

    def perform_one(self, session: int, operation: Any) -> None:
        path: str = operation.path
        if isinstance(operation, DeleteTree):
            for found in [p for p in self.nodes if p == path or p.startswith(path + "/")]:
                del self.nodes[found]
        elif isinstance(operation, Create):
            above = path.rpartition("/")[0]
            if above and above not in self.nodes:
                if not operation.make_parents:
                    raise KeyError(path)
                self.perform_one(session, Create(above, make_parents=True))
            if path in self.nodes or (above and self.nodes[above][2]):
                raise KeyError(path)
            self.nodes[path] = (operation.data, 0, session if operation.ephemeral else 0)
        else:
            _, version, owner = self.nodes[path]
            if operation.version not in (-1, version):
                raise KeyError(path)
            if isinstance(operation, Delete):
                if any(p.startswith(path + "/") for p in self.nodes):
                    raise KeyError(path)
                del self.nodes[path]
            elif isinstance(operation, Set):
                self.nodes[path] = (operation.data, version + 1, owner)

    def close(self, session: int) -> None:
        self.nodes = {p: n for p, n in self.nodes.items() if n[2] != session}


paths = st.sampled_from(PATHS)
versions = st.sampled_from((-1, 0, 1, 2))
booleans = st.booleans()
data = st.text("xy", max_size=2)
creates = st.builds(Create, paths, data, ephemeral=booleans, make_parents=booleans)
writes = st.one_of(
    creates,
    st.builds(Set, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
    st.builds(DeleteTree, paths),
)
multis = st.lists(writes, min_size=1, max_size=4).map(lambda parts: Multi(tuple(parts)))
steps = st.lists(st.tuples(st.sampled_from(("first", "second", "end")), st.one_of(writes, multis)), max_size=30)


@examples(100, 300)
@given(steps)
def test_tree_behaves_like_the_model(script: Sequence[tuple[str, Any]]) -> None:
    tree, model, store = RegistryTree(), Model(), MemoryStore()
    ids: dict[str, int] = {}
    for client, operation in script:
        if client == "end":
            if "second" in ids:
                session = ids.pop("second")
                result = tree.close_session(session)
                assert result.changes is not None
                store.commit(result.changes)
                model.close(session)
            continue
        if client not in ids:
            result = tree.open_session(client, 100, 0)
            assert result.changes is not None
            store.commit(result.changes)
            ids[client] = result.result
        before, zxid = tree.rows(), tree.zxid
        try:
            result = tree.apply(ids[client], operation, 0)
        except NodeError:
            with pytest.raises(KeyError):
                model.perform(ids[client], operation)
            assert (tree.rows(), tree.zxid) == (before, zxid)  # the tree is unchanged
            continue
        model.perform(ids[client], operation)
        if result.changes is not None:
            assert tree.zxid == zxid + 1
            store.commit(result.changes)
        rows = {r.path: (r.data, r.version, r.owner) for r in tree.rows() if r.path != "/"}
        assert rows == model.nodes
    assert_stored(tree, store)


def assert_stored(tree: RegistryTree, store: MemoryStore) -> None:
    stored, again = store.load(), RegistryTree()
    again.restore(stored.zxid, stored.nodes, stored.sessions, 0)
    assert again.rows() == tree.rows()
    assert again.sessions.ids() == tree.sessions.ids()
    for session in tree.sessions.ids():
        tree.close_session(session)
        again.close_session(session)
    assert again.dump() == tree.dump()


@given(st.one_of(writes, multis, st.builds(Get, paths, watch=booleans), st.builds(ReadTree, paths)))
def test_encoded_operation_decodes_to_itself(operation: Operation) -> None:
    assert decode(encode(operation)) == operation


# --------------------------------------------------------------------- tables

REFUSED: list[tuple[Any, type[NodeError]]] = [
    (Create("/a"), NodeExistsError),
    (Create("/none/x"), NoNodeError),
    (Create("/mine/x"), BadRequestError),
    (Create("no-slash"), BadRequestError),
    (Create("/a//x"), BadRequestError),
    (Create("/a/"), BadRequestError),
    (Create("/"), BadRequestError),
    (Set("/none", ""), NoNodeError),
    (Set("/a", "", 7), BadVersionError),
    (Delete("/none"), NoNodeError),
    (Delete("/a", 7), BadVersionError),
    (Delete("/a"), NotEmptyError),
    (Delete("/"), BadRequestError),
    (Check("/a", 7), BadVersionError),
    (Check("/a", created=99), BadVersionError),
    (Check("/none"), NoNodeError),
    (Get("/none"), NoNodeError),
    (Children("/none"), NoNodeError),
]


@pytest.mark.parametrize(("operation", "error"), REFUSED, ids=str)
def test_refused_operation_raises_its_error_and_changes_nothing(operation: Any, error: type[NodeError]) -> None:
    tree = RegistryTree()
    session = opened(tree)
    for path in ("/a", "/a/x"):
        tree.apply(session, Create(path), 0)
    tree.apply(session, Create("/mine", ephemeral=True), 0)
    before = tree.rows()
    with pytest.raises(error):
        tree.apply(session, operation, 0)
    if not isinstance(operation, Get | Children):
        with pytest.raises(error) as raised:
            tree.apply(session, Multi((Create("/new"), operation)), 0)
        assert raised.value.index == 1
    assert tree.rows() == before


def test_sequential_nodes_get_distinct_numbers() -> None:
    tree = RegistryTree()
    session = opened(tree)
    first = tree.apply(session, Create("/n", sequential=True), 0).result.path
    tree.apply(session, Delete(first), 0)
    second = tree.apply(session, Create("/n", sequential=True), 0).result.path
    assert (first, second) == ("/n0000000000", "/n0000000001")


WATCHES: list[tuple[Any, Any, list[str]]] = [
    (Get("/a", watch=True), Set("/a", "new"), ["changed /a"]),
    (Get("/a", watch=True), DeleteTree("/a"), ["deleted /a"]),
    (Get("/a", watch=True), Create("/a/y"), []),
    (Exists("/a", watch=True), Set("/a", "new"), ["changed /a"]),
    (Exists("/none", watch=True), Create("/none"), ["created /none"]),
    (Children("/a", watch=True), Create("/a/y"), ["children /a"]),
    (Children("/a", watch=True), Delete("/a/x"), ["children /a"]),
    (Children("/a", watch=True), Set("/a", "new"), []),
    (Children("/a", watch=True), Set("/a/x", "new"), []),
    (Children("/a/x", watch=True), Delete("/a/x"), ["deleted /a/x"]),
    (Get("/a", watch=True), Multi((Set("/a", "1"), Set("/a", "2"))), ["changed /a"]),
]


@pytest.mark.parametrize(("read", "write", "expected"), WATCHES, ids=str)
def test_watch_fires_once_and_missed_change_fires_on_resume(read: Any, write: Any, expected: list[str]) -> None:
    for present in (True, False):
        tree = RegistryTree()
        writer, watcher = opened(tree), opened(tree)
        for path in ("/a", "/a/x"):
            tree.apply(writer, Create(path), 0)
        exists = tree.apply(watcher, read, 0).result is not None
        seen = tree.zxid
        kind = "children" if isinstance(read, Children) else "data" if exists else "exists"
        if present:
            fired = [f"{e.kind} {e.path}" for _, e in tree.apply(writer, write, 0).events]
        else:  # the client lost its link, and names its watches when it reconnects
            tree.resume(watcher, seen, {}, 0)
            assert tree.apply(writer, write, 0).events == ()
            missed = tree.resume(watcher, seen, {kind: [read.path]}, 0)
            fired = [f"{e.kind} {e.path}" for e in missed]
        assert fired == expected
        if expected:
            again = Create("/a/again", make_parents=True)
            assert tree.apply(writer, again, 0).events == ()


def test_watch_fires_only_for_its_session() -> None:
    tree = RegistryTree()
    first, second = opened(tree), opened(tree)
    tree.apply(first, Create("/a"), 0)
    tree.apply(second, Get("/a", watch=True), 0)
    assert tree.apply(first, Set("/a", "x"), 0).events == ((second, Event("changed", "/a")),)


# The session timeout is 100 ms; the server received a heartbeat at these times.
@pytest.mark.parametrize(
    ("heartbeats", "at", "expired"),
    [
        ([], 99, False),
        ([], 100, True),
        ([50], 149, False),
        ([50], 150, True),
        ([50, 10], 149, False),
        ([99, 198], 250, False),
    ],
)
def test_sessions_expire_after_silence(heartbeats: list[int], at: int, expired: bool) -> None:
    tree = RegistryTree()
    session = opened(tree)
    for now in heartbeats:
        assert tree.sessions.touch(session, now)
    assert tree.sessions.expired(at) == ([session] if expired else [])


def test_session_end_removes_its_ephemeral_nodes_in_one_transaction() -> None:
    tree = RegistryTree()
    closing, watcher = opened(tree), opened(tree)
    for path in ("/ids", "/stays"):
        tree.apply(closing, Create(path), 0)
    tree.apply(closing, Create("/ids/1", ephemeral=True), 0)
    tree.apply(closing, Create("/controller", ephemeral=True), 0)
    tree.apply(watcher, Children("/ids", watch=True), 0)
    tree.apply(watcher, Exists("/controller", watch=True), 0)
    zxid = tree.zxid
    result = tree.close_session(closing)
    assert tree.zxid == zxid + 1
    assert tree.dump() == {"/ids": "", "/stays": ""}
    assert {str(event) for _, event in result.events} == {
        str(Event("deleted", "/controller")),
        str(Event("children", "/ids")),
    }
    with pytest.raises(SessionExpiredError):
        tree.apply(closing, Get("/ids"), 0)
    with pytest.raises(SessionExpiredError):
        tree.resume(closing, 0, {}, 0)


def test_loaded_sessions_get_their_full_timeout() -> None:
    tree, store = RegistryTree(), MemoryStore()
    result = tree.open_session("broker 1", 100, 0)
    assert result.changes is not None
    store.commit(result.changes)
    stored, again = store.load(), RegistryTree()
    again.restore(stored.zxid, stored.nodes, stored.sessions, 5000)
    assert again.sessions.expired(5099) == []
    assert again.sessions.expired(5100) == [result.result]
    assert again.open_session("broker 2", 100, 0).result > result.result
