"""Functions of faults whose target may be a broker, the registry or a dependency: each makes the fault of its kind.

`kill(dependency("store"))` is a fault of the program that has the dependency's name; `cut(dependency("store"))` is one
of its links.
"""

from __future__ import annotations

from harrow.cluster.argument_types import checked

from .dependency_faults import (
    CutDependency,
    HalfOpenDependency,
    IsolateDependency,
    ResetDependency,
    SlowDependency,
    ThrottleDependency,
    of_dependency,
)
from .errors import ConfigError
from .network_faults import (
    SLOW_LINK_MS,
    THROTTLE_BYTES_PER_S,
    BytesPerSecond,
    Isolate,
    OneWayCut,
    Reset,
    SlowLink,
    Throttle,
)
from .partition_faults import HalfOpen
from .process_faults import Kill, Pause, Restart, Terminate
from .program_faults import kill_program, pause_program, terminate_program
from .registry_faults import pause_registry, restart_registry
from .spec import Fault, Milliseconds, Seconds
from .targets import REGISTRY, Target, all_brokers, as_target, dependency_of


@checked
def kill(target: Target | int, *, seconds: Seconds | None = None) -> Fault:
    """SIGKILL; the broker is started again after `seconds` (default: around the session timeout).

    `kill(registry())` is `restart_registry()`.
    """
    if target == REGISTRY:
        return restart_registry(seconds=seconds)
    if name := dependency_of(target):
        return kill_program(name, seconds=seconds)
    return Kill(target=as_target(target, Kill.kind), seconds=seconds)


@checked
def terminate(target: Target | int, *, seconds: Seconds | None = None) -> Fault:
    """SIGTERM, a controlled shutdown; the broker is started again after `seconds`."""
    if name := dependency_of(target):
        return terminate_program(name, seconds=seconds)
    return Terminate(target=as_target(target, Terminate.kind), seconds=seconds)


@checked
def restart(target: Target | int, *, kill: bool = False) -> Fault:
    """End the broker and start it again as soon as it is dead; `kill=True`: with SIGKILL."""
    if name := dependency_of(target):
        return kill_program(name, seconds=0) if kill else terminate_program(name, seconds=0)
    return Restart(target=as_target(target, Restart.kind), kill=kill)


@checked
def pause(target: Target | int, *, seconds: Seconds | None = None) -> Fault:
    """SIGSTOP for `seconds` (default: drawn from both sides of the session timeout).

    `pause(registry())` is `pause_registry()`.
    """
    if target == REGISTRY:
        return pause_registry(seconds=seconds)
    if name := dependency_of(target):
        return pause_program(name, seconds=seconds)
    return Pause(target=as_target(target, Pause.kind), seconds=seconds)


@checked
def isolate(
    target: Target | int,
    *,
    seconds: Seconds | None = None,
    clients: bool = False,
    direction: str = "both",
    heals_by: str | None = None,
    peers: str = "all",
) -> Fault:
    """Cut a broker off for `seconds`: from brokers and registry, with `clients=True` from clients too.

    `direction`: both, in or out; `heals_by`: what was held back is delivered ("deliver") or its connections are reset
    ("reset"); by default the seed decides. `peers="any"`: from a single peer, which the seed draws; `"clients"` or
    `"registry"`: from these only. `isolate(registry())` isolates the registry from all brokers.
    """
    if name := dependency_of(target):
        if direction != "both":
            raise ConfigError(
                f"isolate(dependency({name!r}), direction={direction!r}): write cut(dependency({name!r}), "
                f"direction={direction!r})"
            )
        return of_dependency(IsolateDependency, name, seconds=seconds, clients=clients, peers=peers, heals_by=heals_by)
    if target == REGISTRY:
        target, peers = all_brokers, "registry"
    return Isolate(
        target=as_target(target, Isolate.kind),
        seconds=seconds,
        clients=clients,
        direction=direction,
        heals_by=heals_by,
        peers=peers,
    )


@checked
def cut(
    target: Target | int,
    *,
    seconds: Seconds | None = None,
    clients: bool = False,
    direction: str | None = None,
    heals_by: str | None = None,
    peers: str = "all",
) -> Fault:
    """Cut a broker off in one direction: "in" (it receives nothing) or "out" (its peers receive nothing).

    Without `direction` the seed draws it.
    """
    if name := dependency_of(target):
        return of_dependency(
            CutDependency, name, seconds=seconds, clients=clients, peers=peers, heals_by=heals_by, direction=direction
        )
    return OneWayCut(
        target=as_target(target, OneWayCut.kind),
        seconds=seconds,
        clients=clients,
        direction=direction,
        heals_by=heals_by,
        peers=peers,
    )


@checked
def slow_link(
    target: Target | int,
    *,
    delay_ms: Milliseconds = SLOW_LINK_MS,
    seconds: Seconds | None = None,
    clients: bool = False,
    peers: str = "all",
) -> Fault:
    """Delay what a broker sends to brokers and registry by `delay_ms`; with `clients=True` to clients too."""
    if name := dependency_of(target):
        return of_dependency(SlowDependency, name, seconds=seconds, clients=clients, peers=peers, delay_ms=delay_ms)
    return SlowLink(
        target=as_target(target, SlowLink.kind), delay_ms=delay_ms, seconds=seconds, clients=clients, peers=peers
    )


@checked
def throttle(
    target: Target | int,
    *,
    bytes_per_s: BytesPerSecond = THROTTLE_BYTES_PER_S,
    seconds: Seconds | None = None,
    clients: bool = False,
    peers: str = "all",
) -> Fault:
    """Limit what a broker sends to brokers and registry, all together; `clients=True`: clients too."""
    if name := dependency_of(target):
        return of_dependency(
            ThrottleDependency, name, seconds=seconds, clients=clients, peers=peers, bytes_per_s=bytes_per_s
        )
    return Throttle(
        target=as_target(target, Throttle.kind),
        bytes_per_s=bytes_per_s,
        seconds=seconds,
        clients=clients,
        peers=peers,
    )


@checked
def reset(target: Target | int, *, clients: bool = False, peers: str = "all") -> Fault:
    """Reset a broker's connections with brokers and registry, with `clients=True` those with clients too."""
    if name := dependency_of(target):
        return of_dependency(ResetDependency, name, clients=clients, peers=peers)
    return Reset(target=as_target(target, Reset.kind), clients=clients, peers=peers)


@checked
def half_open(
    target: Target | int, *, seconds: Seconds | None = None, clients: bool = False, peers: str = "all"
) -> Fault:
    """Let the open connections of a broker carry nothing any more, without an end; new ones do."""
    if name := dependency_of(target):
        return of_dependency(HalfOpenDependency, name, seconds=seconds, clients=clients, peers=peers)
    return HalfOpen(target=as_target(target, HalfOpen.kind), seconds=seconds, clients=clients, peers=peers)
