"""The states of consumer groups: each change, from the coordinators' taps, and the last one, as brokers said it (L4).

Owns: `groups.json` of a run folder (schema 1), and how `tap.groups` is read. `groups.json` has the groups that
ListGroups returned when the run ended, with their states, and what prevented asking. May fail: a file that cannot be
read raises HarrowError or OSError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harrow.cluster.broker_folder import TAP_GROUPS, TAP_NAMES, broker_files, node_id_of
from harrow.cluster.errors import HarrowError

from .. import run_folder
from .coordinator_rows import map_rows
from .format import read_names

SCHEMA_VERSION = 1
AT_REST = frozenset({"Stable", "Empty", "Dead"})
"""States that may last; in any other one the coordinator waits for members, at most until their timeouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsAtTheEnd:
    """What the brokers said of their groups when the run ended."""

    asked_ns: int
    """When they were asked, on the monotonic clock."""
    states: Mapping[str, str] = field(default_factory=dict[str, str])
    """Group -> state, by Kafka's name."""
    problems: Sequence[str] = ()
    """Brokers that did not respond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A row of `tap.groups`, with names instead of numbers: a group is in a state from `time_ns` on."""

    group: str
    state: str
    node: int
    """Its coordinator."""
    partition: int
    generation: int
    leader_epoch: int
    members: int
    timeout_ms: int
    """The longest timeout of a member."""
    time_ns: int


def write_groups(run: Path, found: GroupsAtTheEnd) -> None:
    """Write `groups.json`."""
    body = {
        "schema_version": SCHEMA_VERSION,
        "asked_ns": found.asked_ns,
        "states": dict(sorted(found.states.items())),
        "problems": list(found.problems),
    }
    (run / run_folder.GROUPS).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def read_groups(run: Path) -> GroupsAtTheEnd | None:
    """Read `groups.json`; None where the brokers were not asked."""
    path = run / run_folder.GROUPS
    if not path.exists():
        return None
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["schema_version"] != SCHEMA_VERSION:
            raise HarrowError(
                f"{path} has schema version {body['schema_version']}, expected {SCHEMA_VERSION}: run the test again"
            )
        return GroupsAtTheEnd(
            asked_ns=int(body["asked_ns"]), states=dict(body["states"]), problems=tuple(body["problems"])
        )
    except (ValueError, KeyError, TypeError) as error:
        raise HarrowError(f"{path} cannot be read: {error!r}: run the test again") from error


def read_group_rows(run: Path) -> list[GroupRow]:
    """Return every row of `tap.groups`."""
    import numpy as np
    from harrow.cluster.host.seam import GROUP_STATES
    from harrow.cluster.tap.layouts import GROUP_DTYPE

    found: list[GroupRow] = []
    fields = ("partition", "generation", "leader_epoch", "members", "timeout_ms", "time_ns")
    for path in broker_files(run / run_folder.CLUSTER, TAP_GROUPS):
        rows = map_rows(path, np.dtype(GROUP_DTYPE))
        names = read_names(path.with_name(TAP_NAMES)) if len(rows) else ()
        found += [
            GroupRow(
                group=names[int(row["group"])],
                state=GROUP_STATES[int(row["state"])],
                node=node_id_of(path.parent),
                **{name: int(row[name]) for name in fields},
            )
            for row in rows
            if int(row["group"]) < len(names)
        ]
    return found
