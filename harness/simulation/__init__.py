"""Simulated clusters on a virtual clock under random faults (`harrow simulate` runs thousands).

`planning.py` draws a seed's schedule; `run.py` runs a schedule from start to verdict; `workload.py` creates the
clients: `producer.py`, `consumer.py`, … speak the real protocol through the simulated network; `checks.py`
judges, with the oracle of `harness/checks/`. Faults and the nemesis are those of `harrow.faults`.
"""

from harrow.faults.runs import SimulationOptions

from .planning import plan_seed
from .run import SimulationResult, run_schedule, run_seed

__all__ = ["SimulationOptions", "SimulationResult", "plan_seed", "run_schedule", "run_seed"]
