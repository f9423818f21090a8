"""KAFKA-6082: the controller's writes are not fenced, and a zombie moves leaders.

What was wrong: writes of the controller did not depend on the controller epoch, and a request that had lost its
connection waited for the next one, also for that of a new session. A controller that was cut off from ZooKeeper while
it handled an event continued with this event after another broker had been elected. Its write is applied; its
LeaderAndIsr is not sent, or refused. So the new leader of the write does not lead, the present leader's changes of the
ISR are refused for good ("cached zkVersion not equal to that in zookeeper"), and the new controller has no reason to
send anything.

Seen as: `not-converged` (liveness): the registry names a leader that does not lead.
Replaces: `WonElection.check`; `RegistryClient.get_many`, by one that waits for the next session.
Source: KAFKA-6082, KAFKA-5642; Kafka's `KafkaZkClient.retryRequestsUntilConnected`, and `updateLeaderAndIsr` with
`expectedControllerEpochZkVersion` since 2.1.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from harrow.cluster.controller.controller_election import WonElection
from harrow.cluster.planting import Planter
from harrow.cluster.registry import Check, Get, NoNodeError, RegistryClient, Stat
from harrow.cluster.registry.client import results_or_errors, value_of
from harrow.cluster.registry.errors import RegistryUnavailableError, SessionExpiredError
from harrow.cluster.registry.operations import ANY_VERSION
from harrow.cluster.registry.paths import CONTROLLER_EPOCH

from .. import controller, isolate, leader, restart
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .shared import IMBALANCE_CHECK, SHORT, SHORT_SESSION_MS

TITLE = "KAFKA-6082: the controller's writes are not fenced by its epoch"
CHECK_S = 2
OPTIONS = SimulationOptions(
    brokers=5,
    partitions=1,
    seconds=6.0,
    batches=60,
    config={**SHORT, IMBALANCE_CHECK: CHECK_S, "leader.imbalance.per.broker.percentage": 0},
)


def plant(planter: Planter) -> None:
    """Let writes succeed under every controller epoch, and let reads wait for a connection."""
    planter.replace_method(WonElection, "check", _any_epoch)
    planter.replace_method(RegistryClient, "get_many", _get_many_when_connected)


def _any_epoch(self: WonElection) -> Check:
    del self
    return Check(CONTROLLER_EPOCH, ANY_VERSION)


async def _get_many_when_connected(self: RegistryClient, paths: Sequence[str]) -> list[tuple[str, Stat] | None]:
    while True:
        await self.until_connected()
        try:
            found = await results_or_errors(*[self.submit(Get(path)) for path in paths])
            return [None if isinstance(node, NoNodeError) else value_of(node) for node in found]
        except (RegistryUnavailableError, SessionExpiredError):
            continue


def steps_by_time(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """A preferred leader restarts; then the controller is cut off when it is about to give leadership back to it.

    The controller is back when another is elected, and before that one has checked for imbalances.
    """
    check_ms = 1_000 * CHECK_S
    restart_ms = check_ms * rng.uniform(1.1, 1.4)
    cut_ms = check_ms * rng.uniform(1.5, 1.9)
    return (
        timed_step(1, restart_ms, restart(leader(TOPIC), kill=True), 0),
        timed_step(2, cut_ms, isolate(controller()), SHORT_SESSION_MS * rng.uniform(1.2, 2)),
    )


BUG = Bug(
    number=11,
    module=__name__,
    title=TITLE,
    versions="before 2.1",
    needs=(
        "a preferred leader that is back in the ISR; the controller cut off when it begins its check of imbalances, "
        "until another controller is elected"
    ),
    seen_as=frozenset({"not-converged"}),
    options=OPTIONS,
    steps=steps_by_time,
)
