"""What goes wrong in one simulated seed: a plan drawn from the seed, done to a `SimulatedCluster`.

Owns: `Nemesis`. Faults begin at random moments and last around the session timeout, so that they overlap, and so
that some are noticed by the registry and some are not. Targets are drawn when a fault begins: leaders and the
controller more often than others. `heal` ends all that still lasts.

There is no cap on how many at once: with kill -9 no number of failures may lose anything (liveness is asked for
only after healing). A power cut may lose what was not synced, so it is in the plan only where the brokers sync
before they acknowledge.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.cluster.simulation import SimulatedCluster

Undo = Callable[[], None]

WEIGHTS: dict[str, int] = {
    "kill": 6,
    "pause": 6,
    "isolate": 5,
    "one-way": 5,
    "slow-link": 3,
    "reset": 3,
    "registry-kill": 2,
    "registry-pause": 2,
    "terminate": 2,
    "slow-disk": 1,
    "kill-all": 1,
}
"""How often each fault is drawn; `power` joins them on request."""
POWER_WEIGHT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One fault of the plan."""

    at_ms: float
    fault: str
    lasts_ms: float


class Nemesis:
    """Does a plan to a cluster."""

    def __init__(
        self, cluster: SimulatedCluster, *, duration_ms: float, session_ms: float, power: bool = False,
        faults: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._random = cluster.world.rng("nemesis")
        self._session_ms = session_ms
        weights = dict(WEIGHTS if faults is None else faults)
        if power:
            weights["power"] = POWER_WEIGHT
        self.plan = self._draw(duration_ms, weights)
        self.done: list[str] = []
        """Faults that took effect, in order."""
        self.first_ms: int | None = None
        self._lasting: dict[int, Undo] = {}
        self._over = False

    def _draw(self, duration_ms: float, weights: dict[str, int]) -> list[Step]:
        rng = self._random
        # swarm testing: a seed has some of the kinds, so that none hides behind another
        kinds = [kind for kind in weights if rng.random() < 0.6] or list(weights)
        count = max(2, int(duration_ms / self._session_ms * rng.uniform(0.4, 1.6)))
        steps = [
            Step(
                at_ms=rng.uniform(0, duration_ms * 0.9),
                fault=rng.choices(kinds, [weights[kind] for kind in kinds])[0],
                lasts_ms=self._session_ms * rng.choice((0.1, 0.4, 0.9, 1.3, 2.0, 3.0)),
            )
            for _ in range(count)
        ]
        return sorted(steps, key=lambda step: step.at_ms)

    def start(self) -> None:
        """Let the plan begin now."""
        for number, step in enumerate(self.plan):
            self._later(step.at_ms, self._begin, number, step)

    def _later(self, delay_ms: float, call: Callable[..., None], *args: object) -> None:
        self._cluster.world.loop.call_after(None, int(delay_ms * NS_PER_MS), call, *args)

    def _begin(self, number: int, step: Step) -> None:
        if self._over:
            return
        inject: Callable[[random.Random], tuple[str, Undo | None] | None] = getattr(
            self, "_" + step.fault.replace("-", "_")
        )
        found = inject(self._random)
        if found is None:
            return
        what, undo = found
        self.done.append(f"{step.fault} {what}")
        if self.first_ms is None:
            self.first_ms = self._cluster.world.loop.now_ms
        self._cluster.world.tell(
            "fault", number=number, fault=step.fault, what=what, lasts_ms=int(step.lasts_ms)
        )
        if undo is not None:
            self._lasting[number] = undo
            self._later(step.lasts_ms, self._end, number)

    def _end(self, number: int) -> None:
        undo = self._lasting.pop(number, None)
        if undo is not None:
            self._cluster.world.tell("fault.over", number=number)
            undo()

    def heal(self) -> None:
        """End everything that lasts, and start everything that is dead."""
        self._over = True
        for number in sorted(self._lasting):
            self._end(number)
        for process in self._cluster.processes():
            process.resume()
            self._cluster.heal(process.name)
            process.begin()
        self._cluster.world.tell("healed")

    # ---------------------------------------------------------------- targets

    def _broker(self, rng: random.Random) -> int:
        cluster, draw = self._cluster, rng.random()
        if draw < 0.5:
            rows = [
                row for states in cluster.states().values() for row in states if row["is_leader"]
            ]
            if rows:
                return int(rng.choice(rows)["leader"])
        elif draw < 0.7:
            controller = cluster.controller_id()
            if controller is not None:
                return controller
        return rng.choice(list(cluster.brokers))

    # ----------------------------------------------------------------- faults

    def _kill(self, rng: random.Random) -> tuple[str, Undo | None] | None:
        node = self._broker(rng)
        process = self._cluster.brokers[node]
        if process.state == "dead":
            return None
        process.kill()
        return f"broker {node}", process.begin

    def _power(self, rng: random.Random) -> tuple[str, Undo | None] | None:
        node = self._broker(rng)
        process = self._cluster.brokers[node]
        process.cut_power()
        return f"broker {node}", process.begin

    def _kill_all(self, _rng: random.Random) -> tuple[str, Undo | None] | None:
        for process in self._cluster.brokers.values():
            process.kill()

        def undo() -> None:
            for process in self._cluster.brokers.values():
                process.begin()

        return "brokers", undo

    def _terminate(self, rng: random.Random) -> tuple[str, Undo | None] | None:
        node = self._broker(rng)
        process = self._cluster.brokers[node]
        if process.state != "running":
            return None
        process.terminate()

        def undo() -> None:
            process.kill()
            process.begin()

        return f"broker {node}", undo

    def _pause(self, rng: random.Random) -> tuple[str, Undo | None] | None:
        node = self._broker(rng)
        process = self._cluster.brokers[node]
        if process.state not in ("running", "starting"):
            return None
        process.pause()
        return f"broker {node}", process.resume

    def _isolate(self, rng: random.Random) -> tuple[str, Undo | None] | None:
        node = self._broker(rng)
        name = self._cluster.brokers[node].name
        self._cluster.isolate(name, clients=rng.random() < 0.5)
        mode = rng.choice(("deliver", "reset"))
        return f"broker {node}", lambda: self._cluster.heal(name, mode)

    def _one_way(self, rng: random.Random) -> tuple[str, Undo | None] | None:
        names = [process.name for process in self._cluster.processes()]
        source = self._cluster.brokers[self._broker(rng)].name
        target = rng.choice([name for name in names if name != source])
        if rng.random() < 0.5:
            source, target = target, source
        self._cluster.cut_one_way(source, target)
        mode = rng.choice(("deliver", "reset"))
        return f"{source} to {target}", lambda: self._cluster.heal(source, mode)

    def _slow_link(self, rng: random.Random) -> tuple[str, Undo | None] | None:
        machines = self._cluster.world.machines
        names = [process.name for process in self._cluster.processes()]
        one, other = rng.sample(names, 2)
        machines[one].slow_link(machines[other], rng.choice((30.0, 150.0, 600.0)))
        return f"{one} and {other}", lambda: machines[one].slow_link(machines[other], 0)

    def _reset(self, rng: random.Random) -> tuple[str, Undo | None] | None:
        name = self._cluster.brokers[self._broker(rng)].name
        self._cluster.reset_links(name, ["*"])
        return name, None

    def _registry_kill(self, _rng: random.Random) -> tuple[str, Undo | None] | None:
        self._cluster.registry.kill()
        return "registry", self._cluster.registry.begin

    def _registry_pause(self, _rng: random.Random) -> tuple[str, Undo | None] | None:
        if self._cluster.registry.state == "dead":
            return None
        self._cluster.registry.pause()
        return "registry", self._cluster.registry.resume

    def _slow_disk(self, rng: random.Random) -> tuple[str, Undo | None] | None:
        node = self._broker(rng)
        machine = self._cluster.brokers[node].machine
        machine.slow_disk(20, 200)
        return f"broker {node}", lambda: machine.slow_disk(0.02, 0.5)
