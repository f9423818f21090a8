"""The simulated machine: the seam on a virtual clock, with a disk in memory and a seeded network.

`loop.py` is the virtual time and `tasks.py` runs coroutines on it. `disk.py` (with `names.py` and `inode.py`) stores
files and decides what a power loss leaves of them. `fabric.py`, `link.py`, `latency.py` and `network.py` are the
connections, `stream.py` those of bytes between programs, and `after_delivery.py` the calls that wait for the end of a
delivery. `host.py` assembles `World`,
`Machine` and `SimHost`.

The simulation does no real I/O and uses no threads, no asyncio and no clock of the machine: a world is a function of
its seed and of the calls on it.
"""

from .host import Machine, SimHost, World
from .latency import Latency

__all__ = ["Latency", "Machine", "SimHost", "World"]
