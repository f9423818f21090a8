"""A schedule as the Python text of a test, to paste into a suite (K9).

A fault that `harrow.faults` has no function for (a third party's, a registered one) is written by its JSON form.
"""

from __future__ import annotations

import dataclasses
import pprint
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from harrow import faults
from harrow.faults.dependency_faults import DependencyFault
from harrow.faults.schedule import Schedule, ScheduledFault
from harrow.faults.spec import Fault
from harrow.faults.targets import Target

from ..run_settings import RunSettings

INDENT = "        "
WIDTH = 100


def schedule_text(schedule: Schedule) -> str:
    """Return imports and the constant `SCHEDULE`."""
    names = sorted({"Schedule", "ScheduledFault", *_names(schedule)})
    steps = "".join(f"{INDENT}{_step_text(step)},\n" for step in schedule.steps)
    duration = "" if schedule.duration_ms is None else f", duration_ms={schedule.duration_ms}"
    return (
        f"from harrow.faults import {', '.join(names)}\n\n"
        f"SCHEDULE = Schedule(\n    seed={schedule.seed}, cap={schedule.cap}{duration},\n"
        f"    steps=(\n{steps}    ),\n)\n"
    )


def pasted_test(name: str, schedule: Schedule, found: str) -> str:
    """Return a test with this schedule and a place for the user's own code; `found` says what fails."""
    return (
        f"{schedule_text(schedule)}\n\n"
        f"def test_{name}(harrow):\n"
        f'    """{found}"""\n'
        "    ...  # the topics of your test\n"
        "    with harrow.chaos(schedule=SCHEDULE) as chaos:\n"
        "        ...  # the code under test\n"
        "    harrow.verify(...)  # as in your test\n"
    )


def pasted_seed(name: str, seed: int, schedule: Schedule, found: str, sizes: Mapping[str, int]) -> str:
    """Return a simulated test of the user's code with this seed and schedule: the same run each time.

    `sizes`: those that are smaller than the test says.
    """
    plain = replace(schedule, run={}, notes={})
    brokers = f", brokers={sizes['brokers']}" if "brokers" in sizes else ""
    others = ", ".join(f"{size} {name}" for name, size in sizes.items() if name != "brokers")
    return (
        f"import pytest\n{schedule_text(plain)}\n\n"
        f'@pytest.mark.harrow(backend="simulated", seed={seed}, seeds=1{brokers})\n'
        f"async def test_{name}(harrow):\n"
        f'    """{found}"""\n'
        f"    ...  # the topics and services of your test{f', with {others}' if others else ''}\n"
        "    async with harrow.chaos(schedule=SCHEDULE):\n"
        "        ...  # its traffic\n"
        "    harrow.verify(...)  # as in your test\n"
    )


def pasted_simulation(name: str, schedule: Schedule, found: str) -> str:
    """Return a test that simulates the schedule: a second, and the same each time."""
    usual = RunSettings().to_json()
    given = {name: value for name, value in schedule.run.items() if value != usual.get(name)}
    run = pprint.pformat(given, width=WIDTH, compact=True, sort_dicts=False)
    return (
        "from dataclasses import replace\n\n"
        f"{schedule_text(schedule)}"
        f"RUN = {run}\n\n\n"
        f"def test_{name}():\n"
        f'    """{found}"""\n'
        "    from harrow.harness.simulation import run_schedule\n\n"
        "    result = run_schedule(replace(SCHEDULE, run=RUN))\n"
        '    assert result.status == "valid", result.anomalies\n'
    )


def _names(schedule: Schedule) -> Iterator[str]:
    for step in schedule.steps:
        if not _has_function(step.fault):
            yield "fault_from_json"
            continue
        function, targets, _ = _call(step.fault)
        yield function
        yield from (target.role for target in targets)
    for step in schedule.steps:
        yield from (event.event for event in (*step.after, *step.until))


def _call(fault: Fault) -> tuple[str, tuple[Target, ...], dict[str, Any]]:
    """Return the function that makes a fault, its targets and its other arguments."""
    given = fault.parameters()
    if isinstance(fault, DependencyFault) and fault.dependency is not None:
        del given["dependency"]
        return fault.written, (faults.dependency(fault.dependency),), given
    return fault.kind, () if fault.has_fixed_target else fault.targets(), given


def _has_function(fault: Fault) -> bool:
    """Whether the text of the fault, evaluated with the names of `harrow.faults`, is the fault."""
    function, targets, given = _call(fault)
    make = getattr(faults, function, None)
    if make is None or not all(hasattr(faults, target.role) for target in targets):
        return False
    try:
        return bool(make(*targets[:1], **given) == fault)
    except Exception:  # a function with other arguments
        return False


def _step_text(step: ScheduledFault) -> str:
    given = [f"id={step.id!r}", f"fault={_fault_text(step.fault)}"]
    for row in dataclasses.fields(step):
        value = getattr(step, row.name)
        if row.name not in ("id", "fault") and value not in (row.default, None, {}):
            given.append(f"{row.name}={value!r}")
    return f"ScheduledFault({', '.join(given)})"


def _fault_text(fault: Fault) -> str:
    return str(fault) if _has_function(fault) else f"fault_from_json({fault.to_json()!r})"
