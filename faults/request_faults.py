"""Faults of single requests (K2): a response or a request that is lost, a request that is refused, late or doubled.

Armed on the broker, for matching requests or responses from the n-th on:

`lose_response`      the request takes effect, its response does not leave, and its connection is reset: a client's
                     retry then meets the appended batch, a duplicate unless the producer is idempotent (H5)
`fail_response`      the request takes effect, and its response has an error code that Kafka gives after the effect,
                     such as REQUEST_TIMED_OUT for a batch that is in the log
`lose_request`       the request is not served, and its connection is reset; with `silent` the connection stays open,
                     and nothing on it is served any more: the client finds out by its own timeout
`refuse_request`     the request is not served, and its response has an error code, at the place where Kafka has it
`delay_request`      the request, and those behind it on its connection, are served late
`duplicate_request`  the request is served twice in succession, and one response leaves, as after a retry of the network

All of them choose requests alike (`RequestFault`). Evidence: a rule acted on one request at least, on any broker.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from harrow.cluster.argument_types import checked
from harrow.cluster.host.knobs.request_faults import REQUEST_DELAY_MS_MOST

from .errors import ConfigError
from .evidence import Evidence
from .request_checks import api_key, check_choice, check_failure, check_refusal, check_where, error_code
from .rule_kinds import RequestRule
from .rules import arm_once, disarm, disarmed, fired
from .spec import Fault, FaultState, Injection, Milliseconds, Seconds, amount_within, least_and_most
from .system import ClusterSnapshot, System
from .targets import Target, all_brokers, as_target
from .unreached_words import no_request

REQUEST_DELAY_MS = (200, 1_500)
"""On both sides of a client's retry backoff, below its request timeout."""
COUNT_IDLE_MS = 10_000
"""A fault of several requests ends when no request came for so long that it counts."""
Where = Mapping[str, str | int]
"""Which requests count, by what they name: `{"topic": "orders"}` (`cluster/host/knobs/request_where.py`)."""


