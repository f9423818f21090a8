"""Rules: what a backend can be asked to arm, each a frozen value.

A rule of a broker waits in it until its code or its traffic reaches it, or holds as long as it is armed. It belongs to
the incarnation of the broker in which it was armed: a later incarnation does not have it. A rule of clients is a client
of Harrow's that acts until it is disarmed.

The class of a rule is what a backend says that it can arm (`RuleControl.kinds` of `controls.py`): a rule that only some
backends have is a class of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

REQUEST_ACTIONS = ("refuse", "lose", "drop", "delay", "duplicate", "lose_response", "hold_response", "fail_response")
"""What a `RequestRule` can do with a request, or (the last three) with its response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleStatus:
    """An armed rule (a response to lose, a failpoint, a disk that errs) or a client of Harrow's, and what it did."""

    armed: bool
    """Whether it may act again."""
    fired: int
    """How often it acted."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    failed: str = ""
    """Why it cannot act any more, although it did not do what it was armed for."""

    def __post_init__(self) -> None:
        assert self.fired >= 0, f"a rule acted {self.fired} times"
        assert not (self.armed and self.failed), f"a rule that can act no more ({self.failed}) is armed"


class ArmedRule(Protocol):
    """The handle of a rule that was armed."""

    def status(self) -> RuleStatus:
        """Return whether the rule is armed and what it did; ClusterError when the broker does not respond."""
        ...

    def disarm(self) -> None:
        """Disarm the rule; no error when it fired, or when the broker runs in a later incarnation."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Base of all rules."""


# ------------------------------------------------------------------------------------- of brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRule(Rule):
    """`action` (one of `REQUEST_ACTIONS`) happens to requests of `api_key`, from the `nth` on.

    `error` is that of a refusal or of a failed response, `delay_ms` a delay's. Which requests count, and on which of
    them the rule acts: `cluster/host/knobs/request_rules.py`.
    """

    action: str
    api_key: int
    nth: int = 1
    client: str = "*"
    error: int = 0
    delay_ms: int = 0
    count: int = 1
    probability: float = 1.0
    seed: int = 0
    where: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        assert self.action in REQUEST_ACTIONS, f"no broker can {self.action} a request"
        assert self.nth >= 1, f"requests are counted from 1, not from {self.nth}"
        assert self.count >= 0, f"the rule acts on {self.count} requests"
        assert 0 < self.probability <= 1, f"the rule acts with the probability {self.probability}"
        assert (self.delay_ms > 0) == (self.action == "delay"), f"{self.action} has a delay of {self.delay_ms} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailpointRule(Rule):
    """At the `nth` time that the broker's code reaches `name`, `action` happens: "crash", "stop", "delay", "error"."""

    name: str
    action: str
    nth: int = 1
    delay_ms: int = 0

    def __post_init__(self) -> None:
        assert self.nth >= 1, f"{self.name}: its hits are counted from 1, not from {self.nth}"
        assert self.delay_ms >= 0, f"{self.name}: a delay of {self.delay_ms} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailpointRule(FailpointRule):
    """The broker, which is dead, is started with the failpoint armed before its code runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRule(Rule):
    """From the `nth` call of `operation` on paths like `path` on, `count` times (0: always), it fails with `error`."""

    operation: str
    error: str
    nth: int = 1
    count: int = 0
    path: str = "*"

    def __post_init__(self) -> None:
        assert self.nth >= 1, f"calls of {self.operation} are counted from 1, not from {self.nth}"
        assert self.count >= 0, f"{self.count} calls of {self.operation} fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class LateDiskRule(DiskRule):
    """The same calls take `delay_ms` longer; with an error they fail then."""

    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDiskRule(Rule):
    """Every write and fsync takes about `delay_ms` longer."""

    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRule(Rule):
    """The wall clock is wrong; `fired` counts reads. `cluster/host/knobs/clock_faults.py` has the kinds."""

    kind: str
    by_ms: int = 0
    rate: float = 1.0
    period_ms: int = 0

    def __post_init__(self) -> None:
        assert self.rate >= 0, f"a clock cannot run backwards ({self.rate})"
        assert self.period_ms >= 0, f"a clock changes every {self.period_ms} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorRule(Rule):
    """The limit of open files is what is open; `fired` while none is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRule(Rule):
    """Strangers open up to `most` connections, until the broker serves no further one; `fired` while it is full."""

    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRule(Rule):
    """The limit of the process's memory is what it has, and `spare_bytes`."""

    spare_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRule(Rule):
    """Logins of `user` are counted: `seen` all that ended, `fired` those that failed or that the rule refuses.

    `refuse` is empty (none), "again" (re-authentications), "all", or "token" (`TokenRule`).
    """

    user: str
    refuse: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRule(LoginRule):
    """Tokens of OAUTHBEARER of `user` count as expired; `fired` counts the logins that are refused."""

    refuse: str = "token"


@dataclass(frozen=True, slots=True, kw_only=True)
class DenialRule(Rule):
    """`fired` counts how often `user` was denied one of the operations on the resource, all by Kafka's names."""

    user: str
    operations: tuple[str, ...]
    type: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeRule(Rule):
    """TLS handshakes with clients and brokers are counted: `seen` all that ended, `fired` those that failed."""


# ------------------------------------------------------------------------------------- of clients


@dataclass(frozen=True, slots=True, kw_only=True)
class HijackRule(Rule):
    """A client sends InitProducerId for this transactional id, once; `fired` is 1 when it has a response."""

    transactional_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRule(Rule):
    """A client joins the group and leaves it again and again; `fired` counts the group's rebalances.

    It stays, and stays away, for times from `every_ms` (least, most), which `seed` draws.
    """

    group: str
    every_ms: tuple[int, int]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckMemberRule(Rule):
    """A member of the group reads and commits nothing; `fired` is how many partitions it is assigned."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckShareMemberRule(Rule):
    """A member of a share group acquires records and acknowledges none; `fired` is how many it has acquired."""

    group: str
