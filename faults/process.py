"""Faults of a broker's process (K1): kill, terminate, pause, restart.

Proofs come from the operating system: a dead process is gone from the kernel's process table (or a
zombie there), a paused one is in state T, a restarted one has another pid.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from .spec import Evidence, Fault, Injection, Seconds
from .system import System
from .targets import Target


def process_state(pid: int | None) -> str:
    """Return the state letter of /proc/PID/stat; empty when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def gone(pid: int | None) -> bool:
    """Whether a process runs no more."""
    return process_state(pid) in ("", "Z", "X", "x")


def _pids(injection: Injection) -> dict[int, int]:
    pids: dict[int, int] = injection.notes.setdefault("pids", {})
    return pids


def _note_pids(system: System, injection: Injection) -> list[int]:
    """Remember the pids of the nodes that were not hit yet; return those nodes."""
    pids = _pids(injection)
    fresh = [node for node in injection.nodes if node not in pids]
    for node in fresh:
        pid = system.brokers[node].pid
        if pid is not None:
            pids[node] = pid
    return [node for node in fresh if node in pids]


def start_again(system: System, injection: Injection) -> None:
    """Start what is dead and wait until it serves."""
    for node in injection.nodes:
        if not system.brokers[node].alive:
            system.brokers[node].start()


def running_again(system: System, injection: Injection) -> Evidence:
    """Observe that every broker that was hit serves."""
    states = {str(node): system.brokers[node].state for node in injection.nodes}
    pids = {str(node): system.brokers[node].pid for node in injection.nodes}
    proved = all(state == "running" for state in states.values())
    return Evidence(proved=proved, facts={"states": states, "pids": pids})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(Fault):
    """SIGKILL; healed by starting the broker again. Its page cache survives, its memory does not."""

    kind: ClassVar[str] = "kill"

    def inject(self, system: System, injection: Injection) -> None:
        """Kill each broker once."""
        for node in _note_pids(system, injection):
            system.brokers[node].kill()

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Gone from the process table."""
        del system
        pids = _pids(injection)
        states = {str(node): process_state(pid) or "gone" for node, pid in pids.items()}
        proved = bool(pids) and all(gone(pid) for pid in pids.values())
        return Evidence(
            proved=proved, facts={"pids": {str(n): p for n, p in pids.items()}, "process": states}
        )

    def heal(self, system: System, injection: Injection) -> None:
        """Start it again; returns when it serves."""
        start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """It serves."""
        return running_again(system, injection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate(Kill):
    """SIGTERM: controlled shutdown, leaders move first; healed by starting the broker again."""

    kind: ClassVar[str] = "terminate"

    def inject(self, system: System, injection: Injection) -> None:
        """Terminate each broker once, and wait for its end."""
        for node in _note_pids(system, injection):
            system.brokers[node].terminate()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart(Kill):
    """Terminate and start again at once (`hard=True`: kill and start again at once)."""

    kind: ClassVar[str] = "restart"
    hard: bool = False
    seconds: Seconds | None = 0.0

    def inject(self, system: System, injection: Injection) -> None:
        """End each broker once and start it."""
        for node in _note_pids(system, injection):
            broker = system.brokers[node]
            if self.hard:
                broker.kill()
            else:
                broker.terminate()
            broker.start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Fault):
    """SIGSTOP, later SIGCONT: a long garbage collection; past its session the broker is a zombie."""

    kind: ClassVar[str] = "pause"

    def inject(self, system: System, injection: Injection) -> None:
        """Stop each broker once."""
        for node in _note_pids(system, injection):
            system.brokers[node].pause()

    def probe(self, system: System, injection: Injection) -> Evidence:
        """State T in the process table."""
        del system
        pids = _pids(injection)
        states: dict[str, Any] = {str(node): process_state(pid) for node, pid in pids.items()}
        proved = bool(pids) and all(state in ("T", "t") for state in states.values())
        return Evidence(
            proved=proved, facts={"pids": {str(n): p for n, p in pids.items()}, "process": states}
        )

    def heal(self, system: System, injection: Injection) -> None:
        """Let it go on; a broker that died meanwhile is started."""
        for node in injection.nodes:
            if system.brokers[node].alive:
                system.brokers[node].resume()
        start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """It runs."""
        return running_again(system, injection)


def kill(target: Target | int, *, seconds: Seconds | None = None) -> Kill:
    """SIGKILL; the broker is started again after `seconds` (default: around the session timeout)."""
    return Kill(target=target, seconds=seconds)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target


def terminate(target: Target | int, *, seconds: Seconds | None = None) -> Terminate:
    """SIGTERM, a controlled shutdown; the broker is started again after `seconds`."""
    return Terminate(target=target, seconds=seconds)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target


def restart(target: Target | int, *, hard: bool = False) -> Restart:
    """End the broker and start it again at once; `hard` with SIGKILL."""
    return Restart(target=target, hard=hard)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target


def pause(target: Target | int, *, seconds: Seconds | None = None) -> Pause:
    """SIGSTOP for `seconds` (default: drawn from both sides of the session timeout)."""
    return Pause(target=target, seconds=seconds)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target
