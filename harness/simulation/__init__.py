"""Clusters on a virtual clock under random faults, thousands of them (`harrow simulate`).

`wire.py`, `producer.py`, `reader.py` are clients that speak the real protocol through the simulated network;
`nemesis.py` breaks things; `checks.py` says what must hold; `scenario.py` is one seed from start to verdict.
"""

from .scenario import Outcome, SimulationOptions, run_seed

__all__ = ["Outcome", "SimulationOptions", "run_seed"]
