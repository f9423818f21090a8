"""`OutsideFault`: the base of faults that hit no broker, such as the user's own service (J4).

The fault hits something that the extension reaches by itself; `target.name` says which. It has no brokers, does not
count against the cap and asks nothing of a backend. The nemesis runs it as every fault: `inject`, `probe` until there
is evidence, `heal`, `probe_healed`. A simulation refuses it, because its clock is virtual.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from .spec import Fault, Injection
from .system import ClusterSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideFault(Fault):
    """A fault without brokers."""

    needs: ClassVar[frozenset[str]] = frozenset()
    touches_programs: ClassVar[bool] = True

    @property
    def disturbs(self) -> bool:
        """No broker is down."""
        return False

    def check_ready(self) -> None:
        """Raise TargetError while the fault cannot be injected; the nemesis then tries again."""

    def resolve(self, snapshot: ClusterSnapshot, rng: random.Random, *, id: str = "1") -> Injection:  # noqa: A002 - the log's word
        """Draw the duration and the other parameters; there is no broker to draw."""
        self.check_ready()
        return Injection(
            id=id,
            fault=self,
            nodes=(),
            duration_ms=self.draw_duration_ms(snapshot, rng),
            details=self.draw_details(snapshot, rng),
        )

    def check_nodes(self, snapshot: ClusterSnapshot, nodes: tuple[int, ...]) -> None:
        """Raise TargetError while the fault cannot be injected."""
        del snapshot, nodes
        self.check_ready()
