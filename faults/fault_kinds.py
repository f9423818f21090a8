"""Faults by name: how a schedule file, a command or other people's code finds them.

`FAULTS` maps a kind to its class; `register` adds a class. A fault's JSON is its kind, its target and the
parameters that differ from the defaults.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from .disk_faults import DiskError, PowerLoss, SlowDisk
from .errors import ConfigError
from .failpoint_faults import Failpoint
from .network_faults import Isolate, OneWayCut, Reset, Slow
from .process_faults import Kill, Pause, Restart, Terminate
from .registry_faults import PauseRegistry, RestartRegistry
from .request_faults import LoseResponse
from .spec import Fault
from .targets import Target

FAULTS: dict[str, type[Fault]] = {}


def register(fault: type[Fault]) -> type[Fault]:
    """Make a fault known by its `kind`; ConfigError when another fault has that name."""
    if FAULTS.get(fault.kind, fault) is not fault:
        raise ConfigError(
            f"the fault {fault.kind!r} is registered already, as {FAULTS[fault.kind]!r}; choose another kind"
        )
    FAULTS[fault.kind] = fault
    return fault


for _fault in (
    Kill, Terminate, Pause, Restart, PowerLoss, DiskError, SlowDisk, Isolate, OneWayCut, Slow, Reset, RestartRegistry,
    PauseRegistry, LoseResponse, Failpoint,
):  # fmt: skip
    register(_fault)


def fault_from_json(raw: Mapping[str, Any]) -> Fault:
    """Build the fault that `Fault.to_json` wrote; ConfigError names what does not exist."""
    name = raw.get("name")
    kind = FAULTS.get(str(name))
    if kind is None:
        raise ConfigError(
            f"fault {name!r}{_nearest(str(name), FAULTS)} (known: {', '.join(FAULTS)})"
        )
    parameters = {key: value for key, value in raw.items() if key not in ("name", "target")}
    known = [row.name for row in fields(kind)]
    for key in parameters:
        if key not in known:
            raise ConfigError(f"fault {name}: no parameter {key!r}{_nearest(key, known)}")
    if "target" not in raw:
        raise ConfigError(f"fault {name}: no target")
    return kind(target=Target.from_json(raw["target"]), **parameters)


def _nearest(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
