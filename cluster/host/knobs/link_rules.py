"""Link rules, which faults set: the peers whose frames a host blocks, and those to which it sends late or slowly.

Owns: the set of rules of one host. A rule is a pattern of peers and a direction. Patterns are matched
against `str(peer)` with shell wildcards: `broker 2`, `broker *`, `registry`, `client orders-*`, `*`.
Direction `in` is what arrives here, `out` what is sent from here; `both` is the two together.
A rule blocks or, with a delay or a rate, delays what is sent. With several delays for a peer the longest applies, with
several rates the lowest.

Pure: it decides; `real/network.py` and `simulated/fabric.py` apply the rules. Unknown directions, empty patterns,
absurd delays and rates are refused (ConfigError).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ...errors import ConfigError
from ..seam import Peer

DIRECTIONS: Mapping[str, tuple[str, ...]] = {"both": ("in", "out"), "in": ("in",), "out": ("out",)}
DELAY_MS_MOST = 10_000
BYTES_PER_S_MOST = 10_000_000_000


class Blocked(NamedTuple):
    """The directions in which rules block one peer."""

    inward: bool
    outward: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRule:
    """Block frames of the peers that match `peers` in `direction` ("in" or "out"), delay them, or limit them."""

    peers: str
    direction: str
    delay_ms: int = 0
    bytes_per_s: int = 0
    """With neither a delay nor a rate, frames are blocked."""

    @property
    def blocks(self) -> bool:
        """Whether frames are blocked."""
        return not self.delay_ms and not self.bytes_per_s


class LinkRules:
    """The rules in force."""

    __slots__ = ("_rules",)

    def __init__(self) -> None:
        self._rules: dict[LinkRule, None] = {}  # a set in order of insertion

    def block(self, peers: Iterable[str], direction: str) -> None:
        """Add a rule for each pattern; adding one twice is no error."""
        if direction not in DIRECTIONS:
            raise ConfigError(f"direction {direction!r}: expected one of {', '.join(DIRECTIONS)}")
        for pattern in _checked(peers):
            for way in DIRECTIONS[direction]:
                self._rules[LinkRule(peers=pattern, direction=way)] = None

    def slow(self, peers: Iterable[str], delay_ms: int) -> None:
        """Delay what is sent to these peers; a pattern's new delay replaces its earlier delay."""
        if not 0 < delay_ms <= DELAY_MS_MOST:
            raise ConfigError(f"delay_ms {delay_ms}: expected a number from 1 to {DELAY_MS_MOST}")
        patterns = _checked(peers)
        self._rules = {rule: None for rule in self._rules if not rule.delay_ms or rule.peers not in patterns}
        for pattern in patterns:
            self._rules[LinkRule(peers=pattern, direction="out", delay_ms=delay_ms)] = None

    def throttle(self, peers: Iterable[str], bytes_per_s: int) -> None:
        """Limit what is sent to these peers; a pattern's new rate replaces its earlier rate."""
        if not 0 < bytes_per_s <= BYTES_PER_S_MOST:
            raise ConfigError(f"bytes_per_s {bytes_per_s}: expected a number from 1 to {BYTES_PER_S_MOST}")
        patterns = _checked(peers)
        self._rules = {rule: None for rule in self._rules if not rule.bytes_per_s or rule.peers not in patterns}
        for pattern in patterns:
            self._rules[LinkRule(peers=pattern, direction="out", bytes_per_s=bytes_per_s)] = None

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
        ways = {rule.direction for rule in self._rules if rule.blocks and fnmatchcase(name, rule.peers)}
        return Blocked("in" in ways, "out" in ways)

    def delay_ms(self, peer: Peer) -> int:
        """The delay of frames to `peer`; 0: none."""
        if not self._rules:
            return 0
        name = str(peer)
        return max((r.delay_ms for r in self._rules if fnmatchcase(name, r.peers)), default=0)

    def bytes_per_s(self, peer: Peer) -> int:
        """The rate of what is sent to `peer`; 0: no limit."""
        if not self._rules:
            return 0
        name = str(peer)
        rates = (r.bytes_per_s for r in self._rules if r.bytes_per_s and fnmatchcase(name, r.peers))
        return min(rates, default=0)

    def report(self) -> list[dict[str, Any]]:
        """The rules as JSON; `delay_ms` and `bytes_per_s` only in rules that have them."""
        return [
            {"peers": rule.peers, "direction": rule.direction}
            | ({"delay_ms": rule.delay_ms} if rule.delay_ms else {})
            | ({"bytes_per_s": rule.bytes_per_s} if rule.bytes_per_s else {})
            for rule in self._rules
        ]


def matches_any(peer: str, patterns: Iterable[str]) -> bool:
    """Whether a peer, as `str(peer)`, matches one of `patterns`."""
    return any(fnmatchcase(peer, pattern) for pattern in patterns)


def _checked(peers: Iterable[str]) -> list[str]:
    patterns = list(peers)
    if not patterns or not all(patterns):
        raise ConfigError(f"peers {patterns!r}: expected patterns such as 'broker 2', 'client *'")
    return patterns


NOT_BLOCKED = Blocked(inward=False, outward=False)
