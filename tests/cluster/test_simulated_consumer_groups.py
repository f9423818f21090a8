"""Coordinators of KIP-848 groups with a bug, in simulations: a few seeds find each of them (G2, L4, M1).

The job of the workload has the protocol `consumer` in these seeds. Its processes are killed, so that they join, leave
and expire, and some of its members do not revoke before they are fenced.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from harrow.cluster import simulation
from harrow.cluster.groups import transactional_offsets_api
from harrow.cluster.groups.consumer import heartbeats, reconciliation, target_assignments
from harrow.cluster.groups.consumer.consumer_group import ConsumerGroup
from harrow.cluster.groups.consumer.members import MemberState
from harrow.cluster.groups.consumer.reconciliation import reconcile
from harrow.faults.runs import EXACTLY_ONCE
from harrow.harness.simulation import SimulationOptions, plan_seed, run_seed
from long_runs import long_run

OPTIONS = SimulationOptions(workload=EXACTLY_ONCE, seconds=5.0, batches=60)
SEEDS = (3, 1, 2, 8, 9)
"""Seeds whose group has the protocol `consumer`; the one that finds the most bugs is first."""
MORE_SEEDS = (95, 168, 178, *range(10, 300))
"""For a bug that few seeds find: a member whose offsets must be refused shows it where its partitions were processed
again before its transaction ends, in one of 60 seeds. The first three found it when this was written."""


def without_owners(member: Any, target: Any, epoch: int, owned: Any, owners: Any, subscribed: Any) -> Any:
    """A partition is given although another member holds it."""
    assert owners is not None
    return reconcile(member, target, epoch, owned, {}, subscribed)


def never_owned(owned: Any, partitions: Any) -> bool:
    """A partition is taken from a member that has not revoked it."""
    assert partitions is not owned
    return False


def never_released(member: Any, *arguments: Any) -> Any:
    """A member that waits for partitions of another one waits for ever."""
    waits = member.current.state is MemberState.UNRELEASED_PARTITIONS
    return member.current if waits else reconcile(member, *arguments)


def no_deadline(_: ConsumerGroup, member: Any) -> None:
    """A timeout that never begins."""
    assert member.member_id


def every_epoch(state: Any, *arguments: Any) -> None:
    """A fenced member commits offsets in a transaction."""
    assert arguments or state


PLANTED: tuple[tuple[object, str, Any, set[str]], ...] = (
    (reconciliation, "_owns_any", never_owned, {"duplicate-output"}),
    (heartbeats, "reconcile", never_released, {"stuck-group"}),
    (ConsumerGroup, "watch_revocation", no_deadline, {"stuck-group"}),
    (heartbeats, "reconcile", without_owners, {"duplicate-output"}),
    (ConsumerGroup, "member_heard", no_deadline, {"stuck-group", "missing-output"}),
    (transactional_offsets_api, "check_transactional", every_epoch, {"duplicate-output"}),
)
NAMES = (
    "revocation-ignored",
    "never-released",
    "no-rebalance-timeout",
    "owners-ignored",
    "no-session-timeout",
    "no-member-epoch",
)


def test_the_group_of_these_seeds_has_the_new_protocol() -> None:
    assert {plan_seed(seed, OPTIONS).run["group_protocol"] for seed in SEEDS} == {"consumer"}


def find(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, bug: Any, anomalies: set[str], more: Sequence[int] = ()
) -> None:
    """Run the seeds with a bug until one is invalid."""
    monkeypatch.setattr(where, name, bug)
    of_consumers = (seed for seed in more if plan_seed(seed, OPTIONS).run["group_protocol"] == "consumer")
    results = (run_seed(seed, OPTIONS) for seed in chain(SEEDS, of_consumers))
    found = next((result for result in results if result.status == "invalid"), None)
    assert found is not None, f"no anomaly in seeds {SEEDS} and {len(more)} more"
    assert {found_name for found_name, _ in found.anomalies} & anomalies


@pytest.mark.parametrize(("where", "name", "bug", "anomalies"), PLANTED[:1], ids=NAMES[:1])
def test_a_bug_of_the_coordinator_is_found_in_a_few_seeds(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, bug: Any, anomalies: set[str]
) -> None:
    find(monkeypatch, where, name, bug, anomalies)


@long_run
@pytest.mark.parametrize(("where", "name", "bug", "anomalies"), PLANTED[1:], ids=NAMES[1:])
def test_other_bugs_of_the_coordinator_are_found_in_a_few_seeds(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, bug: Any, anomalies: set[str]
) -> None:
    find(monkeypatch, where, name, bug, anomalies, MORE_SEEDS)


def test_correct_coordinators_are_valid_in_the_same_seeds() -> None:
    for seed in SEEDS[:1]:
        result = run_seed(seed, OPTIONS)
        assert result.status == "valid", (seed, result.anomalies, result.reasons)


@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=long_run) for seed in SEEDS[1:])])
def test_members_that_wait_for_the_interval_between_assignments_lose_and_double_nothing(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """KIP-1263: a second, Kafka's default, and members that join and die more often than that."""
    waits: list[bool] = []
    assignment_time = target_assignments.assignment_time

    def noted(*arguments: Any) -> int | None:
        found = assignment_time(*arguments)
        waits.append(found is None)
        return found

    monkeypatch.setattr(target_assignments, "assignment_time", noted)
    monkeypatch.setattr(simulation, "ASSIGNED_AT_ONCE", {})
    result = run_seed(seed, OPTIONS)
    assert result.status == "valid", (result.anomalies, result.reasons)
    assert True in waits
    assert False in waits
