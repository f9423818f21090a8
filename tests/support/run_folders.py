"""A made-up run folder: a leader killed, a broker paused, traffic that dips and comes back."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from harrow.cluster.events import TraceEvent
from harrow.cluster.events.brokers import BrokerReady, BrokerRegistered, BrokerSessionExpired
from harrow.cluster.events.controllers import ControllerElected
from harrow.cluster.events.logs import LogRecovered
from harrow.cluster.events.partitions import HighWatermarkMoved, IsrChanged, PartitionLeader, PartitionTruncated
from harrow.cluster.tap.layouts import FETCHED, PRODUCED, TAP_ROW
from harrow.harness.checks.verdict import Anomaly, Status, Verdict
from harrow.harness.histories.format import HistoryWriter, OperationFunction, OperationType

START_NS = 5_000_000_000_000
BROKERS = (1, 2, 3)


def make_run_folder(
    folder: Path,
    *,
    seconds: float = 24.0,
    partitions: int = 3,
    status: Status = Status.VALID,
    rate: int = 400,
    tap: bool = False,
    seed: int = 7,
) -> Path:
    """Write a whole run folder; the same one for the same arguments."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    kill_at, back_at = seconds * 0.3, seconds * 0.5
    pause_at, resume_at = seconds * 0.66, seconds * 0.76
    _faults(folder, kill_at, back_at, pause_at, resume_at)
    _traces(folder, rng, seconds, partitions, rate, (kill_at, back_at, pause_at, resume_at))
    times = list(_operations(rng, seconds, rate, kill_at, pause_at))
    (_tap if tap else _history)(folder, rng, times)
    verdict(status, len(times)).write(folder / "verdict.json")
    (folder / "schedule.json").write_text(json.dumps({"schema_version": 1, "seed": 4711, "steps": []}))
    about = {
        "seed": 4711,
        "test": "test_no_order_is_lost",
        "command": "pytest tests/test_orders.py -k lost --harrow-seed=4711",
    }
    (folder / "run.json").write_text(json.dumps(about))
    return folder


def verdict(status: Status, acknowledged: int) -> Verdict:
    """A verdict with anomalies when it is invalid, reasons when unknown."""
    lost = Anomaly(
        name="lost-write",
        topic="orders",
        partition=1,
        offsets=(1_204, 1_205),
        operations=(
            {
                "operation": "send",
                "outcome": "ok",
                "client": "app-1",
                "offset": 1_204,
                "key": "order-81",
                "invoked_ns": _ns(7.2),
                "completed_ns": _ns(7.21),
            },
            {
                "operation": "send",
                "outcome": "ok",
                "client": "app-1",
                "offset": 1_205,
                "key": "order-82",
                "invoked_ns": _ns(7.21),
                "completed_ns": _ns(7.22),
            },
            {"operation": "final read", "client": "harrow-drain", "offset": 1_204, "key": "order-90"},
        ),
        explanation="acknowledged with acks=1 by broker 1 before it was killed, and in no replica's log now",
    )
    bad = status is Status.INVALID
    return Verdict(
        status=status,
        guarantees=("no-loss", "ordered"),
        guarantee_reason="acks=all, idempotent producers",
        operation_counts={"acknowledged": acknowledged, "unacknowledged": 12, "read": acknowledged},
        anomaly_counts={"lost-write": 2} if bad else {},
        anomalies=(lost,) if bad else (),
        reasons=("no fault overlapped traffic",) if status is Status.UNKNOWN else (),
        notes=("12 sends of unknown outcome may or may not be in the log",),
        elapsed_ms=181.0,
    )


def _ns(at_s: float) -> int:
    return START_NS + int(at_s * 1e9)


