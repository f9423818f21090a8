"""Fault kinds by name, for schedule files, commands and plugins.

`FAULTS` maps a kind to its class; `register` adds a class. Extensions add theirs (`extensions.py`), which are looked up
only for a name that is not in the table. A fault's JSON is its kind, its target and the parameters that differ from
the defaults.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from .client_faults import (
    ExpireLock,
    HijackTransactionalId,
    IsolateClient,
    RebalanceStorm,
    StuckConsumer,
    StuckShareConsumer,
)
from .clock_faults import FreezeClock, JumpClock, SkewClock, StrobeClock
from .cluster_faults import ElectController, ExpireSession, MoveLeader, Reassign, ZombieController
from .credential_faults import (
    ExpireCertificate,
    ExpireToken,
    RefuseReauthentication,
    RevokeAcl,
    RotateCertificate,
    RotateCredentials,
)
from .damage_faults import DamageDisk
from .dependency_faults import DEPENDENCY_FAULTS
from .disk_faults import DiskError, PowerLoss, SlowDisk, Wipe
from .election_faults import UncleanElection
from .errors import ConfigError
from .extensions import EXTENSIONS, name_of
from .failpoint_faults import Failpoint, FailpointAtStart
from .membership_faults import AddBroker, RemoveBroker
from .network_faults import Isolate, OneWayCut, Reset, SlowLink, Throttle
from .partition_faults import Bridge, Disconnect, HalfOpen, Halves, MajoritiesRing
from .process_faults import Kill, Pause, Restart, Terminate
from .program_faults import KillProgram, PauseProgram, TerminateProgram
from .registry_faults import PauseRegistry, RestartRegistry
from .request_faults import DelayRequest, DuplicateRequest, FailResponse, LoseRequest, LoseResponse, RefuseRequest
from .resource_faults import ExhaustConnections, ExhaustDescriptors, LimitMemory, ThrottleCpu
from .restart_faults import CrashDuringRecovery, CrashLoop, RollingRestart, SlowStart
from .spec import Fault
from .targets import Target

FAULTS: dict[str, type[Fault]] = {}
RENAMED_KINDS: Mapping[str, str] = {"slow": "slow_link"}
"""Former kind to its present name: a schedule file with a former name is refused, and the message names the new one."""
RENAMED_PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "slow_link": {"ms": "delay_ms"},
    "power_loss": {"keep": "kept_fraction"},
    "restart": {"hard": "kill"},
}
"""Kind to the former and the present names of its parameters."""


def register(fault: type[Fault]) -> type[Fault]:
    """Make a fault known by its `kind`; ConfigError when another fault has that name."""
    if FAULTS.get(fault.kind, fault) is not fault:
        raise ConfigError(
            f"the fault {fault.kind!r} is registered already, as {FAULTS[fault.kind]!r}; choose another kind"
        )
    FAULTS[fault.kind] = fault
    return fault


for _fault in (
    Kill,
    Terminate,
    Pause,
    Restart,
    PowerLoss,
    Wipe,
    DiskError,
    SlowDisk,
    Isolate,
    OneWayCut,
    SlowLink,
    Throttle,
    Reset,
    RestartRegistry,
    PauseRegistry,
    LoseResponse,
    FailResponse,
    LoseRequest,
    RefuseRequest,
    DelayRequest,
    DuplicateRequest,
    Failpoint,
    FailpointAtStart,
    RollingRestart,
    CrashLoop,
    CrashDuringRecovery,
    SlowStart,
    Disconnect,
    Halves,
    Bridge,
    MajoritiesRing,
    HalfOpen,
    ElectController,
    ZombieController,
    ExpireSession,
    MoveLeader,
    Reassign,
    JumpClock,
    SkewClock,
    FreezeClock,
    StrobeClock,
    DamageDisk,
    ThrottleCpu,
    ExhaustDescriptors,
    UncleanElection,
    LimitMemory,
    ExhaustConnections,
    AddBroker,
    RemoveBroker,
    HijackTransactionalId,
    RebalanceStorm,
    StuckConsumer,
    StuckShareConsumer,
    ExpireLock,
    IsolateClient,
    KillProgram,
    PauseProgram,
    TerminateProgram,
    RotateCredentials,
    RevokeAcl,
    ExpireCertificate,
    RotateCertificate,
    RefuseReauthentication,
    ExpireToken,
    *DEPENDENCY_FAULTS,
):
    register(_fault)
OWN_KINDS = frozenset(FAULTS)
"""The faults of Harrow itself."""


def fault_kind(name: str) -> type[Fault] | None:
    """Return the class of a kind, one of an extension too; None where there is none."""
    return FAULTS.get(name) or extension_kinds().get(name)


def recorded_kind(name: str) -> type[Fault]:
    """Return the class of a recorded kind, for what it says of itself; `Fault` where its distribution is missing."""
    return fault_kind(name) or Fault


def extension_kinds() -> Mapping[str, type[Fault]]:
    """Return the faults of extensions, by kind; the first call loads all extensions."""

    def read(found: Any) -> Iterable[tuple[str, type[Fault]]]:
        for kind in found:
            if not isinstance(kind, type) or not issubclass(kind, Fault):
                raise TypeError(f"{kind!r} is not a subclass of harrow.faults.Fault")
            missing = sorted(getattr(kind, "__abstractmethods__", ()))
            if missing:
                raise TypeError(f"the fault {kind.__name__} has no {', '.join(missing)}")
            yield name_of(kind, "kind"), kind

    return EXTENSIONS.table("harrow_faults", read, FAULTS)


def fault_from_json(raw: Mapping[str, Any]) -> Fault:
    """Build the fault that `Fault.to_json` wrote; ConfigError names what does not exist."""
    if not isinstance(raw, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - the border
        raise ConfigError(f"{raw!r}: expected an object with name, target and parameters")
    name = str(raw.get("name"))
    kind = fault_kind(name)
    if kind is None:
        known_kinds = {**FAULTS, **extension_kinds()}
        hint = _hint(name, RENAMED_KINDS, known_kinds)
        raise ConfigError(
            f"no fault {name!r}{hint} (known: {', '.join(known_kinds)}; a fault of an extension needs its distribution)"
        )
    parameters = {key: value for key, value in raw.items() if key not in ("name", "target")}
    known = [row.name for row in fields(kind)]
    for key in parameters:
        if key not in known:
            hint = _hint(key, RENAMED_PARAMETERS.get(name, {}), known)
            raise ConfigError(f"fault {name}: no parameter {key!r}{hint}")
    if "target" not in raw:
        raise ConfigError(f"fault {name}: no target")
    try:
        return kind(target=Target.from_json(raw["target"]), **kind.recorded(parameters))
    except TypeError as error:
        raise ConfigError(f"fault {name}: {error}") from None


def _hint(word: str, renamed: Mapping[str, str], known: Iterable[str]) -> str:
    """Name the word's present name, or a known word that resembles it."""
    if word in renamed:
        return f"; it is now called {renamed[word]!r}"
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