@dataclass(slots=True, kw_only=True)
class RequestState(FaultState):
    """How far a fault of several requests has come."""

    seen: int = -1
    """How many requests the rules have counted; -1 before the first look."""
    seen_ms: int = 0
    """When the last of them was counted."""
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFault(Fault):
    """A fault of `count` requests to `api`, from the `nth` on, on each broker of the target; one effect is enough.

    Of the requests that `client` and `where` accept, each broker counts those that arrive while the fault is armed,
    those too on which another fault acts. From the `nth` on it acts on each with `probability`, until it has acted
    `count` times. With `seconds=0` (the default) the fault ends when one broker has acted `count` times, or when no
    such request came for ten seconds; else it ends so long after its first effect.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"responses"})
    state_type: ClassVar[type[FaultState]] = RequestState
    waits_for_traffic: ClassVar[bool] = True
    effect: ClassVar[str]
    """The name of the count in the evidence."""
    action: ClassVar[str]
    """What happens to a request (`rule_kinds.REQUEST_ACTIONS`)."""
    target: Target = all_brokers
    seconds: Seconds | None = 0.0
    api: str | int = "Produce"
    nth: int = 1
    count: int = 1
    probability: float = 1.0
    client: str = "*"
    where: Where | None = field(default=None, hash=False)

    @classmethod
    def drawn(cls, role: Target, seconds: Seconds | None = None) -> Self:
        """Return a fault of any broker's requests: a follower, for example, gets no Produce."""
        del role, seconds
        return cls()

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        api_key(self.api, self.kind)
        check_choice(self.kind, nth=self.nth, count=self.count, probability=self.probability)
        if self.where is not None:
            object.__setattr__(self, "where", check_where(self.api, self.where, self.kind))

    @property
    def disturbs(self) -> bool:
        """False: every broker continues to serve."""
        return False

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the seed of the draws, where each request is hit with a probability."""
        del snapshot
        return {} if self.probability == 1 else {"seed": rng.getrandbits(32)}

    def arguments(self, injection: Injection) -> dict[str, int]:
        """Return what the action needs besides the choice of requests."""
        del injection
        return {}

    def rule(self, injection: Injection) -> RequestRule:
        """Return the rule of each broker."""
        return RequestRule(
            action=self._action(),
            api_key=int(api_key(self.api, self.kind)),
            nth=self.nth,
            count=self.count,
            client=self.client,
            probability=self.probability,
            seed=int(injection.details.get("seed", 0)),
            where=self.where,
            **self.arguments(injection),
        )

    def _action(self) -> str:
        return self.action

    def inject(self, system: System, injection: Injection) -> None:
        """Arm it once on each broker."""
        arm_once(system, injection, self.rule(injection))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether a rule acted; a broker that does not run answers no request."""
        facts = fired(system, injection, death_counts=False)
        acted = sum(int(fact["fired"]) for fact in facts.values())
        return Evidence(proved=acted > 0, facts={self.effect: acted, "brokers": facts})

    def unreached(self, injection: Injection, facts: Mapping[str, Any]) -> str:
        """Say which clients used the API, and which did not."""
        del injection
        key = int(api_key(self.api, self.kind))
        return no_request(key, self.client, self.nth, facts.get("brokers", {}), where=self.where)

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """Look how often a fault of several requests acted, and since when no request came that it counts."""
        if self.count == 1 or self.seconds != 0:
            return
        facts = fired(system, injection, death_counts=False).values()
        seen = sum(int(fact.get("seen", 0)) for fact in facts)
        state = RequestState.of(injection)
        if seen != state.seen:
            state.seen, state.seen_ms = seen, now_ms
        assert state.seen_ms <= now_ms, f"{self}: a request was counted at {state.seen_ms}, after now ({now_ms})"
        full = any(int(fact["fired"]) >= self.count for fact in facts)
        idle = now_ms - state.seen_ms > COUNT_IDLE_MS
        state.done = full or idle

    def is_done(self, injection: Injection) -> bool:
        """Whether it acted often enough, or waits for requests in vain; a fault with `seconds` lasts for these."""
        return self.count == 1 or self.seconds != 0 or RequestState.of(injection).done

    def heal(self, system: System, injection: Injection) -> None:
        """Disarm what did not fire; what fired is over."""
        disarm(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether nothing is armed."""
        return disarmed(system, injection, Evidence(proved=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseResponse(RequestFault):
    """Lose responses to `api`; of requests that were served."""

    kind: ClassVar[str] = "lose_response"
    words: ClassVar[str] = "lost responses"
    effect: ClassVar[str] = "lost"
    action: ClassVar[str] = "lose_response"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailResponse(RequestFault):
    """Serve requests to `api`, and respond with `error`."""

    kind: ClassVar[str] = "fail_response"
    words: ClassVar[str] = "responded with errors to requests that took effect"
    effect: ClassVar[str] = "failed"
    action: ClassVar[str] = "fail_response"
    error: str = "REQUEST_TIMED_OUT"
    any_error: bool = False

    def __post_init__(self) -> None:
        RequestFault.__post_init__(self)
        error_code(self.error, self.kind)
        if not self.any_error:
            check_failure(self.api, self.error, self.kind)

    def arguments(self, injection: Injection) -> dict[str, int]:
        """Return the error."""
        del injection
        return {"error": int(error_code(self.error, self.kind))}


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseRequest(RequestFault):
    """Refuse requests to `api` with `error`."""

    kind: ClassVar[str] = "refuse_request"
    words: ClassVar[str] = "refused requests"
    drawable: ClassVar[bool] = False
    effect: ClassVar[str] = "refused"
    action: ClassVar[str] = "refuse"
    error: str = "NOT_ENOUGH_REPLICAS"
    any_error: bool = False

    def __post_init__(self) -> None:
        RequestFault.__post_init__(self)
        error_code(self.error, self.kind)
        if not self.any_error:
            check_refusal(self.api, self.error, self.kind)

    @classmethod
    def recorded(cls, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters; earlier versions recorded errors that Kafka never gives."""
        try:
            api = parameters.get("api", "Produce")
            check_refusal(api, parameters.get("error", "NOT_ENOUGH_REPLICAS"), cls.kind)
        except ConfigError:
            return {"any_error": True, **parameters}
        return parameters

    def arguments(self, injection: Injection) -> dict[str, int]:
        """Return the error."""
        del injection
        return {"error": int(error_code(self.error, self.kind))}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseRequest(RequestFault):
    """Lose requests to `api`."""

    kind: ClassVar[str] = "lose_request"
    words: ClassVar[str] = "lost requests"
    effect: ClassVar[str] = "lost"
    action: ClassVar[str] = "lose"
    silent: bool = False

    def _action(self) -> str:
        return "drop" if self.silent else "lose"


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayRequest(RequestFault):
    """Serve requests to `api` late."""

    kind: ClassVar[str] = "delay_request"
    words: ClassVar[str] = "served requests late"
    effect: ClassVar[str] = "delayed"
    action: ClassVar[str] = "delay"
    delay_ms: Milliseconds = REQUEST_DELAY_MS

    def __post_init__(self) -> None:
        RequestFault.__post_init__(self)
        checked = amount_within(self.delay_ms, REQUEST_DELAY_MS_MOST, "delay_request(delay_ms")
        object.__setattr__(self, "delay_ms", checked)

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the delay."""
        drawn = {"delay_ms": round(rng.uniform(*least_and_most(self.delay_ms)))}
        return drawn | RequestFault.draw_details(self, snapshot, rng)

    def arguments(self, injection: Injection) -> dict[str, int]:
        """Return the delay."""
        return {"delay_ms": int(injection.details["delay_ms"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateRequest(RequestFault):
    """Serve requests to `api` twice."""

    kind: ClassVar[str] = "duplicate_request"
    words: ClassVar[str] = "served requests twice"
    effect: ClassVar[str] = "duplicated"
    action: ClassVar[str] = "duplicate"


@checked
def lose_response(
    api: str | int = "Produce",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    count: int = 1,
    probability: float = 1.0,
    client: str = "*",
    where: Where | None = None,
    seconds: Seconds = 0.0,
) -> LoseResponse:
    """Lose the n-th response to an API's request after it took effect."""
    return LoseResponse(
        target=as_target(target, LoseResponse.kind),
        api=api,
        nth=nth,
        count=count,
        probability=probability,
        client=client,
        where=where,
        seconds=seconds,
    )


@checked
def fail_response(
    api: str | int = "Produce",
    error: str = "REQUEST_TIMED_OUT",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    any_error: bool = False,
    count: int = 1,
    probability: float = 1.0,
    client: str = "*",
    where: Where | None = None,
    seconds: Seconds = 0.0,
) -> FailResponse:
    """Serve the n-th request to an API, and respond with an error that Kafka gives after the effect."""
    return FailResponse(
        target=as_target(target, FailResponse.kind),
        api=api,
        nth=nth,
        count=count,
        probability=probability,
        client=client,
        where=where,
        seconds=seconds,
        error=error,
        any_error=any_error,
    )


@checked
def refuse_request(
    api: str | int = "Produce",
    error: str = "NOT_ENOUGH_REPLICAS",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    any_error: bool = False,
    count: int = 1,
    probability: float = 1.0,
    client: str = "*",
    where: Where | None = None,
    seconds: Seconds = 0.0,
) -> RefuseRequest:
    """Refuse the n-th request to an API with an error of Kafka's, without serving it."""
    return RefuseRequest(
        target=as_target(target, RefuseRequest.kind),
        api=api,
        nth=nth,
        count=count,
        probability=probability,
        client=client,
        where=where,
        seconds=seconds,
        error=error,
        any_error=any_error,
    )


@checked
def lose_request(
    api: str | int = "Produce",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    silent: bool = False,
    count: int = 1,
    probability: float = 1.0,
    client: str = "*",
    where: Where | None = None,
    seconds: Seconds = 0.0,
) -> LoseRequest:
    """Lose the n-th request to an API before it is served; its connection is reset.

    `silent=True`: the connection stays open and nothing on it is served any more, as behind a firewall that drops
    packets; the client finds out by its own timeout (`request.timeout.ms`, `socket.timeout.ms`).
    """
    return LoseRequest(
        target=as_target(target, LoseRequest.kind),
        api=api,
        nth=nth,
        count=count,
        probability=probability,
        client=client,
        where=where,
        seconds=seconds,
        silent=silent,
    )


@checked
def delay_request(
    api: str | int = "Produce",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    delay_ms: Milliseconds = REQUEST_DELAY_MS,
    count: int = 1,
    probability: float = 1.0,
    client: str = "*",
    where: Where | None = None,
    seconds: Seconds = 0.0,
) -> DelayRequest:
    """Serve the n-th request to an API, and those behind it on its connection, `delay_ms` later."""
    return DelayRequest(
        target=as_target(target, DelayRequest.kind),
        api=api,
        nth=nth,
        count=count,
        probability=probability,
        client=client,
        where=where,
        seconds=seconds,
        delay_ms=delay_ms,
    )


@checked
def duplicate_request(
    api: str | int = "Produce",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    count: int = 1,
    probability: float = 1.0,
    client: str = "*",
    where: Where | None = None,
    seconds: Seconds = 0.0,
) -> DuplicateRequest:
    """Serve the n-th request to an API twice in succession, with one response."""
    return DuplicateRequest(
        target=as_target(target, DuplicateRequest.kind),
        api=api,
        nth=nth,
        count=count,
        probability=probability,
        client=client,
        where=where,
        seconds=seconds,
    )