def _faults(folder: Path, kill_at: float, back_at: float, pause_at: float, resume_at: float) -> None:
    def row(at: float, event: str, number: int, kind: str, label: str, node: int) -> str:
        proofs: dict[str, dict[str, Any]] = {
            "effect": {"gone_after_ms": 2},
            "skipped": {"reason": "the traffic had ended"},
        }
        evidence = proofs.get(event, {})
        return json.dumps(
            {
                "t_ns": _ns(at),
                "event": event,
                "id": str(number),
                "fault": kind,
                "label": label,
                "targets": [node],
                "evidence": evidence,
            }
        )

    kill, pause = "kill(leader(orders, 0))", "pause(follower(orders), seconds=(0.5, 4.0))"
    lines = [
        row(kill_at, "inject", 1, "kill", kill, 1),
        row(kill_at + 0.03, "effect", 1, "kill", kill, 1),
        row(back_at, "heal", 1, "kill", kill, 1),
        row(back_at + 0.6, "healed", 1, "kill", kill, 1),
        row(pause_at, "inject", 2, "pause", pause, 3),
        row(pause_at + 0.01, "effect", 2, "pause", pause, 3),
        row(resume_at, "heal", 2, "pause", pause, 3),
        row(resume_at + 0.02, "healed", 2, "pause", pause, 3),
        row(resume_at + 1, "skipped", 3, "isolate", "isolate(controller())", 2),
    ]
    (folder / "faults.jsonl").write_text("\n".join(lines) + "\n" + '{"t_ns": 1, "torn')


class _Traces:
    """Events of every broker, gathered and then written in order."""

    def __init__(self) -> None:
        self.rows: dict[int, list[dict[str, Any]]] = {broker: [] for broker in BROKERS}

    def emit(self, broker: int, t: float, event: TraceEvent) -> None:
        front = {"t_ns": _ns(t), "wall_ms": 0, "host": f"broker-{broker}", "event": event.event_name}
        self.rows[broker].append({**front, **event.fields()})

    def write(self, folder: Path) -> None:
        for broker, rows in self.rows.items():
            place = folder / "cluster" / f"broker-{broker}"
            place.mkdir(parents=True, exist_ok=True)
            rows.sort(key=lambda row: int(row["t_ns"]))
            text = "\n".join(json.dumps(row) for row in rows)
            (place / "trace.jsonl").write_text(text + '\n{"t_ns": 99, "ev')


Times = tuple[float, float, float, float]
"""Killed, back, paused, resumed."""


def _traces(folder: Path, rng: random.Random, seconds: float, partitions: int, rate: int, at: Times) -> None:
    traces = _Traces()
    _cluster(traces, at)
    for p in range(partitions):
        _partition(traces, p, at)
        _high_watermarks(traces, p, rng, seconds, rate / partitions, at[0])
    for p in range(50):
        node = 1 + p % 3
        event = PartitionLeader(topic="__consumer_offsets", partition=p, leader=node, leader_epoch=0, isr=(1, 2, 3))
        traces.emit(node, 0.8, event)
    traces.write(folder)


def _cluster(traces: _Traces, at: Times) -> None:
    kill_at, back_at, _, resume_at = at
    for broker in BROKERS:
        traces.emit(broker, 0.02 * broker, BrokerRegistered(node_id=broker, epoch=20 + broker))
        traces.emit(broker, 0.15 + 0.02 * broker, BrokerReady(node_id=broker))
    traces.emit(1, 0.1, ControllerElected(epoch=1))
    traces.emit(2, kill_at + 1.5, ControllerElected(epoch=2))
    recovered = LogRecovered(
        topic="orders",
        partition=0,
        truncated_bytes=4096,
        reason="crc",
        log_end_offset=1204,
        recovery_point=0,
        segments_read=1,
        segments_removed=0,
        removed_base_offsets=(),
    )
    traces.emit(1, back_at + 0.4, recovered)
    traces.emit(1, back_at + 0.5, BrokerReady(node_id=1))
    traces.emit(3, resume_at + 0.1, BrokerSessionExpired(node_id=3))


