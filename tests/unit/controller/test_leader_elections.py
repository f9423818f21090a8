"""When the active controller checks for imbalances of leaders (D4)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harrow.cluster.config import BrokerConfig
from harrow.cluster.controller.leader_elections import LeaderElections
from manual_host import ManualHost


def checks_of(settings: dict[str, object]) -> tuple[ManualHost, LeaderElections, list[str]]:
    """Elections of a controller that has just been elected, and the events that they enqueue."""
    host, enqueued = ManualHost(), list[str]()

    def enqueue(name: str, _handler: object) -> None:
        enqueued.append(name)

    core: Any = SimpleNamespace(host=host, config=BrokerConfig.parse(settings), enqueue=enqueue)
    elections = LeaderElections(core)
    elections.schedule()
    elections.schedule()  # a second call changes nothing
    return host, elections, enqueued


def test_the_first_check_is_one_period_after_the_election_of_the_controller() -> None:
    """As in Kafka's PeriodicTaskControlManager: a leader that has just moved does not move back after seconds."""
    host, elections, enqueued = checks_of({})
    host.advance(299_999)
    assert enqueued == []
    host.advance(1)
    assert enqueued == ["preferred"]
    host.advance(600_000)
    assert enqueued == ["preferred"] * 3
    elections.stop()
    host.advance(600_000)
    assert enqueued == ["preferred"] * 3


def test_without_automatic_rebalancing_nothing_is_checked() -> None:
    host, _elections, enqueued = checks_of({"auto.leader.rebalance.enable": False})
    host.advance(900_000)
    assert enqueued == []
