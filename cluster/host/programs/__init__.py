"""Python programs of users on simulated machines: an asyncio loop on virtual time, with connections of the fabric.

Owns: `ProgramLoop`, the asyncio event loop of one program on one simulated machine; what a program's sockets are there
(`transports.py`); and what its process sees of the outside: clocks and random numbers (`process_view.py`), and the
calls that would leave the simulation (`fence.py`). The program's code is unchanged: it gets the loop by
`asyncio.get_running_loop()`.

A program is a host like a broker: its machine has links, a clock, pauses and crashes, by the same words.
"""

from .event_loop import ProgramLoop
from .fence import FenceError

__all__ = ["FenceError", "ProgramLoop"]
