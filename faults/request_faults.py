"""Faults of single requests (K2): a response lost after its request took effect.

Armed on the broker: the n-th matching response does not leave, and its connection is reset. A client's retry then meets
the appended batch: a duplicate, unless the producer is idempotent (H5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harrow.cluster.wire.api_keys import ApiKey

from .errors import ConfigError
from .evidence import Evidence
from .rules import arm_once, disarm, disarmed, fired
from .spec import Fault, Injection, Seconds
from .system import System
from .targets import Target, all_brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseResponse(Fault):
    """Lose the `nth` response to `api`, on each broker of the target; a single lost response is an effect."""

    kind: ClassVar[str] = "lose_response"
    needs: ClassVar[frozenset[str]] = frozenset({"responses"})
    waits_for_traffic: ClassVar[bool] = True
    target: Target = all_brokers
    seconds: Seconds | None = 0.0
    api: str | int = "Produce"
    nth: int = 1
    client: str = "*"

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        api_key(self.api)
        if self.nth < 1:
            raise ConfigError(f"lose_response(nth={self.nth}): expected a number from 1 up")

    @property
    def disturbs(self) -> bool:
        """False: every broker continues to serve."""
        return False

    def inject(self, system: System, injection: Injection) -> None:
        """Arm it once on each broker."""
        key = int(api_key(self.api))
        arm_once(
            system, injection,
            lambda broker: broker.lose_response(api_key=key, nth=self.nth, client=self.client),
        )  # fmt: skip

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether a response was lost; a broker that does not run sends no response."""
        facts = fired(system, injection, death_counts=False)
        lost = sum(int(fact["fired"]) for fact in facts.values())
        return Evidence(proved=lost > 0, facts={"lost": lost, "brokers": facts})

    def heal(self, system: System, injection: Injection) -> None:
        """Disarm what did not fire; what fired is over."""
        disarm(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether nothing is armed."""
        return disarmed(system, injection, Evidence(proved=True))


def api_key(api: str | int) -> ApiKey:
    """Return the API by number or by Kafka's name ("Produce", "ListOffsets"); ConfigError else."""
    words = {key.name.replace("_", "").lower(): key for key in ApiKey}
    if isinstance(api, str):
        found = words.get(api.replace("_", "").replace(" ", "").lower())
        if found is not None:
            return found
    elif not isinstance(api, bool) and api in ApiKey.__members__.values():
        return ApiKey(api)
    raise ConfigError(f"lose_response({api!r}): no such API; such as 'Produce', 'Fetch' or 0, 1")


def lose_response(
    api: str | int = "Produce",
    nth: int = 1,
    target: Target | int = all_brokers,
    *,
    client: str = "*",
) -> LoseResponse:
    """Lose the n-th response to an API's request after it took effect; `client`: a client.id pattern."""
    return LoseResponse(target=target, api=api, nth=nth, client=client)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target
