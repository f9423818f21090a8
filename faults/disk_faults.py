"""Faults of a broker's disk (K3): power loss, system calls that fail, and a disk that is slow.

A power loss is a kill after which unsynced writes may be lost: the broker's host writes a journal of unsynced writes
(the setting `harrow.power.loss` of the cluster), and the backend rolls the files back to a content that a disk may
have had, drawn by the seed. Evidence: the affected incarnations have ended, and the roll-back has reported its counts.

A disk error affects the n-th write, fsync, read or rename below a path, and every later call. The data folder is
offline from then on (B11), so that healing restarts the broker. Evidence: the broker's own count, or that the broker
stopped because it had no other data folder.

A wipe is a kill after which the broker's data folders are empty: a new disk. Evidence: the affected incarnations have
ended, and the number of removed files is reported. What only this broker had is lost, which is no bug of anybody.

A slow disk delays every write and fsync; the broker continues to serve. Evidence: the broker's count of delayed calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked

from .controls import RUNNING, DiskPowerLoss, EmptyFolders, PartialPowerLoss
from .errors import ConfigError
from .evidence import Evidence
from .process_faults import Kill, ProcessFault, ended, hit_once, is_over, running_again, start_again
from .rule_kinds import DiskRule, LateDiskRule, SlowDiskRule
from .rules import arm_once, armed_in, disarm, disarmed, fired
from .spec import Fault, FaultState, Hold, Injection, Milliseconds, Seconds, amount_within, least_and_most
from .system import ClusterSnapshot, System
from .targets import Target, as_target
from .unreached_words import no_call

OPERATIONS = ("write", "sync", "read", "rename")
ERRORS = ("EIO", "ENOSPC", "EROFS", "EDQUOT", "")
SLOW_DISK_MS = (20, 200)
"""From a disk that other processes use too, to a disk that is about to fail."""
SLOW_DISK_MS_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLoss(Kill):
    """SIGKILL, and everything that was not fsynced may vanish or tear; healed by starting the broker again."""

    kind: ClassVar[str] = "power_loss"
    words: ClassVar[str] = "lost power"
    kept_fraction: float | None = None

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.kept_fraction is not None and not 0.0 <= self.kept_fraction <= 1.0:
            raise ConfigError(
                f"power_loss(kept_fraction={self.kept_fraction!r}): expected a number from 0 to 1, or None"
            )

    def capabilities(self) -> frozenset[str]:
        """Name what a backend must be able to do."""
        return frozenset({"power-loss", *(() if self.kept_fraction is None else ("power-loss-kept-fraction",))})

    def draw_details(self, snapshot: ClusterSnapshot, rng: Any) -> dict[str, Any]:
        """Draw the seed of the roll-back."""
        del snapshot
        return {"seed": rng.getrandbits(32)}

    def inject(self, system: System, injection: Injection) -> None:
        """Kill all brokers of the target at once, each once, and roll their files back."""
        hit_once(system, injection, lambda broker: broker.disk.end_with(self._power_loss(injection, broker.node)))

    def _power_loss(self, injection: Injection, node: int) -> DiskPowerLoss:
        seed = f"{injection.details['seed']}/{node}"
        if self.kept_fraction is None:
            return DiskPowerLoss(seed=seed)
        return PartialPowerLoss(seed=seed, kept_fraction=self.kept_fraction)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the affected incarnations have ended and the disks are rolled back."""
        dead = ended(system, injection)
        lost: dict[str, Mapping[str, Any]] = {}
        for node in FaultState.of(injection).incarnations:
            took = system.broker(node).disk.changed(DiskPowerLoss)
            if took is not None:
                lost[str(node)] = dict(took)
        proved = dead.proved and set(lost) == {str(node) for node in injection.nodes}
        return Evidence(proved=proved, facts={**dead.facts, "lost": lost})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wipe(Kill):
    """SIGKILL, and the data folders are empty when the broker is started again."""

    kind: ClassVar[str] = "wipe"
    words: ClassVar[str] = "was killed and lost its data"
    drawable: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"wipe", "process"})

    def inject(self, system: System, injection: Injection) -> None:
        """Kill all brokers of the target, each once, and empty their data folders."""
        hit_once(system, injection, lambda broker: broker.disk.end_with(EmptyFolders()))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the affected incarnations have ended and the folders are empty."""
        dead = ended(system, injection)
        facts = {str(node): system.broker(node).disk.changed(EmptyFolders) for node in injection.nodes}
        removed = {node: None if row is None else row["removed_files"] for node, row in facts.items()}
        proved = dead.proved and None not in removed.values()
        return Evidence(proved=proved, facts={**dead.facts, "removed_files": removed})


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskError(ProcessFault):
    """From the n-th call of an operation on a path like `path` on: an error, a delay, or both."""

    kind: ClassVar[str] = "disk_error"
    words: ClassVar[str] = "had a disk that failed"
    moves_leaders: ClassVar[bool] = True
    drawable: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"disk-errors", "process"})
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
            renamed = "; it is now called 'rename'" if self.operation == "name" else ""
            raise ConfigError(f"disk_error({self.operation!r}): expected one of {', '.join(OPERATIONS)}{renamed}")
        if self.error not in ERRORS:
            raise ConfigError(f"disk_error(error={self.error!r}): expected one of {ERRORS}")
        if self.nth < 1 or self.count < 0 or self.delay_ms < 0 or not (self.error or self.delay_ms):
            raise ConfigError(
                f"disk_error(nth={self.nth}, count={self.count}, delay_ms={self.delay_ms}): expected nth from 1 up, "
                "the others from 0 up, and an error or a delay"
            )

    @property
    def disturbs(self) -> bool:
        """False for a delay without an error: the broker continues to serve."""
        return bool(self.error)

    def capabilities(self) -> frozenset[str]:
        """Name what a backend must be able to do."""
        return frozenset({*self.needs, *(("disk-delays",) if self.delay_ms else ())})

    def inject(self, system: System, injection: Injection) -> None:
        """Arm it once on each broker."""
        arm_once(system, injection, self._rule())

    def _rule(self) -> DiskRule:
        given: dict[str, Any] = {
            "operation": self.operation,
            "error": self.error,
            "nth": self.nth,
            "count": self.count,
            "path": self.path,
        }
        return LateDiskRule(**given, delay_ms=self.delay_ms) if self.delay_ms else DiskRule(**given)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether it acted on at least one broker."""
        facts = fired(system, injection)
        proved = any(fact["fired"] for fact in facts.values())
        return Evidence(proved=proved, facts={"operation": self.operation, "brokers": facts})

    def unreached(self, injection: Injection, facts: Mapping[str, Any]) -> str:
        """Say how many such calls there were."""
        del injection
        what = f"a {self.operation} of a path like {self.path!r}"
        return no_call(what, self.nth, "seen", facts.get("brokers", {}))

    def heal(self, system: System, injection: Injection) -> None:
        """Disarm the rule, and restart a broker whose data folder is offline: only a new incarnation opens it."""
        state = FaultState.of(injection)
        for node, incarnation, rule in armed_in(injection):
            broker = system.broker(node)
            status = broker.status()
            if is_over(status, incarnation) or status.state != RUNNING:
                continue
            acted = rule.status().fired
            rule.disarm()
            if acted and self.error and node not in state.restarted:
                state.restarted.append(node)
                broker.process.terminate()
        start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether brokers run, in a new incarnation where healing needed it, and nothing is armed."""
        state = FaultState.of(injection)
        over = all(is_over(system.broker(node).status(), state.incarnations[node]) for node in state.restarted)
        return disarmed(system, injection, running_again(system, injection), over=over)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDisk(ProcessFault):
    """Every write and fsync takes `delay_ms` longer; the broker continues to serve, late."""

    kind: ClassVar[str] = "slow_disk"
    words: ClassVar[str] = "had a slow disk"
    holds: ClassVar[Hold | None] = Hold.SLOW
    needs: ClassVar[frozenset[str]] = frozenset({"slow-disk"})
    waits_for_traffic: ClassVar[bool] = True
    delay_ms: Milliseconds = SLOW_DISK_MS

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        checked = amount_within(self.delay_ms, SLOW_DISK_MS_MOST, "slow_disk(delay_ms")
        object.__setattr__(self, "delay_ms", checked)

    @property
    def disturbs(self) -> bool:
        """False: every broker continues to serve."""
        return False

    def draw_details(self, snapshot: ClusterSnapshot, rng: Any) -> dict[str, Any]:
        """Draw the delay."""
        del snapshot
        return {"delay_ms": round(rng.uniform(*least_and_most(self.delay_ms)))}

    def inject(self, system: System, injection: Injection) -> None:
        """Make each broker's disk slow, once."""
        arm_once(system, injection, SlowDiskRule(delay_ms=int(injection.details["delay_ms"])))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether a call was late on at least one broker."""
        facts = fired(system, injection)
        proved = any(fact["fired"] for fact in facts.values())
        return Evidence(proved=proved, facts={"brokers": facts})

    def heal(self, system: System, injection: Injection) -> None:
        """Disarm the rule; a broker that another fault killed is started by the healing of that fault."""
        disarm(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether nothing is armed."""
        return disarmed(system, injection, Evidence(proved=True))


