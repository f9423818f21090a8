"""Faults of single requests (K2): a response or a request that is lost, a request that is refused, late or doubled.

Armed on the broker, for the n-th matching request or response:

`lose_response`      the request takes effect, its response does not leave, and its connection is reset: a client's
                     retry then meets the appended batch, a duplicate unless the producer is idempotent (H5)
`lose_request`       the request is not served, and its connection is reset; with `silent` the connection stays open,
                     and nothing on it is served any more: the client finds out by its own timeout
`refuse_request`     the request is not served, and its response has an error code of Kafka's
`delay_request`      the request, and those behind it on its connection, are served late
`duplicate_request`  the request is served twice in succession, and one response leaves, as after a retry of the network
"""

from __future__ import annotations

import abc
import difflib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.knobs.request_faults import REQUEST_DELAY_MS_MOST
from harrow.cluster.wire.api_keys import ApiKey

from .errors import ConfigError
from .evidence import Evidence
from .rules import arm_once, disarm, disarmed, fired
from .spec import (
    Fault,
    Injection,
    Milliseconds,
    Seconds,
    amount_within,
    least_and_most,
)
from .system import ArmedRule, BrokerControl, ClusterSnapshot, System
from .targets import Target, all_brokers
from .unreached import no_request

REQUEST_DELAY_MS = (200, 1_500)
"""On both sides of a client's retry backoff, below its request timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFault(Fault):
    """A fault of the `nth` request to `api` on each broker of the target; a single effect is enough."""

    needs: ClassVar[frozenset[str]] = frozenset({"responses"})
    waits_for_traffic: ClassVar[bool] = True
    effect: ClassVar[str]
    """The name of the count in the evidence."""
    target: Target = all_brokers
    seconds: Seconds | None = 0.0
    api: str | int = "Produce"
    nth: int = 1
    client: str = "*"

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        api_key(self.api, self.kind)
        if self.nth < 1:
            raise ConfigError(f"{self.kind}(nth={self.nth}): expected a number from 1 up")

    @property
    def disturbs(self) -> bool:
        """False: every broker continues to serve."""
        return False

    @abc.abstractmethod
    def arm(self, broker: BrokerControl, key: int, injection: Injection) -> ArmedRule:
        """Arm the rule for the API `key` on one broker."""

    def inject(self, system: System, injection: Injection) -> None:
        """Arm it once on each broker."""
        key = int(api_key(self.api, self.kind))
        arm_once(system, injection, lambda broker: self.arm(broker, key, injection))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether a rule acted; a broker that does not run answers no request."""
        facts = fired(system, injection, death_counts=False)
        acted = sum(int(fact["fired"]) for fact in facts.values())
        return Evidence(proved=acted > 0, facts={self.effect: acted, "brokers": facts})

    def unreached(self, injection: Injection, facts: Mapping[str, Any]) -> str:
        """Say which clients used the API, and which did not."""
        del injection
        key = int(api_key(self.api, self.kind))
        return no_request(key, self.client, self.nth, facts.get("brokers", {}))

    def heal(self, system: System, injection: Injection) -> None:
        """Disarm what did not fire; what fired is over."""
        disarm(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether nothing is armed."""
        return disarmed(system, injection, Evidence(proved=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseResponse(RequestFault):
    """Lose the `nth` response to `api`, on each broker of the target; a single lost response is an effect."""

    kind: ClassVar[str] = "lose_response"
    effect: ClassVar[str] = "lost"

    def arm(self, broker: BrokerControl, key: int, injection: Injection) -> ArmedRule:
        """Arm the lost response on one broker."""
        del injection
        return broker.lose_response(api_key=key, nth=self.nth, client=self.client)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseRequest(RequestFault):
    """Refuse the `nth` request to `api` with `error`, on each broker of the target; a single refusal is an effect."""

    kind: ClassVar[str] = "refuse_request"
    effect: ClassVar[str] = "refused"
    error: str = "NOT_ENOUGH_REPLICAS"

    def __post_init__(self) -> None:
        RequestFault.__post_init__(self)
        error_code(self.error)

    def arm(self, broker: BrokerControl, key: int, injection: Injection) -> ArmedRule:
        """Arm the refusal on one broker."""
        del injection
        error = int(error_code(self.error))
        return broker.fault_request(
            action="refuse", api_key=key, nth=self.nth, client=self.client, error=error
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseRequest(RequestFault):
    """Lose the `nth` request to `api`, on each broker of the target; a single lost request is an effect."""

    kind: ClassVar[str] = "lose_request"
    effect: ClassVar[str] = "lost"
    silent: bool = False

    def arm(self, broker: BrokerControl, key: int, injection: Injection) -> ArmedRule:
        """Arm the lost request on one broker."""
        del injection
        action = "drop" if self.silent else "lose"
        return broker.fault_request(action=action, api_key=key, nth=self.nth, client=self.client)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayRequest(RequestFault):
    """Serve the `nth` request to `api` late, on each broker of the target; a single late request is an effect."""

    kind: ClassVar[str] = "delay_request"
    effect: ClassVar[str] = "delayed"
    delay_ms: Milliseconds = REQUEST_DELAY_MS

    def __post_init__(self) -> None:
        RequestFault.__post_init__(self)
        checked = amount_within(self.delay_ms, REQUEST_DELAY_MS_MOST, "delay_request(delay_ms")
        object.__setattr__(self, "delay_ms", checked)

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the delay."""
        del snapshot
        return {"delay_ms": round(rng.uniform(*least_and_most(self.delay_ms)))}

    def arm(self, broker: BrokerControl, key: int, injection: Injection) -> ArmedRule:
        """Arm the delay on one broker."""
        return broker.fault_request(
            action="delay", api_key=key, nth=self.nth, client=self.client,
            delay_ms=int(injection.details["delay_ms"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateRequest(RequestFault):
    """Serve the `nth` request to `api` twice, on each broker of the target; a single doubled request is an effect."""

    kind: ClassVar[str] = "duplicate_request"
    effect: ClassVar[str] = "duplicated"

    def arm(self, broker: BrokerControl, key: int, injection: Injection) -> ArmedRule:
        """Arm the second service on one broker."""
        del injection
        return broker.fault_request(
            action="duplicate", api_key=key, nth=self.nth, client=self.client
        )


def api_key(api: str | int, kind: str) -> ApiKey:
    """Return the API by number or by Kafka's name ("Produce", "ListOffsets"); ConfigError else."""
    words = {key.name.replace("_", "").lower(): key for key in ApiKey}
    if isinstance(api, str):
        found = words.get(api.replace("_", "").replace(" ", "").lower())
        if found is not None:
            return found
    elif not isinstance(api, bool) and api in ApiKey.__members__.values():
        return ApiKey(api)
    raise ConfigError(f"{kind}({api!r}): no such API; such as 'Produce', 'Fetch' or 0, 1")


def error_code(name: str) -> ErrorCode:
    """Return one of Kafka's error codes by its name, such as "NOT_ENOUGH_REPLICAS"; ConfigError else."""
    code = ErrorCode.__members__.get(name.lower())
    if code is None or code is ErrorCode.none:
        near = difflib.get_close_matches(name.lower(), list(ErrorCode.__members__), n=1)
        hint = f"; did you mean {near[0].upper()}?" if near else ""
        raise ConfigError(f"refuse_request(error={name!r}): Kafka has no such error code{hint}")
    return code


def lose_response(
    api: str | int = "Produce",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    client: str = "*",
) -> LoseResponse:
    """Lose the n-th response to an API's request after it took effect; `client`: a client.id pattern."""
    return LoseResponse(target=target, api=api, nth=nth, client=client)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target


def refuse_request(
    api: str | int = "Produce",
    error: str = "NOT_ENOUGH_REPLICAS",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    client: str = "*",
) -> RefuseRequest:
    """Refuse the n-th request to an API with one of Kafka's error codes, without serving it."""
    return RefuseRequest(target=target, api=api, error=error, nth=nth, client=client)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target


def lose_request(
    api: str | int = "Produce",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    client: str = "*",
    silent: bool = False,
) -> LoseRequest:
    """Lose the n-th request to an API before it is served; its connection is reset.

    `silent=True`: the connection stays open and nothing on it is served any more, as behind a firewall that drops
    packets; the client finds out by its own timeout (`request.timeout.ms`, `socket.timeout.ms`).
    """
    return LoseRequest(target=target, api=api, nth=nth, client=client, silent=silent)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target


def delay_request(
    api: str | int = "Produce",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    delay_ms: Milliseconds = REQUEST_DELAY_MS,
    client: str = "*",
) -> DelayRequest:
    """Serve the n-th request to an API, and those behind it on its connection, `delay_ms` later."""
    return DelayRequest(target=target, api=api, nth=nth, client=client, delay_ms=delay_ms)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target


def duplicate_request(
    api: str | int = "Produce",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    client: str = "*",
) -> DuplicateRequest:
    """Serve the n-th request to an API twice in succession, with one response."""
    return DuplicateRequest(target=target, api=api, nth=nth, client=client)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target
