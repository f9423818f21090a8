"""The sizes of a run that a shrink may make smaller: brokers, partitions of topics, and numbers of `harrow.up_to`.

Owns: `RunSizes`, which notes each size that a test asks for, and gives it a smaller one where a shrink tries that. A
size is named by what it counts: "brokers", "partitions of orders", "records". Outside of a shrink each size is what the
test says.
"""

from __future__ import annotations

from collections.abc import Mapping

from harrow.cluster.errors import ConfigError

BROKERS = "brokers"
PARTITIONS_OF = "partitions of "


class RunSizes:
    """The sizes of one run."""

    def __init__(self, smaller: Mapping[str, int] | None = None) -> None:
        """`smaller`: by name, what a shrink tries in place of what the test says."""
        self._smaller = dict(smaller or {})
        self.asked: dict[str, int] = {}
        """By name: what the test asked for."""
        self.least: dict[str, int] = {}
        """By name: what it may be at least."""

    @property
    def used(self) -> dict[str, int]:
        """By name: what the run had."""
        return {name: self._smaller.get(name, size) for name, size in self.asked.items()}

    @property
    def smaller(self) -> dict[str, int]:
        """By name: what the run had, where that is less than the test asked for."""
        return {name: size for name, size in self.used.items() if size < self.asked[name]}

    def brokers(self, count: int) -> int:
        """Return how many brokers the cluster has."""
        return self._size(BROKERS, count, 1)

    def partitions(self, topic: str, count: int) -> int:
        """Return how many partitions a topic has."""
        return self._size(f"{PARTITIONS_OF}{topic}", count, 1)

    def up_to(self, most: int, of: str, least: int) -> int:
        """Return a number of the test's own; ConfigError where it cannot be used."""
        said = f"harrow.up_to({most}, {of!r}, least={least})"
        if not 0 <= least <= most:
            raise ConfigError(f"{said}: expected a least number from 0 to {most}")
        if not of or of == BROKERS or of.startswith(PARTITIONS_OF):
            raise ConfigError(f"{said}: expected what is counted, such as 'orders'")
        if self.asked.get(of, most) != most:
            raise ConfigError(
                f"{said}: the test has up to {self.asked[of]} {of} already; give one of both another name, such as "
                f"harrow.up_to({most}, 'more {of}')"
            )
        return self._size(of, most, least)

    def _size(self, name: str, asked: int, least: int) -> int:
        self.asked[name], self.least[name] = asked, least
        return min(asked, self._smaller.get(name, asked))


def smaller_in_words(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Say which sizes are smaller: "3 partitions of orders → 1, 200 records → 12"; empty where none is."""
    changed = ((name, size, after.get(name, size)) for name, size in before.items())
    return ", ".join(f"{size} {name} → {now}" for name, size, now in changed if now < size)
