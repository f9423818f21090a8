"""Simulated machines: the seam on a virtual clock, a disk in memory and a seeded network.

`loop.py` is time, `tasks.py` what runs on it, `disk.py` (with `names.py` and `inode.py`) files and what a power loss
leaves of them, `wires.py` and `network.py` connections; `host.py` assembles `World`, `Machine` and `SimHost`. No
real I/O, no threads, no asyncio, no clock of the machine: a world is a function of its seed and of what is done to it.
"""

from .host import Machine, SimHost, World
from .latency import Latency

__all__ = ["Latency", "Machine", "SimHost", "World"]
