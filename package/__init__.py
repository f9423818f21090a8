"""Harrow: what happens when Kafka breaks?

This package re-exports the public names of the three layers. A name is imported at its first use, because pytest
imports `harrow` in every run, with all installed plugins.

* `harrow.cluster`: a multiprocess Kafka-protocol cluster, which also runs alone;
* `harrow.faults`: faults, their targets, and schedules of faults;
* `harrow.harness`: the pytest plugin, recording clients, verdicts and reports.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harrow.cluster import Cluster as Cluster
    from harrow.cluster import HarrowError as HarrowError
    from harrow.faults import add_broker as add_broker
    from harrow.faults import add_extension as add_extension
    from harrow.faults import all_brokers as all_brokers
    from harrow.faults import bridge as bridge
    from harrow.faults import broker as broker
    from harrow.faults import controller as controller
    from harrow.faults import crash_during_recovery as crash_during_recovery
    from harrow.faults import crash_loop as crash_loop
    from harrow.faults import cut as cut
    from harrow.faults import damage_disk as damage_disk
    from harrow.faults import delay_request as delay_request
    from harrow.faults import dependency as dependency
    from harrow.faults import disconnect as disconnect
    from harrow.faults import disk_error as disk_error
    from harrow.faults import duplicate_request as duplicate_request
    from harrow.faults import elect_controller as elect_controller
    from harrow.faults import exhaust_connections as exhaust_connections
    from harrow.faults import exhaust_descriptors as exhaust_descriptors
    from harrow.faults import expire_certificate as expire_certificate
    from harrow.faults import expire_lock as expire_lock
    from harrow.faults import expire_session as expire_session
    from harrow.faults import expire_token as expire_token
    from harrow.faults import fail_response as fail_response
    from harrow.faults import failpoint as failpoint
    from harrow.faults import failpoint_at_start as failpoint_at_start
    from harrow.faults import follower as follower
    from harrow.faults import freeze_clock as freeze_clock
    from harrow.faults import group_coordinator as group_coordinator
    from harrow.faults import half_open as half_open
    from harrow.faults import halves as halves
    from harrow.faults import hijack_transactional_id as hijack_transactional_id
    from harrow.faults import hookimpl as hookimpl
    from harrow.faults import isolate as isolate
    from harrow.faults import isolate_client as isolate_client
    from harrow.faults import isr_member as isr_member
    from harrow.faults import jump_clock as jump_clock
    from harrow.faults import kill as kill
    from harrow.faults import kill_program as kill_program
    from harrow.faults import leader as leader
    from harrow.faults import limit_memory as limit_memory
    from harrow.faults import lose_request as lose_request
    from harrow.faults import lose_response as lose_response
    from harrow.faults import majorities_ring as majorities_ring
    from harrow.faults import majority as majority
    from harrow.faults import minority as minority
    from harrow.faults import move_leader as move_leader
    from harrow.faults import next_leader as next_leader
    from harrow.faults import one as one
    from harrow.faults import pause as pause
    from harrow.faults import pause_program as pause_program
    from harrow.faults import pause_registry as pause_registry
    from harrow.faults import power_loss as power_loss
    from harrow.faults import reassign as reassign
    from harrow.faults import rebalance_storm as rebalance_storm
    from harrow.faults import refuse_reauthentication as refuse_reauthentication
    from harrow.faults import refuse_request as refuse_request
    from harrow.faults import registry as registry
    from harrow.faults import remove_broker as remove_broker
    from harrow.faults import reset as reset
    from harrow.faults import restart as restart
    from harrow.faults import restart_registry as restart_registry
    from harrow.faults import revoke_acl as revoke_acl
    from harrow.faults import rolling_restart as rolling_restart
    from harrow.faults import rotate_certificate as rotate_certificate
    from harrow.faults import rotate_credentials as rotate_credentials
    from harrow.faults import skew_clock as skew_clock
    from harrow.faults import slow_disk as slow_disk
    from harrow.faults import slow_link as slow_link
    from harrow.faults import slow_start as slow_start
    from harrow.faults import strobe_clock as strobe_clock
    from harrow.faults import stuck_consumer as stuck_consumer
    from harrow.faults import stuck_share_consumer as stuck_share_consumer
    from harrow.faults import terminate as terminate
    from harrow.faults import terminate_program as terminate_program
    from harrow.faults import throttle as throttle
    from harrow.faults import throttle_cpu as throttle_cpu
    from harrow.faults import txn_coordinator as txn_coordinator
    from harrow.faults import unclean_election as unclean_election
    from harrow.faults import wipe as wipe
    from harrow.faults import zombie_controller as zombie_controller
    from harrow.harness.checks import Verdict as Verdict
    from harrow.harness.checks.anomaly_kinds import AnomalyKind as AnomalyKind
    from harrow.harness.checks.record import Record as Record
    from harrow.harness.checks.record_check import Finding as Finding
    from harrow.harness.checks.record_check import RecordCheck as RecordCheck
    from harrow.harness.errors import ProgramDiedError as ProgramDiedError
    from harrow.harness.errors import VerdictError as VerdictError
    from harrow.harness.errors import WaitTimeoutError as WaitTimeoutError
    from harrow.harness.plugin.examples import HarrowExamples as HarrowExamples
    from harrow.harness.plugin.fixtures import harrow_fixture as harrow_fixture
    from harrow.harness.plugin.fixtures import harrow_session_fixture as harrow_session_fixture
    from harrow.harness.promises.relations import KeyedRelation as KeyedRelation
    from harrow.harness.promises.relations import RecordRelation as RecordRelation
    from harrow.harness.promises.relations import Window as Window
    from harrow.harness.promises.relations import filtered as filtered
    from harrow.harness.promises.relations import flat_mapped as flat_mapped
    from harrow.harness.promises.relations import folded as folded
    from harrow.harness.promises.relations import identity as identity
    from harrow.harness.promises.relations import mapped as mapped
    from harrow.harness.promises.relations import windowed as windowed
    from harrow.harness.promises.sinks import files as files
    from harrow.harness.promises.sinks import table as table
    from harrow.harness.reached import sometimes as sometimes
    from harrow.harness.run.harrow import Harrow as Harrow
    from harrow.harness.security.choice import Security as Security
    from harrow.harness.topics import Topic as Topic

_FAULTS = (
    "hijack_transactional_id",
    "rebalance_storm",
    "stuck_consumer",
    "stuck_share_consumer",
    "expire_lock",
    "isolate_client",
    "kill_program",
    "pause_program",
    "terminate_program",
    "add_extension",
    "hookimpl",
    "bridge",
    "disconnect",
    "half_open",
    "halves",
    "majorities_ring",
    "crash_during_recovery",
    "crash_loop",
    "rolling_restart",
    "slow_start",
    "dependency",
    "registry",
    "add_broker",
    "all_brokers",
    "remove_broker",
    "broker",
    "controller",
    "cut",
    "delay_request",
    "disk_error",
    "duplicate_request",
    "fail_response",
    "failpoint",
    "failpoint_at_start",
    "follower",
    "group_coordinator",
    "isolate",
    "isr_member",
    "kill",
    "leader",
    "limit_memory",
    "lose_request",
    "lose_response",
    "majority",
    "minority",
    "next_leader",
    "one",
    "pause",
    "pause_registry",
    "power_loss",
    "refuse_request",
    "reset",
    "restart",
    "restart_registry",
    "slow_link",
    "slow_disk",
    "terminate",
    "throttle",
    "txn_coordinator",
    "unclean_election",
    "wipe",
    "elect_controller",
    "zombie_controller",
    "expire_session",
    "move_leader",
    "reassign",
    "jump_clock",
    "skew_clock",
    "freeze_clock",
    "strobe_clock",
    "damage_disk",
    "exhaust_connections",
    "exhaust_descriptors",
    "throttle_cpu",
    "expire_certificate",
    "expire_token",
    "refuse_reauthentication",
    "revoke_acl",
    "rotate_certificate",
    "rotate_credentials",
)
_RELATIONS = (
    "KeyedRelation",
    "RecordRelation",
    "Window",
    "filtered",
    "flat_mapped",
    "folded",
    "identity",
    "mapped",
    "windowed",
)
_HOME = {
    "AnomalyKind": "harrow.harness.checks.anomaly_kinds",
    "Cluster": "harrow.cluster",
    "Finding": "harrow.harness.checks.record_check",
    "Harrow": "harrow.harness.run.harrow",
    "HarrowError": "harrow.cluster",
    "HarrowExamples": "harrow.harness.plugin.examples",
    "ProgramDiedError": "harrow.harness.errors",
    "Record": "harrow.harness.checks.record",
    "RecordCheck": "harrow.harness.checks.record_check",
    "Security": "harrow.harness.security.choice",
    "sometimes": "harrow.harness.reached",
    "Topic": "harrow.harness.topics",
    "Verdict": "harrow.harness.checks",
    "VerdictError": "harrow.harness.errors",
    "WaitTimeoutError": "harrow.harness.errors",
    "harrow_fixture": "harrow.harness.plugin.fixtures",
    "harrow_session_fixture": "harrow.harness.plugin.fixtures",
    "files": "harrow.harness.promises.sinks",
    "table": "harrow.harness.promises.sinks",
    **dict.fromkeys(_FAULTS, "harrow.faults"),
    **dict.fromkeys(_RELATIONS, "harrow.harness.promises.relations"),
}
__all__ = [
    "AnomalyKind",
    "Cluster",
    "Finding",
    "Harrow",
    "HarrowError",
    "HarrowExamples",
    "KeyedRelation",
    "ProgramDiedError",
    "Record",
    "RecordCheck",
    "RecordRelation",
    "Security",
    "Topic",
    "Verdict",
    "VerdictError",
    "WaitTimeoutError",
    "Window",
    "add_broker",
    "add_extension",
    "all_brokers",
    "bridge",
    "broker",
    "controller",
    "crash_during_recovery",
    "crash_loop",
    "cut",
    "damage_disk",
    "delay_request",
    "dependency",
    "disconnect",
    "disk_error",
    "duplicate_request",
    "elect_controller",
    "exhaust_connections",
    "exhaust_descriptors",
    "expire_certificate",
    "expire_lock",
    "expire_session",
    "expire_token",
    "fail_response",
    "failpoint",
    "failpoint_at_start",
    "files",
    "filtered",
    "flat_mapped",
    "folded",
    "follower",
    "freeze_clock",
    "group_coordinator",
    "half_open",
    "halves",
    "harrow_fixture",
    "harrow_session_fixture",
    "hijack_transactional_id",
    "hookimpl",
    "identity",
    "isolate",
    "isolate_client",
    "isr_member",
    "jump_clock",
    "kill",
    "kill_program",
    "leader",
    "limit_memory",
    "lose_request",
    "lose_response",
    "majorities_ring",
    "majority",
    "mapped",
    "minority",
    "move_leader",
    "next_leader",
    "one",
    "pause",
    "pause_program",
    "pause_registry",
    "power_loss",
    "reassign",
    "rebalance_storm",
    "refuse_reauthentication",
    "refuse_request",
    "registry",
    "remove_broker",
    "reset",
    "restart",
    "restart_registry",
    "revoke_acl",
    "rolling_restart",
    "rotate_certificate",
    "rotate_credentials",
    "skew_clock",
    "slow_disk",
    "slow_link",
    "slow_start",
    "sometimes",
    "strobe_clock",
    "stuck_consumer",
    "stuck_share_consumer",
    "table",
    "terminate",
    "terminate_program",
    "throttle",
    "throttle_cpu",
    "txn_coordinator",
    "unclean_election",
    "windowed",
    "wipe",
    "zombie_controller",
]


def __getattr__(name: str) -> Any:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'harrow' has no attribute {name!r}") from None
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def public_homes() -> dict[str, str]:
    """Return the module of each public name; the reference of the documentation reads it."""
    return dict(_HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
