"""Classic consumer groups and committed offsets (G1 to G3), on `__consumer_offsets`.

Owns: the coordinator of the groups whose offsets partition this broker leads. Its one public name is
`GroupCoordinator`; `membership` is the group as a sans-IO state machine.
"""

from .coordinator import GroupCoordinator

__all__ = ["GroupCoordinator"]
