"""Capabilities follow from the parts of a system; `harrow backends` lists the same without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_system import FakeSystem, remove_part
from harrow.cluster import Cluster
from harrow.cluster.simulation import SimulatedCluster
from harrow.faults.controls import DEAD, EmptyFolders, PeerKind, has_part
from harrow.faults.errors import CapabilityError
from harrow.faults.rule_kinds import MemoryRule, StuckMemberRule
from harrow.faults.system import CAPABILITIES, Broker, System
from harrow.harness.backends.kinds import KINDS
from harrow.harness.backends.local import LocalSystem
from harrow.harness.backends.simulated.system import SimulatedSystem
from secured_clusters import SecuredCluster, with_acls

SECURITY = {"acls", "certificates", "logins", "passwords", "tokens"}
"""Capabilities of clusters with listeners with SASL or TLS, or with an authorizer."""
NOT_SIMULATED = SECURITY | {
    "client-requests",
    "connections",
    "dependencies",
    "descriptors",
    "disk-delays",
    "memory",
    "more-brokers",
    "power-loss-kept-fraction",
    "programs",
}
WITHOUT = {
    "registry": {"registry"},
    "operator": {"reassignments"},
    "membership": {"more-brokers"},
    "clients": {"client-requests"},
    "credentials": {"acls", "certificates", "passwords"},
    "programs": {"programs"},
    "dependencies": {"dependencies"},
    "process": {"process"},
    "shares": {"share-locks"},
    "links": {"links", "registry-links", "client-links"},
    "disk": {"disk-damage", "wipe", "power-loss", "power-loss-kept-fraction"},
    "rules": {
        "responses",
        "failpoints",
        "disk-errors",
        "disk-delays",
        "slow-disk",
        "clocks",
        "descriptors",
        "connections",
        "memory",
        "logins",
        "tokens",
    },
}
"""Capabilities that go with each part."""


@pytest.mark.parametrize("part", WITHOUT)
def test_a_system_without_a_part_lacks_its_capabilities_and_no_others(part: str) -> None:
    system = FakeSystem()
    assert system.capabilities == set(CAPABILITIES)
    if hasattr(System, part):
        remove_part(system, getattr(System, part))
    else:
        for broker in system.brokers.values():
            remove_part(broker, getattr(Broker, part))
    assert set(CAPABILITIES) - system.capabilities == WITHOUT[part]


def test_each_capability_goes_with_one_part() -> None:
    assert sorted(name for names in WITHOUT.values() for name in names) == sorted(CAPABILITIES)


def test_a_part_that_is_not_there_is_named() -> None:
    system = FakeSystem()
    remove_part(system, System.registry)
    remove_part(system.broker(2), Broker.disk)
    with pytest.raises(CapabilityError, match="the cluster has no part 'registry'"):
        system.registry.kill()
    with pytest.raises(CapabilityError, match="broker 2 has no part 'disk'"):
        system.broker(2).disk.end_with(EmptyFolders())
    assert has_part(system.broker(1), Broker.disk)


def test_an_extension_has_capabilities_of_its_own() -> None:
    system = FakeSystem()
    system.own_capabilities = frozenset({"rack-power"})
    assert system.can("rack-power")
    assert "rack-power" in system.capabilities
    assert not FakeSystem().can("rack-power")


@pytest.mark.parametrize(
    ("config", "lacking"),
    [
        ({"harrow.power.loss": True}, SECURITY),
        ({}, SECURITY | {"power-loss", "power-loss-kept-fraction"}),
        (with_acls({"harrow.power.loss": True}), {"certificates"}),
    ],
    ids=["journal", "no-journal", "users"],
)
def test_the_local_backend_has_everything_that_its_settings_allow(
    config: dict[str, object], lacking: set[str], tmp_path: Path
) -> None:
    with Cluster(brokers=1, folder=tmp_path / "cluster", config=config) as cluster:
        system = LocalSystem(cluster)
    assert system.broker(1).links.peers == {PeerKind.BROKER, PeerKind.REGISTRY, PeerKind.CLIENT}
    assert KINDS["local"].capabilities() - system.capabilities == lacking


def test_certificates_can_change_where_harrow_knows_their_authority(tmp_path: Path) -> None:
    clusters = SecuredCluster(tmp_path)
    with Cluster(brokers=1, config=clusters.config()) as cluster:
        assert SECURITY & clusters.system(cluster).capabilities == {"certificates"}
        assert not SECURITY & LocalSystem(cluster).capabilities


def test_a_simulated_cluster_lacks_what_needs_real_processes() -> None:
    with SimulatedCluster(brokers=2, seed=1) as cluster:
        system = SimulatedSystem(cluster)
    assert set(CAPABILITIES) - system.capabilities == NOT_SIMULATED


def test_a_rule_that_cannot_be_armed_is_refused(tmp_path: Path) -> None:
    with SimulatedCluster(brokers=2, seed=1) as cluster:
        simulated = SimulatedSystem(cluster)
        with pytest.raises(CapabilityError, match=r"MemoryRule\(spare_bytes=1\) cannot be armed on this backend"):
            simulated.broker(1).rules.arm(MemoryRule(spare_bytes=1))
    with Cluster(brokers=1, folder=tmp_path / "cluster") as running:
        local = LocalSystem(running)
        with pytest.raises(CapabilityError, match="StuckMemberRule"):
            local.broker(1).rules.arm(StuckMemberRule(group="billing"))
    assert local.broker(1).status().state == DEAD
