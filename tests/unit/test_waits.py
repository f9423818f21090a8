"""Conditions of waits on a cluster that a test makes up, taps of coordinators, and logs with transactions (J1)."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster import wait_notes
from harrow.cluster.errors import ClusterError, ConfigError, HarrowError
from harrow.cluster.host.seam import Committer, TappedGroup, TappedRequest
from harrow.cluster.ids import TopicPartition
from harrow.cluster.tap.recorder import FileTap
from harrow.cluster.view import ClusterView, PartitionView
from harrow.cluster.wire.api_keys import ApiKey
from harrow.harness.errors import ProgramDiedError, WaitTimeoutError
from harrow.harness.histories.live_taps import CommitRows, GroupRows, GroupSeen, TransactionalIds
from harrow.harness.histories.request_rows import RequestCount
from harrow.harness.waits.conditions import Assigned, CaughtUp, Condition, Led, Records, Requested, nodes_of, topic_of
from harrow.harness.waits.seen import OffsetsSeen, newest_leaders
from harrow.harness.waits.wait_loop import check_timeout, looking, wait_for

ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def led_by(node: int, epoch: int = 0) -> PartitionView:
    return PartitionView(leader=node, leader_epoch=epoch, isr=(1, 2), replicas=(1, 2))


class MadeUp:
    """A cluster with a topic of two partitions, as the test says that it is."""

    pace_s = 0.0

    def __init__(self) -> None:
        self.groups: dict[str, GroupSeen] = {}
        self.commits: dict[TopicPartition, int] = {}
        self.ends = {where: OffsetsSeen(start=0, end=10) for where in ORDERS}
        self.hidden = 0
        """How many of the offsets of each partition are markers."""
        self.counts: list[RequestCount] = []
        self.leaders = {0: led_by(1), 1: led_by(2)}
        self.live = frozenset({1, 2})

    def view(self) -> ClusterView:
        return ClusterView(live=self.live, topics={"orders": self.leaders, "__consumer_offsets": {}})

    def group_names(self) -> list[str]:
        return list(self.groups)

    def group(self, name: str) -> GroupSeen | None:
        return self.groups.get(name)

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        assert group
        return {where: self.commits[where] for where in partitions if where in self.commits}

    def offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetsSeen]:
        return {where: self.ends[where] for where in partitions if where in self.ends}

    def readable(self, where: TopicPartition, first: int, end: int) -> int:
        assert where in ORDERS
        return max(0, end - first - self.hidden)

    def requests(self) -> list[RequestCount]:
        return self.counts

    def close(self) -> None:
        raise AssertionError("a look closes nothing")


def request(client: str, api: str, count: int, broker: int = 1) -> RequestCount:
    return RequestCount(client=client, api=api, error="", broker=broker, count=count, first_ns=1, last_ns=2)


STABLE = GroupSeen(state="Stable", members=2, owners={"a": ["orders-0"], "b": ["orders-1"]})


def test_a_group_is_assigned_when_it_is_stable_with_so_many_members() -> None:
    seen = MadeUp()
    absent = Assigned(group="biling").look(seen)
    assert absent.there == "the cluster has no consumer group 'biling'; it has none"
    seen.groups["billing"] = STABLE
    assert "did you mean 'billing'?; it has billing" in Assigned(group="biling").look(seen).there
    found = [Assigned(group="billing", members=count).look(seen).holds for count in (None, 1, 2, 3)]
    assert found == [True, False, True, False]
    said = Assigned(group="billing", members=3).look(seen).there
    assert said == "group 'billing' is Stable with 2 members: a owns orders-0; b owns orders-1"
    seen.groups["billing"] = GroupSeen(state="PreparingRebalance", members=2)
    assert not Assigned(group="billing", members=2).look(seen).holds
    seen.groups["billing"] = GroupSeen(state="Empty", members=0)
    assert not Assigned(group="billing").look(seen).holds


def test_a_group_has_caught_up_when_no_record_is_left_that_it_could_receive() -> None:
    seen, wait = MadeUp(), CaughtUp(group="billing", topics=("orders",))
    assert wait.look(seen).there == "the cluster has no consumer group 'billing'; it has none"
    seen.groups["billing"], seen.commits[ORDERS[0]] = STABLE, 9
    said = wait.look(seen).there
    assert "has not committed: orders-0: 1, orders-1: 10 (nothing committed); group 'billing' is Stable" in said
    seen.commits[ORDERS[1]] = 10
    assert not wait.look(seen).holds
    seen.hidden = 1
    assert wait.look(seen).holds, "what is left is a marker of a transaction"
    del seen.ends[ORDERS[1]]
    assert "orders-1: its leader does not respond" in wait.look(seen).there
    assert not wait.look(seen).holds


def test_a_commit_of_a_deleted_topic_of_the_same_name_is_no_commit() -> None:
    seen, wait = MadeUp(), CaughtUp(group="billing", topics=("orders",))
    seen.commits = {ORDERS[0]: 12, ORDERS[1]: 10}
    assert "orders-0: 10" in wait.look(seen).there


def test_records_are_counted_and_a_topic_that_does_not_exist_is_named() -> None:
    seen = MadeUp()
    assert [Records(topic="orders", count=count).look(seen).holds for count in (19, 20, 21)] == [True, True, False]
    said = Records(topic="order", count=1).look(seen).there
    assert said == "the cluster has no topic 'order'; did you mean 'orders'?; it has orders"


def test_requests_count_since_the_test_began_and_others_are_named() -> None:
    seen = MadeUp()
    wait = Requested(api="OffsetCommit", client="billing*", before={})
    assert wait.look(seen).there == (
        "no request OffsetCommit of a client that matches 'billing*' arrived; no client used this API, "
        "and no client sent another request"
    )
    seen.counts = [request("shop", "Produce", 3), request("audit", "OffsetCommit", 1)]
    assert wait.look(seen).there == (
        "no request OffsetCommit of a client that matches 'billing*' arrived; client ids seen for this API: audit; "
        "others: shop (Produce)"
    )
    seen.counts += [request("billing-1", "OffsetCommit", 2), request("billing-2", "OffsetCommit", 1, broker=2)]
    assert wait.look(seen).value == 3
    more = Requested(api=8, client="billing*", count=4, before={}).look(seen)
    assert more.there == "3 of 4 requests OffsetCommit were sent: 2 to broker 1, 1 to broker 2"
    earlier = {("billing-1", "OffsetCommit", "", 1): 2}
    assert Requested(api="OffsetCommit", client="billing*", before=earlier).look(seen).value == 1


def test_a_leader_must_be_registered_and_another_than_before() -> None:
    seen = MadeUp()
    assert Led(topic="orders", partition=0, other_than=frozenset()).look(seen).value == 1
    other = Led(topic="orders", partition=0, other_than=frozenset({1}))
    assert other.look(seen).there == (
        "orders-0 is led by broker 1 (leader epoch 0, ISR 1,2), orders-1 is led by broker 2 (leader epoch 0, ISR 1,2); "
        "registered brokers: 1, 2"
    )
    seen.leaders[0] = led_by(2, 1)
    assert other.look(seen).holds
    seen.live = frozenset({1})
    assert not other.look(seen).holds, "its session has ended, and the controller has not elected yet"
    seen.leaders[0] = led_by(-1, 1)
    assert "orders-0 has no leader" in other.look(seen).there
    assert "has no partition 2; it has 2" in Led(topic="orders", partition=2, other_than=()).look(seen).there


def test_an_isolated_leader_of_an_older_epoch_is_passed_over() -> None:
    def row(epoch: int) -> dict[str, Any]:
        return {"topic": "orders", "partition": 0, "is_leader": True, "leader_epoch": epoch}

    found = newest_leaders({1: [row(3)], 2: [row(4)], 3: [{**row(5), "is_leader": False}]}, ORDERS)
    assert found[ORDERS[0]][0] == 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Assigned(group=""), "await_assigned(group=''): expected a text that is not empty"),
        (lambda: Assigned(group="a", members=0), "members=0): expected a number from 1 up"),
        (lambda: Assigned(group="a", members=True), "members=True): expected a number from 1 up"),
        (lambda: CaughtUp(group="a", topics=()), "no topic was given; write await_caught_up('a', orders)"),
        (lambda: Records(topic="a", count="3"), "await_records(…, count='3'): expected a number"),  # type: ignore[arg-type]
        (lambda: Requested(api="OffsetComit", before={}), "await_request('OffsetComit'): no such API"),
        (lambda: Led(topic="a", partition=-1, other_than=()), "expected a partition from 0 up"),
        (lambda: topic_of(3, "await_records"), "await_records(3): expected a topic or its name"),
        (lambda: nodes_of("1"), "other_than='1'): expected the node id of a broker, or several"),
        (lambda: nodes_of([1, None]), "other_than=[1, None]): expected the node id"),
        (lambda: check_timeout("await_leader", "10"), "await_leader(…, timeout='10'): expected seconds"),
        (lambda: check_timeout("await_leader", 0), "timeout=0): expected seconds, more than 0"),
    ],
)
def test_arguments_are_checked_at_once(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        make()


class Programs:
    """Programs of which one may be dead."""

    def __init__(self, death: str = "") -> None:
        self.death = death

    def died(self, since_ns: int) -> str:
        assert since_ns > 0
        return self.death

    def ended(self) -> str:
        return ""


def waited(condition: Condition, seen: MadeUp, timeout_s: float, death: str = "") -> int:
    looks = looking(condition, timeout_s, seen=seen, programs=Programs(death), state=lambda: "")
    return wait_for(looks, threading.Event().wait)


class Unlucky(MadeUp):
    """A cluster that does not respond to the first looks."""

    looks = 0

    def view(self) -> ClusterView:
        self.looks += 1
        if self.looks < 3:
            raise ClusterError("the registry does not respond")
        return super().view()


def test_a_look_that_fails_is_repeated_and_named_when_the_time_is_over() -> None:
    wait = Records(topic="orders", count=20)
    assert waited(wait, Unlucky(), 30) == 20
    with pytest.raises(WaitTimeoutError) as late:
        waited(wait, Unlucky(), 1e-9)
    assert str(late.value) == (
        "await_records('orders', 20): not within 1e-09 s; the cluster could not be looked at: the registry does not "
        "respond. Where it takes longer, write timeout=2e-09"
    )
    assert isinstance(late.value, TimeoutError)
    assert isinstance(late.value, HarrowError)


def test_a_dead_program_ends_a_wait_unless_what_is_waited_for_is_there() -> None:
    death = "the program 'billing' has ended: exit code 3"
    with pytest.raises(ProgramDiedError, match=r"await_records\('orders', 21\) ends: the program 'billing' has ended"):
        waited(Records(topic="orders", count=21), MadeUp(), 60, death)
    assert waited(Records(topic="orders", count=20), MadeUp(), 60, death) == 20


def test_a_long_wait_is_noted_with_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_notes, "AFTER_S", 0.0)
    notes: list[str] = []
    seen = MadeUp()

    def listener(note: str) -> None:
        notes.append(note)
        seen.groups["billing"] = STABLE

    before = wait_notes.listen(listener)
    try:
        waited(Assigned(group="billing", members=2), seen, 60)
    finally:
        wait_notes.listen(before)
    assert notes[0].startswith(
        "waits for await_assigned('billing', members=2): the cluster has no consumer group 'billing'; it has none ("
    )


class Clock:
    """A clock that a test moves."""

    now_ns = 0

    def monotonic_ns(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def wall_ms(self) -> int:
        return 0


@pytest.fixture
def taps(tmp_path: Path) -> tuple[FileTap, FileTap]:
    clock: Any = Clock()
    folders = [tmp_path / f"broker-{node}" for node in (1, 2)]
    for folder in folders:
        folder.mkdir()
    first, second = (FileTap(str(folder), clock) for folder in folders)
    return first, second


def stable(members: int) -> TappedGroup:
    return TappedGroup(state="Stable", generation=1, members=members, timeout_ms=1000)


def test_groups_are_those_of_the_coordinator_of_the_highest_epoch(
    taps: tuple[FileTap, FileTap], tmp_path: Path
) -> None:
    first, second = taps
    rows = GroupRows(tmp_path)
    assert rows.group("billing") is None
    first.group("billing", stable(2), partition=7, leader_epoch=1)
    for member, where in (("m1", ORDERS[0]), ("m2", ORDERS[1])):
        first.member("billing", member, "shop", generation=1, partitions=[where], leader_epoch=1)
    assert rows.group("billing") == GroupSeen(
        state="Stable", members=2, owners={"m1": ["orders-0"], "m2": ["orders-1"]}
    )
    second.group("billing", stable(1), partition=7, leader_epoch=2)
    second.member("billing", "m1", "shop", generation=2, partitions=ORDERS, leader_epoch=2)
    first.group("billing", stable(2), partition=7, leader_epoch=1)  # a late row of the deposed coordinator
    assert rows.group("billing") == GroupSeen(state="Stable", members=1, owners={"shop": ["orders-0", "orders-1"]})
    dead = TappedGroup(state="Dead", generation=2, members=0, timeout_ms=1000)
    second.group("billing", dead, partition=7, leader_epoch=2)
    assert rows.group("billing") is None
    assert rows.names() == []


def test_the_last_commit_that_succeeded_counts(taps: tuple[FileTap, FileTap], tmp_path: Path) -> None:
    first, second = taps
    rows = CommitRows(tmp_path)
    by = Committer(client="billing-1")
    second.committed("billing", [(ORDERS[0], 5), (ORDERS[1], 6)], error=0, invoked_ns=1, by=by)
    assert rows.committed("billing") == {ORDERS[0]: 5, ORDERS[1]: 6}
    first.committed("billing", [(ORDERS[0], 8)], error=0, invoked_ns=1, by=by)
    first.committed("billing", [(ORDERS[0], 9)], error=7, invoked_ns=1, by=by)
    first.committed("audit", [(ORDERS[0], 3)], error=0, invoked_ns=1, by=by)
    assert rows.committed("billing") == {ORDERS[0]: 8, ORDERS[1]: 6}
    assert rows.groups() == {"audit", "billing"}


def test_a_transactional_id_exists_when_a_coordinator_has_returned_a_producer_id(
    taps: tuple[FileTap, FileTap], tmp_path: Path
) -> None:
    first, second = taps
    rows = TransactionalIds(tmp_path)
    init = TappedRequest("billing", ApiKey.INIT_PRODUCER_ID, 0, invoked_ns=1, completed_ns=2, subject="billing-1")
    first.requested(init._replace(error=51, subject="billing-2"))
    first.requested(init._replace(subject=None))
    first.requested(init._replace(api=ApiKey.FIND_COORDINATOR, subject="billing-3"))
    assert rows.names() == []
    second.requested(init)
    assert rows.names() == ["billing-1"]
