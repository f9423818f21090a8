"""What a run reached: `sometimes("billed across an election", …)` in the code of a test or of a simulated service.

Owns: the labels that this process met, with how often the condition of each was true. A simulated test adds them up
over its seeds, and `reaches=` of its marker demands that each label is reached in at least one of them. A label says
that a search went where it was to go; it says nothing about what is right.
"""

from __future__ import annotations

from collections import Counter

from harrow.cluster.argument_types import checked

_reached: Counter[str] = Counter()


@checked
def sometimes(label: str, condition: bool = True) -> None:
    """Note that a run came here, with `condition` true; nothing else happens.

    Code that runs without Harrow's tests may call it too.
    """
    _reached[label] += bool(condition)


def reached() -> dict[str, int]:
    """Return how often the condition of each label was true in this process."""
    return dict(_reached)
