"""Links and rules of one process by the control operations of its host: a Harrow broker, the proxy, a relay.

Real hosts serve these operations on the control socket, simulated hosts by a call; names and fields are the same
(`cluster/host/knobs/`). ClusterError when the broker does not respond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from harrow.faults.controls import LinkStatus, PeerKind
from harrow.faults.errors import CapabilityError
from harrow.faults.rule_kinds import (
    ArmedRule,
    ClockRule,
    DiskRule,
    FailpointRule,
    LateDiskRule,
    RequestRule,
    Rule,
    RuleStatus,
)

Fields = dict[str, Any]
FAILPOINT = "failpoint"
RESPONSE_ACTIONS = {"lose_response": "lose", "hold_response": "hold", "fail_response": "fail"}
"""What the host calls the actions of faults of responses; every other action is one of requests, of the same name."""


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
    """An armed rule of a host, among those of its kind."""

    def __init__(self, call: Call, kind: str, rule_id: int | str) -> None:
        self._call = call
        self._kind = kind
        self._id = rule_id

    def status(self) -> RuleStatus:
        """Return whether the rule is armed and what it did; a rule that the host does not have did nothing."""
        for row in self._call("rules.list", kind=self._kind)["rules"]:
            if row["id"] == self._id:
                return RuleStatus(armed=bool(row["armed"]), fired=int(row["fired"]), facts=dict(row))
        return RuleStatus(armed=False, fired=0)

    def disarm(self) -> None:
        """Disarm the rule."""
        self._call("rules.remove", kind=self._kind, id=self._id)


class RuleGroup:
    """Several rules that are armed and disarmed together, such as those of a slow disk."""

    def __init__(self, rules: Sequence[ArmedRule]) -> None:
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


class HostShares:
    """The share-partitions that a broker of Harrow's leads, over its control operations."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def end_locks(self, group: str, member: str) -> int:
        """End the locks of a member, or of all; return how many records were locked."""
        return int(self._call("share-locks.end", group=group, member=member)["records"])


class HostLinks:
    """The links of one process: `LinkControl`. `peers`: the kinds of peers whose links pass here."""

    def __init__(self, call: Call, peers: frozenset[PeerKind]) -> None:
        self._call = call
        self.peers = peers

    def block(self, peers: Sequence[str], direction: str) -> None:
        """Hold back what these peers send, are sent, or both."""
        self._call("links.block", peers=list(peers), direction=direction)

    def slow(self, peers: Sequence[str], delay_ms: int) -> None:
        """Send late to these peers."""
        self._call("links.slow", peers=list(peers), delay_ms=delay_ms)

    def throttle(self, peers: Sequence[str], bytes_per_s: int) -> None:
        """Limit what is sent to these peers."""
        self._call("links.throttle", peers=list(peers), bytes_per_s=bytes_per_s)

    def heal(self, mode: str, peers: Sequence[str] | None = None) -> None:
        """Remove every link rule, or those of `peers`."""
        given: Fields = {} if peers is None else {"peers": list(peers)}
        self._call("links.heal", mode=mode, **given)

    def reset(self, peers: Sequence[str]) -> int:
        """Reset the connections with these peers; return how many there were."""
        return int(self._call("links.reset", peers=list(peers))["links"])

    def freeze(self, peers: Sequence[str]) -> int:
        """Hold back everything on the open connections with these peers; return how many there were."""
        return int(self._call("links.freeze", peers=list(peers))["links"])

    def status(self) -> LinkStatus:
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


Arm = Callable[[Any], ArmedRule]
"""Arms a rule of one class."""


class RuleTable:
    """`RuleControl` by a table: what arms each class of rules."""

    def __init__(self, arms: Mapping[type[Rule], Arm]) -> None:
        self._arms = dict(arms)
        self.kinds = frozenset(arms)

    def arm(self, rule: Rule) -> ArmedRule:
        """Arm a rule of one of `kinds`; CapabilityError for another one."""
        arm = self._arms.get(type(rule))
        if arm is None:
            raise CapabilityError(f"{rule} cannot be armed on this backend")
        return arm(rule)


def host_arms(call: Call) -> dict[type[Rule], Arm]:
    """Return what the host of a Harrow broker arms."""

    def arm_clock(rule: ClockRule) -> HostRule:
        fields = asdict(rule)
        return armed(call, "clock", error=fields.pop("kind"), **fields)

    def arm_disk(rule: DiskRule) -> HostRule:
        return armed(call, "disk", **asdict(rule))

    return {
        **request_arms(call),
        FailpointRule: lambda rule: armed(call, FAILPOINT, **asdict(rule)),
        ClockRule: arm_clock,
        DiskRule: arm_disk,
        LateDiskRule: arm_disk,
    }


def request_arms(call: Call) -> dict[type[Rule], Arm]:
    """Return what the host of a broker, or the proxy in front of one, does with single requests."""

    def arm_request(rule: RequestRule) -> HostRule:
        kind = "response" if rule.action in RESPONSE_ACTIONS else "request"
        return armed(call, kind, **(asdict(rule) | {"action": RESPONSE_ACTIONS.get(rule.action, rule.action)}))

    return {RequestRule: arm_request}


def armed(call: Call, kind: str, **fields: object) -> HostRule:
    """Arm a rule of the kind in a host; return its handle."""
    return HostRule(call, kind, call("rules.add", kind=kind, **fields)["id"])


def failpoint_handle(call: Call, name: str) -> HostRule:
    """Return the handle of a failpoint that is armed."""
    return HostRule(call, FAILPOINT, name)