def _partition(traces: _Traces, p: int, at: Times) -> None:
    kill_at, back_at, pause_at, resume_at = at
    order = _order(p)
    leader, epoch = order[0], 0

    place: Any = {"topic": "orders", "partition": p}

    def leads(t: float, *isr: int) -> None:
        event = PartitionLeader(**place, leader=leader, leader_epoch=epoch, isr=isr, cause="leader-and-isr")
        traces.emit(leader, t, event)

    def changes(t: float, *isr: int, cause: str) -> None:
        traces.emit(leader, t, IsrChanged(**place, leader_epoch=epoch, isr=isr, cause=cause))

    leads(0.6, *order)
    if leader == 1:
        leader, epoch = order[1], 1
        leads(kill_at + 1.52, 2, 3)
        traces.emit(1, back_at + 0.52, PartitionTruncated(**place, cause="kip-320", from_offset=1210, to_offset=1204))
    else:
        changes(kill_at + 1.5, 2, 3, cause="shrink")
    changes(back_at + 1.1, 1, 2, 3, cause="expand")
    if leader == 3:
        leader, epoch = 2, epoch + 1
        leads(pause_at + 1.5, 1, 2)
    else:
        changes(pause_at + 1.5, 1, 2, cause="shrink")
    changes(resume_at + 0.8, 1, 2, 3, cause="expand")


def _high_watermarks(traces: _Traces, p: int, rng: random.Random, seconds: float, rate: float, kill_at: float) -> None:
    hw, t = 0, 0.7
    while t < seconds:
        stalled = kill_at < t < kill_at + 1.6 and _order(p)[0] == 1
        hw += 0 if stalled else int(rate * 0.1 * (0.8 + 0.4 * rng.random()))
        traces.emit(2, t, HighWatermarkMoved(topic="orders", partition=p, hw=hw, leo=hw + 3, cause="append"))
        t += 0.1


def _order(p: int) -> list[int]:
    return [BROKERS[(p + k) % 3] for k in range(3)]


def _operations(rng: random.Random, seconds: float, rate: int, kill_at: float, pause_at: float) -> Any:
    """(sent at, latency in ms, failed) of every send."""
    t = 1.0
    while t < seconds - 0.5:
        t += rng.expovariate(rate * (1 + 0.25 * math.sin(t * 0.9)))
        latency = rng.lognormvariate(-0.2, 0.5)
        for fault_at, outage in ((kill_at, 1.6), (pause_at, 1.6)):
            if fault_at < t < fault_at + outage and rng.random() < 0.6:
                latency += (fault_at + outage - t) * 1_000
        yield t, latency, rng.random() < 0.0008


def _history(folder: Path, rng: random.Random, times: list[tuple[float, float, bool]]) -> None:
    with HistoryWriter(folder / "history", process="100") as history:
        client, topic = history.name("app-1"), history.name("orders")
        for number, (t, latency, failed) in enumerate(times):
            sent, done = _ns(t), _ns(t + latency / 1_000)
            outcome = OperationType.INFO if failed else OperationType.OK
            history.append(
                OperationFunction.SEND, OperationType.INVOKE, client, topic, 0, op=number, invoked_ns=sent, time_ns=sent
            )
            history.append(
                OperationFunction.SEND, outcome, client, topic, 0, number, number, invoked_ns=sent, time_ns=done
            )
            if not failed:
                read = done + int(rng.uniform(2e6, 3e7))
                history.append(
                    OperationFunction.POLL, OperationType.OK, client, topic, 0, number, invoked_ns=read, time_ns=read
                )


def _tap(folder: Path, rng: random.Random, times: list[tuple[float, float, bool]]) -> None:
    place = folder / "cluster" / "broker-2"
    (place / "tap.names").write_text("0\tapp-1\n1\torders\n2\tbroker-3\n3\t__consumer_offsets\n")
    rows: list[bytes] = []
    for number, (t, latency, failed) in enumerate(times):
        sent, done = _ns(t), _ns(t + latency / 1_000)
        error, base = (7, -1) if failed else (0, number)
        rows.append(TAP_ROW.pack(PRODUCED, 0, error, 0, 1, 0, base, base, 0, 1, -1, -1, -1, -1, sent, done, sent, 0, 0))
        for client, topic in ((0, 1), (2, 1), (0, 3)):
            rows.append(
                TAP_ROW.pack(
                    FETCHED, 0, 0, client, topic, 0, number, number, 0, 1, -1, -1, 0, -1, done, done, done, 0, 0
                )
            )
    (place / "tap.bin").write_bytes(b"".join(rows))
