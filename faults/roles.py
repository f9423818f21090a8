"""`Role`: what an extension adds so that a target names brokers, or things, by what they do at that moment (J4).

    def resolve(target, snapshot, rng):              # in this order of arguments, as in `targets.py`
        return [node for node in snapshot.brokers if node % 2 == int(target.name)]

    Role(name="rack", resolve=resolve)               → Target(role="rack", name="1"), also in a schedule file

`resolve` returns node ids of brokers. Harrow takes those that run and that no other fault disturbs, so that the cap of
a run holds; none means that the role has no broker at this moment, and the nemesis tries again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import FaultError
from .system import ClusterSnapshot

if TYPE_CHECKING:
    from .targets import Target


def _no_broker(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> Iterable[int]:
    del target, snapshot, rng
    return ()


def _one_broker(brokers: int) -> int:
    del brokers
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role of a target."""

    name: str
    resolve: Callable[[Target, ClusterSnapshot, random.Random], Iterable[int]] = _no_broker
    """Node ids of the brokers in this role; by default none, for a role of things that are no brokers."""
    most: Callable[[int], int] = _one_broker
    """How many of so many brokers it returns at most: the cap of a chaos block follows from it."""

    def nodes(self, target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
        """Return the brokers that a fault can hit now; FaultError for what no cluster can have."""
        try:
            found = set(self.resolve(target, snapshot, rng))
        except FaultError:
            raise
        except Exception as error:
            raise FaultError(f"{target}: the function of this role raised {error!r}") from error
        unknown = sorted(found - set(snapshot.brokers), key=str)
        if unknown:
            raise FaultError(
                f"{target}: the function of this role returned {unknown}, which are no brokers; "
                f"there are {list(snapshot.brokers)}"
            )
        return tuple(sorted(found & snapshot.running - snapshot.disturbed))
