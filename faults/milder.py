"""Milder forms of faults, for making a failure smaller: what a fault of each kind may be replaced by.

`MILDER` has a row for each kind of Harrow's own, which says its milder forms or that it has none (`NOTHING`); a test
fails for a kind without a row. A form does less to what it hits: it ends no process, loses no data, reaches fewer peers
or requests, or is half as strong. `milder_forms` yields them from the mildest of one step up; each form has forms of
its own, and no sequence of them comes back to a fault that it had, so that shrinking ends.

    power_loss, wipe  →  kill  →  pause, terminate          isolate  →  fewer peers, one direction
    disk_error  →  slow_disk  →  half of the delay          slow_link  →  fewer peers, half of the delay
    kill_program  →  pause_program, terminate_program       a fault of requests  →  fewer of them, less delay

Faults of extensions have no milder forms; they are left out and shortened as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from .client_faults import (
    ExpireLock,
    HijackTransactionalId,
    IsolateClient,
    RebalanceStorm,
    StuckConsumer,
    StuckShareConsumer,
)
from .clock_faults import FreezeClock, JumpClock, SkewClock, StrobeClock
from .cluster_faults import ElectController, ExpireSession, MoveLeader, Reassign, ZombieController
from .credential_faults import (
    ExpireCertificate,
    ExpireToken,
    RefuseReauthentication,
    RevokeAcl,
    RotateCertificate,
    RotateCredentials,
)
from .damage_faults import DamageDisk
from .dependency_faults import (
    CutDependency,
    HalfOpenDependency,
    IsolateDependency,
    ResetDependency,
    SlowDependency,
    ThrottleDependency,
)
from .disk_faults import DiskError, PowerLoss, SlowDisk, Wipe
from .election_faults import UncleanElection
from .failpoint_faults import Failpoint, FailpointAtStart
from .membership_faults import AddBroker, RemoveBroker
from .network_faults import Isolate, LinkFault, OneWayCut, Reset, SlowLink, Throttle
from .partition_faults import Bridge, Disconnect, HalfOpen, Halves, MajoritiesRing
from .process_faults import Kill, Pause, Restart, Terminate
from .program_faults import KillProgram, PauseProgram, TerminateProgram
from .registry_faults import PauseRegistry, RestartRegistry
from .request_faults import (
    DelayRequest,
    DuplicateRequest,
    FailResponse,
    LoseRequest,
    LoseResponse,
    RefuseRequest,
    RequestFault,
)
from .resource_faults import ExhaustConnections, ExhaustDescriptors, LimitMemory, ThrottleCpu
from .restart_faults import CrashDuringRecovery, CrashLoop, RollingRestart, SlowStart
from .spec import Fault, least_and_most

Drawn = Mapping[str, Any]
"""What was drawn for the fault when it fired (`ScheduledFault.details`); empty where it has not."""
Forms = Callable[[Any, Drawn], Iterator[Fault]]
DELAY_LEAST_MS = 20
"""No delay is made shorter: such a fault is hardly one."""
BYTES_PER_S_ENOUGH = 1_000_000
CLOCK_LEAST_S = 1.0
SHARE_ENOUGH = 0.8
STORM_ENOUGH_S = 4.0


def milder_forms(fault: Fault, drawn: Drawn) -> Iterator[Fault]:
    """Yield what a fault may be replaced by that does less, the mildest first; `drawn`: its details."""
    for form in MILDER.get(type(fault), _nothing)(fault, drawn):
        assert form != fault, f"{fault} is no milder form of itself"
        yield form


def _nothing(fault: Fault, drawn: Drawn) -> Iterator[Fault]:
    del fault, drawn
    yield from ()


NOTHING: Forms = _nothing
"""There is no fault that does the same and less."""


def _of_kill(fault: Kill, drawn: Drawn) -> Iterator[Fault]:
    """The process keeps its memory, or may write down what it has and move its leaders first."""
    del drawn
    yield Pause(target=fault.target, seconds=fault.seconds)
    yield Terminate(target=fault.target, seconds=fault.seconds)


def _to_kill(fault: Fault, drawn: Drawn) -> Iterator[Fault]:
    """What was written stays on the disk."""
    del drawn
    yield Kill(target=fault.target, seconds=fault.seconds)


def _to_terminate(fault: Fault, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    yield Terminate(target=fault.target, seconds=fault.seconds)


def _to_slow_disk(fault: DiskError, drawn: Drawn) -> Iterator[Fault]:
    """Calls are late and do not fail."""
    del drawn
    yield SlowDisk(target=fault.target, seconds=fault.seconds)


def _without_kill(fault: Restart | RollingRestart, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    if fault.kill:
        yield replace(fault, kill=False)


def _fewer_crashes(fault: CrashDuringRecovery, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    yield Kill(target=fault.target, seconds=fault.seconds)
    if fault.crashes > 1:
        yield replace(fault, crashes=fault.crashes // 2)


def _fewer_at_start(fault: FailpointAtStart, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    if fault.power_loss:
        yield replace(fault, power_loss=False)
    if fault.times > 1:
        yield replace(fault, times=fault.times // 2)


def _fewer_peers(fault: LinkFault, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    if fault.peers == "all":
        yield replace(fault, peers="any", clients=False)
        if fault.clients:
            yield replace(fault, peers="clients", clients=False)
            yield replace(fault, clients=False)


def _of_isolate(fault: Isolate, drawn: Drawn) -> Iterator[Fault]:
    yield from _fewer_peers(fault, drawn)
    if fault.direction == "both":
        yield replace(fault, direction="in")
        yield replace(fault, direction="out")


def _of_slow_link(fault: SlowLink, drawn: Drawn) -> Iterator[Fault]:
    yield from _fewer_peers(fault, drawn)
    yield from _half_delay(fault, drawn)


def _half_delay(fault: SlowLink | SlowDisk | SlowDependency | DelayRequest, drawn: Drawn) -> Iterator[Fault]:
    delay_ms = _strength(drawn.get("delay_ms"), fault.delay_ms) // 2
    assert delay_ms < least_and_most(fault.delay_ms)[1], f"{fault} has a delay of {drawn}"
    if delay_ms >= DELAY_LEAST_MS:
        yield replace(fault, delay_ms=delay_ms)


def _of_throttle(fault: Throttle, drawn: Drawn) -> Iterator[Fault]:
    yield from _fewer_peers(fault, drawn)
    yield from _double_rate(fault, drawn)


def _double_rate(fault: Throttle | ThrottleDependency, drawn: Drawn) -> Iterator[Fault]:
    rate = 2 * float(drawn.get("bytes_per_s", least_and_most(fault.bytes_per_s)[1]))
    assert rate > least_and_most(fault.bytes_per_s)[0], f"{fault} has a rate of {drawn}"
    if rate <= BYTES_PER_S_ENOUGH:
        yield replace(fault, bytes_per_s=rate)


def _of_half_open(fault: HalfOpen, drawn: Drawn) -> Iterator[Fault]:
    """The connections end, and both sides know it."""
    yield Reset(target=fault.target, clients=fault.clients, peers=fault.peers)
    yield from _fewer_peers(fault, drawn)


def _without_clients(fault: Halves, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    if fault.clients:
        yield replace(fault, clients=False)


def _of_restart_registry(fault: RestartRegistry, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    yield PauseRegistry(seconds=fault.seconds)


def _of_zombie(fault: ZombieController, drawn: Drawn) -> Iterator[Fault]:
    """Another controller is elected, and the old one runs."""
    del fault, drawn
    yield ElectController()


def _fewer_requests(fault: RequestFault, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    if fault.count > 1:
        yield replace(fault, count=fault.count // 2)


def _of_lose_request(fault: LoseRequest, drawn: Drawn) -> Iterator[Fault]:
    yield from _fewer_requests(fault, drawn)
    if fault.silent:
        yield replace(fault, silent=False)


def _of_delay_request(fault: DelayRequest, drawn: Drawn) -> Iterator[Fault]:
    yield from _fewer_requests(fault, drawn)
    yield from _half_delay(fault, drawn)


def _half_jump(fault: JumpClock | StrobeClock, drawn: Drawn) -> Iterator[Fault]:
    by_s = drawn["by_ms"] / 1000 if "by_ms" in drawn else least_and_most(fault.by_s)[1]
    if abs(by_s) >= 2 * CLOCK_LEAST_S:
        yield replace(fault, by_s=round(by_s / 2, 3))


def _of_strobe(fault: StrobeClock, drawn: Drawn) -> Iterator[Fault]:
    """The clock jumps once, to and back."""
    yield JumpClock(target=fault.target, by_s=fault.by_s, seconds=fault.seconds)
    yield from _half_jump(fault, drawn)


def _more_time(fault: ThrottleCpu, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    if 2 * fault.share <= SHARE_ENOUGH:
        yield replace(fault, share=2 * fault.share)


def _fewer_rebalances(fault: RebalanceStorm, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    least_s, most_s = least_and_most(fault.every_s)
    if 2 * most_s <= STORM_ENOUGH_S:
        yield replace(fault, every_s=(2 * least_s, 2 * most_s))


def _of_kill_program(fault: KillProgram, drawn: Drawn) -> Iterator[Fault]:
    """The program keeps its memory, or may end in its own way; at a request only a kill can hit it."""
    del drawn
    if not fault.restart:
        yield replace(fault, restart=True)
    elif fault.api is None:
        yield PauseProgram(program=fault.program, seconds=fault.seconds)
        yield TerminateProgram(program=fault.program, seconds=0.0 if fault.seconds is None else fault.seconds)


def _of_isolate_dependency(fault: IsolateDependency, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    for direction in ("in", "out"):
        yield CutDependency(
            dependency=fault.dependency, direction=direction, heals_by=fault.heals_by, seconds=fault.seconds
        )


def _of_half_open_dependency(fault: HalfOpenDependency, drawn: Drawn) -> Iterator[Fault]:
    del drawn
    yield ResetDependency(dependency=fault.dependency)


def _strength(drawn: object, given: float | tuple[float, float]) -> float:
    """Return what was drawn, before that the most that may be drawn."""
    return float(str(drawn)) if drawn is not None else least_and_most(given)[1]


MILDER: Mapping[type[Fault], Forms] = {
    Kill: _of_kill,
    Terminate: NOTHING,
    Pause: NOTHING,
    Restart: _without_kill,
    PowerLoss: _to_kill,
    Wipe: _to_kill,
    DamageDisk: _to_terminate,
    DiskError: _to_slow_disk,
    SlowDisk: _half_delay,
    Isolate: _of_isolate,
    OneWayCut: _fewer_peers,
    SlowLink: _of_slow_link,
    Throttle: _of_throttle,
    Reset: _fewer_peers,
    HalfOpen: _of_half_open,
    Disconnect: NOTHING,
    Halves: _without_clients,
    Bridge: NOTHING,
    MajoritiesRing: NOTHING,
    RestartRegistry: _of_restart_registry,
    PauseRegistry: NOTHING,
    LoseResponse: _fewer_requests,
    FailResponse: _fewer_requests,
    LoseRequest: _of_lose_request,
    RefuseRequest: _fewer_requests,
    DelayRequest: _of_delay_request,
    DuplicateRequest: _fewer_requests,
    Failpoint: NOTHING,
    FailpointAtStart: _fewer_at_start,
    RollingRestart: _without_kill,
    CrashLoop: _to_kill,
    CrashDuringRecovery: _fewer_crashes,
    SlowStart: _to_terminate,
    ElectController: NOTHING,
    ZombieController: _of_zombie,
    ExpireSession: NOTHING,
    MoveLeader: NOTHING,
    Reassign: NOTHING,
    UncleanElection: NOTHING,
    JumpClock: _half_jump,
    SkewClock: NOTHING,
    FreezeClock: NOTHING,
    StrobeClock: _of_strobe,
    ThrottleCpu: _more_time,
    ExhaustDescriptors: NOTHING,
    ExhaustConnections: NOTHING,
    LimitMemory: NOTHING,
    AddBroker: NOTHING,
    RemoveBroker: NOTHING,
    HijackTransactionalId: NOTHING,
    RebalanceStorm: _fewer_rebalances,
    StuckConsumer: NOTHING,
    StuckShareConsumer: NOTHING,
    ExpireLock: NOTHING,
    IsolateClient: NOTHING,
    KillProgram: _of_kill_program,
    PauseProgram: NOTHING,
    TerminateProgram: NOTHING,
    RotateCredentials: NOTHING,
    RevokeAcl: NOTHING,
    ExpireCertificate: NOTHING,
    RotateCertificate: NOTHING,
    RefuseReauthentication: NOTHING,
    ExpireToken: NOTHING,
    IsolateDependency: _of_isolate_dependency,
    CutDependency: NOTHING,
    SlowDependency: _half_delay,
    ThrottleDependency: _double_rate,
    HalfOpenDependency: _of_half_open_dependency,
    ResetDependency: NOTHING,
}
"""By kind: its milder forms. Of the exact class: a kind does not inherit those of another one."""
