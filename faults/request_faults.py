"""Faults of single requests (K2): a response lost after its request took effect, a request that is refused.

Armed on the broker. The n-th matching response does not leave, and its connection is reset: a client's retry then meets
the appended batch, a duplicate unless the producer is idempotent (H5). Or the n-th matching request is not served, and
its response has an error code of Kafka's: nothing took effect, and the client decides what to do.
"""

from __future__ import annotations

import abc
import difflib
from dataclasses import dataclass
from typing import ClassVar

from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey

from .errors import ConfigError
from .evidence import Evidence
from .rules import arm_once, disarm, disarmed, fired
from .spec import Fault, Injection, Seconds
from .system import ArmedRule, BrokerControl, System
from .targets import Target, all_brokers


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
    def arm(self, broker: BrokerControl, key: int) -> ArmedRule:
        """Arm the rule for the API `key` on one broker."""

    def inject(self, system: System, injection: Injection) -> None:
        """Arm it once on each broker."""
        key = int(api_key(self.api, self.kind))
        arm_once(system, injection, lambda broker: self.arm(broker, key))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether a rule acted; a broker that does not run answers no request."""
        facts = fired(system, injection, death_counts=False)
        acted = sum(int(fact["fired"]) for fact in facts.values())
        return Evidence(proved=acted > 0, facts={self.effect: acted, "brokers": facts})

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

    def arm(self, broker: BrokerControl, key: int) -> ArmedRule:
        """Arm the lost response on one broker."""
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

    def arm(self, broker: BrokerControl, key: int) -> ArmedRule:
        """Arm the refusal on one broker."""
        error = int(error_code(self.error))
        return broker.refuse_request(api_key=key, error=error, nth=self.nth, client=self.client)


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
