"""Classic consumer groups and committed offsets (G1 to G3), on `__consumer_offsets`.

Owns: the coordinator of the groups whose partition of `__consumer_offsets` this broker leads. The room's only public
name is `GroupCoordinator`; `membership` is a group as a sans-IO state machine, and `coordinators` loads and writes it.
"""

from .coordinator import GroupCoordinator

__all__ = ["GroupCoordinator"]
