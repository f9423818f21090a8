"""The position of a group in one partition over time, and when it rose.

It is that of the group's fetches. Where another owner begins, it is the committed offset; without one, of a partition
that the group had not read, the end of what could be read then, because the group may begin with the latest records.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .spans import EVER

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

FOREVER_NS = EVER[0][1]


class Steps(NamedTuple):
    """Offsets over time; the times ascend."""

    times: Numbers
    offsets: Numbers


class Positions:
    """The position of one group in one partition."""

    def __init__(self, resets: Sequence[int], fetched: Steps, commits: Steps, end_at: Callable[[int], int]) -> None:
        """`resets`: when another owner began. `fetched`: the offsets after the delivered batches."""
        import numpy as np

        self._begins: list[tuple[int, int]] = []
        self._steps: list[Steps] = []
        risen: list[Numbers] = []
        assert (np.diff(fetched.times) >= 0).all(), "fetches are searched by time and not in order"
        assert (np.diff(commits.times) >= 0).all(), "commits are searched by time and not in order"
        assert list(resets) == sorted(resets), f"owners begin in another order than that of time: {resets}"
        position = 0
        for begin, end in itertools.pairwise([0, *resets, FOREVER_NS]):
            if begin:
                index = int(np.searchsorted(commits.times, begin, "right")) - 1
                if index >= 0:
                    position = int(commits.offsets[index])
                elif position == 0:
                    position = end_at(begin)
            first, last = np.searchsorted(fetched.times, (begin, end)).tolist()
            times = fetched.times[first:last]
            reached = np.maximum(np.maximum.accumulate(fetched.offsets[first:last]), position)
            self._begins.append((begin, position))
            self._steps.append(Steps(times, reached))
            risen.append(times[np.diff(reached, prepend=position) > 0])
            position = int(reached[-1]) if len(reached) else position
        self.progress_ns: Numbers = np.concatenate(risen)
        """When it rose."""

    def at(self, times: npt.ArrayLike) -> Numbers:
        """Return the position at each of the times, which ascend."""
        import numpy as np

        asked = np.asarray(times, np.int64)
        assert (np.diff(asked) >= 0).all(), "positions are asked at times that do not ascend"
        found = np.zeros(len(asked), np.int64)
        begins = [begin for begin, _ in self._begins]
        bounds = np.searchsorted(asked, [*begins, FOREVER_NS]).tolist()
        for number, (first, last) in enumerate(itertools.pairwise(bounds)):
            steps = self._steps[number]
            reached = np.append(self._begins[number][1], steps.offsets)
            found[first:last] = reached[np.searchsorted(steps.times, asked[first:last], "right")]
        return found


def rises(values: Numbers) -> Mask:
    """Return which values are higher than all before them."""
    import numpy as np

    if not len(values):
        return np.zeros(0, bool)
    highest = np.maximum.accumulate(values)
    return np.append(True, highest[1:] > highest[:-1])