@checked
def power_loss(
    target: Target | int, *, seconds: Seconds | None = None, kept_fraction: float | None = None
) -> PowerLoss:
    """Lose the power: SIGKILL, and what was not fsynced vanishes or tears by the seed; `kept_fraction=0.0`: all of it.

    The cluster must have been started with `harrow.power.loss`; started again after `seconds`.
    """
    return PowerLoss(target=as_target(target, PowerLoss.kind), seconds=seconds, kept_fraction=kept_fraction)


@checked
def wipe(target: Target | int, *, seconds: Seconds | None = None) -> Wipe:
    """SIGKILL, and the data folders are empty when the broker is started again, after `seconds`."""
    return Wipe(target=as_target(target, Wipe.kind), seconds=seconds)


@checked
def slow_disk(
    target: Target | int, *, delay_ms: Milliseconds = SLOW_DISK_MS, seconds: Seconds | None = None
) -> SlowDisk:
    """Delay every write and fsync of a broker by `delay_ms`."""
    return SlowDisk(target=as_target(target, SlowDisk.kind), delay_ms=delay_ms, seconds=seconds)


@checked
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
    """Let `write`, `sync`, `read` or `rename` calls on paths like `path` fail: `count` calls from the n-th (0: all).

    `rename` covers every change of names: create, rename, remove, and the same of folders.
    """
    return DiskError(
        target=as_target(target, DiskError.kind),
        operation=operation,
        error=error,
        nth=nth,
        count=count,
        path=path,
        delay_ms=delay_ms,
        seconds=seconds,
    )
