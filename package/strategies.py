"""Strategies of Hypothesis for faults and schedules, and a state machine whose rules are faults: `docs/hypothesis.md`.

Needs Hypothesis, which `pip install "pytest-harrow[hypothesis]"` installs. ImportError says so where it is missing.
"""

try:
    import hypothesis as _hypothesis  # noqa: F401  # pyright: ignore[reportUnusedImport] - is it there?
except ModuleNotFoundError:
    raise ImportError(
        'harrow.strategies needs Hypothesis, which is not installed: pip install "pytest-harrow[hypothesis]"'
    ) from None

from harrow.faults.strategies import faults, schedules
from harrow.harness.plugin.state_machine import HarrowMachine, cluster_settings

__all__ = ["HarrowMachine", "cluster_settings", "faults", "schedules"]
