"""Faults of single requests (K2): a response lost after its request took effect.

Armed on the broker; the n-th matching response from then on does not leave, its connection is reset.
So a client's retry meets the appended batch: a duplicate unless the producer is idempotent (H5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.wire.api_keys import ApiKey

from .errors import ConfigError
from .process import start_again
from .spec import Evidence, Fault, Injection, Seconds
from .system import System
from .targets import Target, all_brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseResponse(Fault):
    """Lose the `nth` response to `api`, on each broker of the target; one lost is an effect."""

    kind: ClassVar[str] = "lose_response"
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
        """No broker is down meanwhile."""
        return False

    def inject(self, system: System, injection: Injection) -> None:
        """Arm it once on each broker."""
        ids: dict[int, Any] = injection.notes.setdefault("ids", {})
        for node in injection.nodes:
            if node not in ids:
                answer = system.control(
                    node,
                    "responses.lose",
                    api_key=int(api_key(self.api)),
                    nth=self.nth,
                    client=self.client,
                )
                ids[node] = answer.get("id")

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe that a response was lost."""
        fired = {
            str(node): rows
            for node in injection.nodes
            if system.brokers[node].state == "running"
            and (rows := self._mine(system, injection, node))
        }
        lost = sum(int(row.get("fired", 0)) for rows in fired.values() for row in rows)
        return Evidence(proved=lost > 0, facts={"lost": lost, "responses": fired})

    def heal(self, system: System, injection: Injection) -> None:
        """Disarm what did not fire; what fired is over."""
        ids: dict[int, Any] = injection.notes.get("ids", {})
        for node, rule in ids.items():
            if system.brokers[node].alive:
                system.control(node, "responses.clear", id=rule)
        start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Nothing of it is armed."""
        armed = [
            row
            for node in injection.nodes
            for row in self._mine(system, injection, node)
            if row.get("armed")
        ]
        return Evidence(proved=not armed, facts={"armed": armed})

    def _mine(self, system: System, injection: Injection, node: int) -> list[dict[str, Any]]:
        rule = injection.notes.get("ids", {}).get(node)
        rows: list[dict[str, Any]] = system.control(node, "responses").get("rules", [])
        return [row for row in rows if row.get("id") == rule]


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
