"""Faults of a broker's disk (K3): power loss, and system calls that fail or take long.

A power loss is a kill that takes what was not fsynced with it: the broker's host journals that (the setting
`harrow.power.loss` of the cluster), and its files are rolled back to what a disk may have kept, drawn by the
seed. Proof is the dead process and what the roll-back found.

A disk error hits the n-th write, fsync, read or change of names below a path, and every one after it. The folder
is offline from then on (B11), so healing restarts the broker. Proof is the host's own count, or that the broker
ended because it had no other folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .errors import ConfigError
from .process import Kill, gone, process_state, running_again, start_again
from .spec import Evidence, Fault, Injection, Seconds
from .system import Scene, System
from .targets import Target

OPERATIONS = ("write", "sync", "read", "name")
ERRORS = ("EIO", "ENOSPC", "EROFS", "EDQUOT", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLoss(Kill):
    """SIGKILL, and everything that was not fsynced may vanish or tear; healed by starting the broker again."""

    kind: ClassVar[str] = "power_loss"
    keep: float | None = None

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.keep is not None and not 0.0 <= self.keep <= 1.0:
            raise ConfigError(
                f"power_loss(keep={self.keep!r}): expected a number from 0 to 1, or None"
            )

    def draw_details(self, scene: Scene, rng: Any) -> dict[str, Any]:
        """Return the seed of what is lost."""
        del scene
        return {"seed": rng.getrandbits(32)}

    def inject(self, system: System, injection: Injection) -> None:
        """Cut the power of all of them at once, each once."""
        pids: dict[int, int | None] = injection.notes.setdefault("pids", {})
        fresh = [node for node in injection.nodes if node not in pids]
        for node in fresh:
            pids[node] = system.brokers[node].pid
            system.brokers[node].kill()
        lost: dict[int, Mapping[str, int]] = injection.notes.setdefault("lost", {})
        for node in fresh:
            seed = f"{injection.details['seed']}/{node}"
            lost[node] = system.brokers[node].lose_power(seed=seed, keep=self.keep)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Gone from the process table, its files rolled back."""
        dead = Kill.probe(self, system, injection)
        lost: dict[int, Mapping[str, int]] = injection.notes.get("lost", {})
        proved = dead.proved and set(lost) == set(injection.nodes)
        facts = {str(node): dict(one) for node, one in lost.items()}
        return Evidence(proved=proved, facts={**dead.facts, "lost": facts})


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskError(Fault):
    """From the n-th call of an operation on a path like `path` on: an error, a delay, or both."""

    kind: ClassVar[str] = "disk_error"
    waits_for_traffic: ClassVar[bool] = True
    operation: str = "write"
    error: str = "EIO"
    nth: int = 1
    count: int = 0
    path: str = "*"
    delay_ms: int = 0

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.operation not in OPERATIONS:
            raise ConfigError(
                f"disk_error({self.operation!r}): expected one of {', '.join(OPERATIONS)}"
            )
        if self.error not in ERRORS:
            raise ConfigError(f"disk_error(error={self.error!r}): expected one of {ERRORS}")
        if self.nth < 1 or self.count < 0 or self.delay_ms < 0 or not (self.error or self.delay_ms):
            raise ConfigError(
                f"disk_error(nth={self.nth}, count={self.count}, delay_ms={self.delay_ms}): too small"
            )

    @property
    def disturbs(self) -> bool:
        """A broker whose disk only is slow goes on."""
        return bool(self.error)

    def inject(self, system: System, injection: Injection) -> None:
        """Arm it once on each broker."""
        rules: dict[int, tuple[int, int | None]] = injection.notes.setdefault("rules", {})
        for node in injection.nodes:
            if node not in rules:
                pid = system.brokers[node].pid
                armed = system.control(
                    node, "disk.fail", operation=self.operation, error=self.error, nth=self.nth,
                    count=self.count, path=self.path, delay_ms=self.delay_ms,
                )  # fmt: skip
                rules[node] = (int(armed["id"]), pid)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe that it acted on one broker at least."""
        seen: dict[str, Any] = {}
        rules: dict[int, tuple[int, int | None]] = injection.notes.get("rules", {})
        for node, (rule, pid) in rules.items():
            if gone(pid):
                seen[str(node)] = {"fired": True, "process": process_state(pid) or "gone"}
            else:
                seen[str(node)] = _rule(system, node, rule)
        proved = any(fact.get("fired") for fact in seen.values())
        return Evidence(proved=proved, facts={"operation": self.operation, "nodes": seen})

    def heal(self, system: System, injection: Injection) -> None:
        """Disarm it, and start a broker again that lost a folder by it: only then the folder is looked at again."""
        rules: dict[int, tuple[int, int | None]] = injection.notes.get("rules", {})
        for node, (rule, pid) in rules.items():
            broker = system.brokers[node]
            if not broker.alive or broker.pid != pid:
                continue
            fired = bool(_rule(system, node, rule).get("fired"))
            system.control(node, "disk.clear", id=rule)
            if fired and self.error:
                broker.terminate()
        start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Brokers run and nothing is armed."""
        running = running_again(system, injection)
        armed = [
            row
            for node in injection.nodes
            if system.brokers[node].alive
            for row in system.control(node, "disk.faults")["rules"]
            if row["armed"]
        ]
        return Evidence(
            proved=running.proved and not armed, facts={**running.facts, "armed": armed}
        )


def _rule(system: System, node: int, rule: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = system.control(node, "disk.faults")["rules"]
    mine = [row for row in rows if row["id"] == rule]
    return mine[0] if mine else {}


def power_loss(
    target: Target | int, *, seconds: Seconds | None = None, keep: float | None = None
) -> PowerLoss:
    """Lose the power: SIGKILL, and what was not fsynced vanishes or tears by the seed; `keep=0.0`: all of it.

    The cluster must have been started with `harrow.power.loss`; started again after `seconds`.
    """
    return PowerLoss(target=target, seconds=seconds, keep=keep)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target


def disk_error(
    operation: str,
    target: Target | int,
    *,
    error: str = "EIO",
    nth: int = 1,
    count: int = 0,
    path: str = "*",
    delay_ms: int = 0,
    seconds: Seconds | None = None,
) -> DiskError:
    """Let the n-th `write`, `sync`, `read` or `name` below `path` fail, and `count` of them (0: all from there on)."""
    return DiskError(
        target=target,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target
        operation=operation,
        error=error,
        nth=nth,
        count=count,
        path=path,
        delay_ms=delay_ms,
        seconds=seconds,
    )
