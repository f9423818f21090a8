"""Consumer groups, classic and of KIP-848, and committed offsets (G1 to G4), on `__consumer_offsets`.

Owns: the coordinator of the groups whose partition of `__consumer_offsets` this broker leads. The room's only public
name is `GroupCoordinator`. `membership` is a classic group as a sans-IO state machine, `consumer/` has the groups of
KIP-848, and `coordinators` loads and writes both.
"""

from .coordinator import GroupCoordinator

__all__ = ["GroupCoordinator"]
