"""Faults: faults and targets as plain values, schedules, and the nemesis that runs a schedule.

    kill(leader("orders")), pause(controller(), seconds=(0.5, 4)), isolate(one), lose_response("Produce"), …

Faults reach the cluster only through `System` (`system.py`), which every backend implements; nothing here depends on
tests.
"""

from .background import BackgroundNemesis as BackgroundNemesis
from .clock_faults import freeze_clock as freeze_clock
from .clock_faults import jump_clock as jump_clock
from .clock_faults import skew_clock as skew_clock
from .clock_faults import strobe_clock as strobe_clock
from .cluster_faults import elect_controller as elect_controller
from .cluster_faults import expire_session as expire_session
from .cluster_faults import move_leader as move_leader
from .cluster_faults import reassign as reassign
from .cluster_faults import zombie_controller as zombie_controller
from .damage_faults import damage_disk as damage_disk
from .disk_faults import disk_error as disk_error
from .disk_faults import power_loss as power_loss
from .disk_faults import slow_disk as slow_disk
from .disk_faults import wipe as wipe
from .errors import CapabilityError as CapabilityError
from .errors import FaultError as FaultError
from .errors import NemesisError as NemesisError
from .errors import TargetError as TargetError
from .evidence import Evidence as Evidence
from .extensions import INTERFACE as INTERFACE
from .extensions import add_extension as add_extension
from .extensions import hookimpl as hookimpl
from .failpoint_faults import failpoint as failpoint
from .fault_kinds import FAULTS as FAULTS
from .fault_kinds import fault_from_json as fault_from_json
from .fault_kinds import register as register
from .nemesis import Nemesis as Nemesis
from .network_faults import cut as cut
from .network_faults import isolate as isolate
from .network_faults import reset as reset
from .network_faults import slow_link as slow_link
from .network_faults import throttle as throttle
from .outside import OutsideFault as OutsideFault
from .partition_faults import bridge as bridge
from .partition_faults import disconnect as disconnect
from .partition_faults import half_open as half_open
from .partition_faults import halves as halves
from .partition_faults import majorities_ring as majorities_ring
from .planning import overlapping_schedule as overlapping_schedule
from .planning import random_schedule as random_schedule
from .process_faults import kill as kill
from .process_faults import pause as pause
from .process_faults import restart as restart
from .process_faults import terminate as terminate
from .registry_faults import pause_registry as pause_registry
from .registry_faults import restart_registry as restart_registry
from .request_faults import delay_request as delay_request
from .request_faults import duplicate_request as duplicate_request
from .request_faults import lose_request as lose_request
from .request_faults import lose_response as lose_response
from .request_faults import refuse_request as refuse_request
from .resource_faults import exhaust_descriptors as exhaust_descriptors
from .resource_faults import throttle_cpu as throttle_cpu
from .restart_faults import crash_during_recovery as crash_during_recovery
from .restart_faults import crash_loop as crash_loop
from .restart_faults import rolling_restart as rolling_restart
from .restart_faults import slow_start as slow_start
from .roles import Role as Role
from .schedule import Schedule as Schedule
from .schedule import ScheduledFault as ScheduledFault
from .spec import Fault as Fault
from .spec import Injection as Injection
from .system import System as System
from .targets import Target as Target
from .targets import all_brokers as all_brokers
from .targets import broker as broker
from .targets import controller as controller
from .targets import follower as follower
from .targets import group_coordinator as group_coordinator
from .targets import isr_member as isr_member
from .targets import leader as leader
from .targets import majority as majority
from .targets import minority as minority
from .targets import one as one
from .targets import registry as registry
from .targets import txn_coordinator as txn_coordinator
