"""The part of a `System` that is beside the brokers: clients of Harrow's that disturb it, programs, dependencies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from harrow.faults.system import ArmedRule, LinkControl, ProgramControl

    from ..fault_clients.background import BackgroundClient

    ClientT = TypeVar("ClientT", bound=BackgroundClient)

BESIDE_BROKERS = frozenset({"client-requests", "dependencies", "programs"})
"""Capabilities of each backend whose brokers serve real connections."""


class BesideBrokers:
    """Clients that connect to `bootstrap_servers`, and the programs and dependencies of a `Harrow`."""

    programs: Mapping[str, ProgramControl]
    dependencies: Mapping[str, LinkControl]

    def __init__(self, bootstrap_servers: Callable[[], str]) -> None:
        self.programs = {}
        self.dependencies = {}
        self._servers_of_clients = bootstrap_servers

    def hijack_transactional_id(self, transactional_id: str) -> ArmedRule:
        """Begin a producer with this id."""
        from ..fault_clients import HijackingProducer

        return _begun(HijackingProducer(self._servers_of_clients(), transactional_id))

    def rebalance_group(self, group: str, *, every_ms: tuple[int, int], seed: int) -> ArmedRule:
        """Begin a member that comes and goes."""
        from ..fault_clients import RebalancingClient

        return _begun(RebalancingClient(self._servers_of_clients(), group, every_ms=every_ms, seed=seed))

    def join_group(self, group: str) -> ArmedRule:
        """Begin a member that does nothing."""
        from ..fault_clients import StuckMember

        return _begun(StuckMember(self._servers_of_clients(), group))


def _begun(client: ClientT) -> ClientT:
    client.begin()
    return client
