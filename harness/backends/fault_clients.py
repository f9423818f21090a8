"""Clients of Harrow's that disturb the user's: what every backend with real connections arms (`System.clients`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from harrow.faults.rule_kinds import HijackRule, RebalanceRule, StuckMemberRule, StuckShareMemberRule

from .knobs import RuleTable

if TYPE_CHECKING:
    from harrow.faults.rule_kinds import ArmedRule

    from ..fault_clients.background import BackgroundClient

    ClientT = TypeVar("ClientT", bound=BackgroundClient)


def fault_clients(bootstrap_servers: Callable[[], str]) -> RuleTable:
    """Return what begins clients that connect to `bootstrap_servers`."""

    def hijack(rule: HijackRule) -> ArmedRule:
        from ..fault_clients import HijackingProducer

        return _begun(HijackingProducer(bootstrap_servers(), rule.transactional_id))

    def rebalance(rule: RebalanceRule) -> ArmedRule:
        from ..fault_clients import RebalancingClient

        return _begun(RebalancingClient(bootstrap_servers(), rule.group, every_ms=rule.every_ms, seed=rule.seed))

    def join(rule: StuckMemberRule) -> ArmedRule:
        from ..fault_clients import StuckMember

        return _begun(StuckMember(bootstrap_servers(), rule.group))

    def share(rule: StuckShareMemberRule) -> ArmedRule:
        from ..fault_clients import StuckShareMember

        return _begun(StuckShareMember(bootstrap_servers(), rule.group))

    return RuleTable({HijackRule: hijack, RebalanceRule: rebalance, StuckMemberRule: join, StuckShareMemberRule: share})


def _begun(client: ClientT) -> ClientT:
    client.begin()
    return client
