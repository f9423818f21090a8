"""The faults that a Harrow broker's own host injects, over its control operations.

Real hosts serve these operations on the control socket, simulated hosts by a call; names and fields are the same
(`cluster/host/knobs/`). ClusterError when the broker does not respond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from harrow.faults.system import LinkStatus, RuleStatus

Fields = dict[str, Any]
RESPONSE_OPERATIONS = {
    "lose_response": "responses.lose",
    "hold_response": "responses.hold",
    "fail_response": "responses.fail",
}
"""The control operations of faults of responses; every other fault of a request is `requests.` and its action."""


class Call(Protocol):
    """One control operation of a broker."""

    def __call__(self, op: str, **fields: object) -> Fields:
        """Return its response; ClusterError when the broker does not respond or refuses."""
        ...


def _held_by_peer(links: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    held: dict[str, int] = {}
    for link in links:
        count = int(link["held_in_bytes"]) + int(link["held_out_bytes"])
        held[str(link["peer"])] = held.get(str(link["peer"]), 0) + count
    return held


class HostRule:
    """An armed rule of a host: found by its id (or name) among the rows that an operation reports."""

    def __init__(
        self, rows: Callable[[], Sequence[Mapping[str, Any]]], key: tuple[str, object], disarm: Callable[[], object]
    ) -> None:
        self._rows = rows
        self._key = key
        self._disarm = disarm

    def status(self) -> RuleStatus:
        """Return whether the rule is armed and what it did; a rule that the host does not have did nothing."""
        name, value = self._key
        for row in self._rows():
            if row.get(name) == value:
                return RuleStatus(armed=bool(row.get("armed")), fired=int(row.get("fired", 0)), facts=dict(row))
        return RuleStatus(armed=False, fired=0)

    def disarm(self) -> None:
        """Disarm the rule."""
        self._disarm()


class RuleGroup:
    """Several rules that are armed and disarmed together, such as those of a slow disk."""

    def __init__(self, rules: Sequence[HostRule]) -> None:
        self._rules = list(rules)

    def status(self) -> RuleStatus:
        """Armed while any rule is armed; `fired` is the sum over all rules."""
        found = [rule.status() for rule in self._rules]
        return RuleStatus(
            armed=any(status.armed for status in found),
            fired=sum(status.fired for status in found),
            facts={"rules": [dict(status.facts) for status in found]},
        )

    def disarm(self) -> None:
        """Disarm all rules."""
        for rule in self._rules:
            rule.disarm()


class HostKnobs:
    """Links, responses, failpoints and disk rules of one broker."""

    def __init__(self, call: Call) -> None:
        self._call = call

    # ------------------------------------------------------------------------------------ links

    def block(self, peers: Sequence[str], direction: str) -> None:
        """Hold back what these peers send, are sent, or both."""
        self._call("links.block", peers=list(peers), direction=direction)

    def slow(self, peers: Sequence[str], delay_ms: int) -> None:
        """Send late to these peers."""
        self._call("links.slow", peers=list(peers), delay_ms=delay_ms)

    def throttle(self, peers: Sequence[str], bytes_per_s: int) -> None:
        """Limit what is sent to these peers."""
        self._call("links.throttle", peers=list(peers), bytes_per_s=bytes_per_s)

    def heal_links(self, mode: str, peers: Sequence[str] | None = None) -> None:
        """Remove every link rule, or those of `peers`."""
        given: Fields = {} if peers is None else {"peers": list(peers)}
        self._call("links.heal", mode=mode, **given)

    def reset_links(self, peers: Sequence[str]) -> int:
        """Reset the connections with these peers; return how many there were."""
        return int(self._call("links.reset", peers=list(peers))["links"])

    def freeze_links(self, peers: Sequence[str]) -> int:
        """Hold back everything on the open connections with these peers; return how many there were."""
        return int(self._call("links.freeze", peers=list(peers))["links"])

    def links(self) -> LinkStatus:
        """Return the link rules and what they did."""
        response = self._call("links")
        return LinkStatus(
            rules=len(response["rules"]),
            held=int(response["held_in_bytes"])
            + int(response["held_out_bytes"])
            + int(response.get("waiting_connects", 0)),
            delayed=int(response.get("delayed_bytes", 0)) + int(response.get("delayed_frames", 0)),
            facts=response,
            held_by_peer=_held_by_peer(response.get("links", ())),
            patterns=tuple(str(rule["peers"]) for rule in response["rules"] if "peers" in rule),
        )

    # ------------------------------------------------------------------------------------ rules

    def fault_request(
        self,
        *,
        action: str,
        api_key: int,
        nth: int,
        client: str,
        error: int = 0,
        delay_ms: int = 0,
        count: int = 1,
        probability: float = 1.0,
        seed: int = 0,
        where: Mapping[str, Any] | None = None,
    ) -> HostRule:
        """Arm a fault of requests, or of their responses."""
        kind = RESPONSE_OPERATIONS.get(action, f"requests.{action}")
        rule = self._call(
            kind,
            api_key=api_key,
            nth=nth,
            client=client,
            error=error,
            delay_ms=delay_ms,
            count=count,
            probability=probability,
            seed=seed,
            where=None if where is None else dict(where),
        )["id"]
        group = kind.partition(".")[0]
        return HostRule(lambda: self._call(group)["rules"], ("id", rule), lambda: self._call(f"{group}.clear", id=rule))

    def arm_failpoint(self, *, name: str, action: str, nth: int, delay_ms: int) -> HostRule:
        """Arm a failpoint."""
        self._call("failpoint.arm", name=name, action=action, nth=nth, delay_ms=delay_ms)
        return self.failpoint_rule(name)

    def failpoint_rule(self, name: str) -> HostRule:
        """Return the handle of a failpoint that is armed."""
        return HostRule(
            lambda: self._call("failpoints")["failpoints"],
            ("name", name),
            lambda: self._call("failpoint.disarm", name=name),
        )

    def set_clock(self, *, kind: str, by_ms: int = 0, rate: float = 1.0, period_ms: int = 0) -> HostRule:
        """Let the wall clock be wrong."""
        rule = self._call("clock.set", kind=kind, by_ms=by_ms, rate=rate, period_ms=period_ms)["id"]
        return HostRule(lambda: self._call("clock")["rules"], ("id", rule), lambda: self._call("clock.clear"))

    def fail_disk(self, *, operation: str, error: str, nth: int, count: int, path: str, delay_ms: int) -> HostRule:
        """Arm a disk error or delay."""
        rule = self._call(
            "disk.fail", operation=operation, error=error, nth=nth, count=count, path=path, delay_ms=delay_ms
        )["id"]
        return HostRule(
            lambda: self._call("disk.faults")["rules"], ("id", rule), lambda: self._call("disk.clear", id=rule)
        )
