"""`--harrow-schedule PATH`: the chaos blocks of a test run recorded schedules in place of their own.

A schedule that a simulation found is for one world, where it repeats byte for byte; `simulated_tests.py` runs it there
as it is, with the sizes of the recorded run. On real brokers its faults hit who has the role then, at the times at
which they fired, and each must fire. The cluster and the topics have their smaller sizes there too, but the numbers of
`harrow.up_to` are those of the test: with few records, real clients may be done before the fault comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from harrow.cluster.errors import ConfigError
from harrow.faults.schedule import Schedule

from ..run.sizes import BROKERS, PARTITIONS_OF
from ..run_settings import settings_of
from ..search.shrinking import with_roles

if TYPE_CHECKING:
    from .options import Options


def recorded(chosen: Options) -> dict[int, Schedule]:
    """Return the schedules that the command line names, by the number of the block, from 0 up."""
    return {number - 1: _read(path.read_text(encoding="utf-8"), str(path)) for number, path in chosen.schedule}


def sizes_of(schedules: Mapping[int, Schedule]) -> dict[str, int]:
    """Return the sizes of the recorded run that were smaller than its test says."""
    runs = [settings_of(schedule) for schedule in schedules.values() if schedule.run]
    return {name: size for run in runs for name, size in run.sizes.items()}


def cluster_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of the cluster and the topics."""
    return {name: size for name, size in sizes.items() if name == BROKERS or name.startswith(PARTITIONS_OF)}


def by_roles(schedule: Schedule) -> Schedule:
    """Return a schedule with roles in place of brokers; the run fails where a step cannot fire."""
    steps = tuple(replace(step, required=True) for step in with_roles(schedule).steps)
    return replace(schedule, steps=steps, run={}, notes={})


def _read(text: str, path: str) -> Schedule:
    try:
        return Schedule.from_json(text)
    except ConfigError as error:
        raise pytest.UsageError(f"--harrow-schedule: {path}: {error}") from None
