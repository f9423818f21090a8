"""Which peers this host may not hear or reach: the link rules that faults set.

Owns: the set of rules of one host. A rule is a pattern of peers and a direction. Patterns are matched
against `str(peer)` with shell wildcards: `broker 2`, `broker *`, `registry`, `client orders-*`, `*`.
Direction `in` is what arrives here, `out` what leaves here; `both` is the two together.

Pure: it decides, `real_network.py` applies. Unknown directions and empty patterns are refused (ConfigError).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from ..errors import ConfigError
from .seam import Peer

DIRECTIONS: Mapping[str, tuple[str, ...]] = {"both": ("in", "out"), "in": ("in",), "out": ("out",)}


class Blocked(NamedTuple):
    """What the rules say of one peer."""

    inward: bool
    outward: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRule:
    """Bytes of the peers that match `peers` do not pass in `direction` ("in" or "out")."""

    peers: str
    direction: str


class LinkRules:
    """The rules in force."""

    __slots__ = ("_rules",)

    def __init__(self) -> None:
        self._rules: dict[LinkRule, None] = {}  # a set that keeps the order they came in

    def block(self, peers: Iterable[str], direction: str) -> None:
        """Add a rule for each pattern; adding one twice is no error."""
        if direction not in DIRECTIONS:
            raise ConfigError(f"direction {direction!r}: expected one of {', '.join(DIRECTIONS)}")
        patterns = list(peers)
        if not patterns or not all(patterns):
            raise ConfigError(
                f"peers {patterns!r}: expected patterns such as 'broker 2', 'client *'"
            )
        for pattern in patterns:
            for way in DIRECTIONS[direction]:
                self._rules[LinkRule(peers=pattern, direction=way)] = None

    def heal(self, peers: Iterable[str] | None = None) -> None:
        """Remove the rules of these patterns, or every rule."""
        if peers is None:
            self._rules.clear()
            return
        gone = set(peers)
        self._rules = {rule: None for rule in self._rules if rule.peers not in gone}

    def blocked(self, peer: Peer) -> Blocked:
        """Which directions of a link to `peer` are blocked."""
        if not self._rules:
            return NOT_BLOCKED
        name = str(peer)
        ways = {rule.direction for rule in self._rules if fnmatchcase(name, rule.peers)}
        return Blocked("in" in ways, "out" in ways)

    def report(self) -> list[dict[str, str]]:
        """The rules as JSON."""
        return [{"peers": rule.peers, "direction": rule.direction} for rule in self._rules]


NOT_BLOCKED = Blocked(inward=False, outward=False)
