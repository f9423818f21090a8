"""A cluster for the faults to break without a broker in it: processes are real (and idle), the rest is plain state."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from harrow.cluster.errors import ClusterError
from harrow.cluster.view import ClusterView, PartitionView
from harrow.faults.process import process_state


class FakeBroker:
    """An idle process under the same calls as a broker's."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self.starts_fail = 0
        self.power_lost: list[tuple[int | str, float | None]] = []
        self.start()

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def state(self) -> str:
        if not self.alive:
            return "dead"
        return "paused" if process_state(self.pid) in ("T", "t") else "running"

    def start(self) -> None:
        if self.starts_fail:
            self.starts_fail -= 1
            raise ClusterError("it did not start")
        if not self.alive:
            self._child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def lose_power(self, *, seed: int | str, keep: float | None = None) -> dict[str, int]:
        self.kill()
        self.power_lost.append((seed, keep))
        return {"unsynced_bytes": 7, "lost_bytes": 7}

    def terminate(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)
            self._child.wait(10)
            if self._child.stdin is not None:
                self._child.stdin.close()

    def pause(self) -> None:
        assert self._child is not None
        self._child.send_signal(signal.SIGSTOP)
        # its parent is told when it stands still: an event, not a wait
        os.waitid(os.P_PID, self._child.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        if self.alive and self.state == "paused":
            assert self._child is not None
            self._child.send_signal(signal.SIGCONT)
            os.waitid(os.P_PID, self._child.pid, os.WCONTINUED | os.WNOWAIT)


class FakeConfig:
    """Settings as a broker's."""

    def number(self, name: str) -> int:
        return {"zookeeper.session.timeout.ms": 100, "offsets.topic.num.partitions": 50}[name]


class FakeSystem:
    """Three brokers; `orders` has three partitions, led by 1, 2, 3; broker 2 is the controller."""

    def __init__(self, brokers: int = 3) -> None:
        self.brokers = {node: FakeBroker() for node in range(1, brokers + 1)}
        self.registry = FakeBroker()
        self.config = FakeConfig()
        self.controller: int | None = 2
        self.calls: list[tuple[int, str, dict[str, Any]]] = []
        self.rules: dict[int, list[dict[str, Any]]] = {node: [] for node in self.brokers}
        self.held = 1
        self.lost: dict[int, list[dict[str, Any]]] = {node: [] for node in self.brokers}
        self.disk_rules: dict[int, list[dict[str, Any]]] = {node: [] for node in self.brokers}
        self.points: dict[int, dict[str, dict[str, Any]]] = {node: {} for node in self.brokers}
        nodes = tuple(self.brokers)
        self.topics = {
            "orders": {
                number: PartitionView(
                    leader=nodes[number % len(nodes)], leader_epoch=0, isr=nodes, replicas=nodes
                )
                for number in range(3)
            }
        }

    def describe(self) -> ClusterView:
        if self.registry.state != "running":
            raise ClusterError("the registry does not answer")
        return ClusterView(
            live=frozenset(self.brokers), controller=self.controller, topics=self.topics
        )

    def control(self, node_id: int, op: str, **fields: Any) -> dict[str, Any]:
        if self.brokers[node_id].state != "running":
            raise ClusterError(f"broker {node_id} does not answer")
        self.calls.append((node_id, op, fields))
        answer = self._disk if op.startswith("disk.") else self._answer
        return {"ok": True, **answer(node_id, op, fields)}

    def _disk(self, node: int, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        rules = self.disk_rules[node]
        if op == "disk.fail":
            rules.append({"id": 1, "fired": 0, "armed": True, **fields})
            return {"id": 1}
        if op == "disk.clear":
            self.disk_rules[node] = [{**row, "armed": False} for row in rules]
        return {"rules": rules}

    def _answer(self, node: int, op: str, fields: dict[str, Any]) -> dict[str, Any]:
        match op:
            case "links.block":
                way = fields["direction"]
                self.rules[node] = [{"peers": one, "direction": way} for one in fields["peers"]]
            case "links.heal":
                self.rules[node] = []
            case "links":
                held = self.held if self.rules[node] else 0
                slow = any("delay_ms" in row for row in self.rules[node])
                late = {"held_in_bytes": 0, "delayed_bytes": held}
                kept = {"held_in_bytes": held, "delayed_bytes": 0}
                return {"rules": self.rules[node], "held_out_bytes": 0, **(late if slow else kept)}
            case "links.slow":
                delay_ms: int = fields["delay_ms"]
                self.rules[node] = [
                    {"peers": one, "direction": "out", "delay_ms": delay_ms}
                    for one in fields["peers"]
                ]
            case "responses.lose":
                self.lost[node].append({"id": 1, "fired": False, "armed": True})
                return {"id": 1}
            case "responses.clear":
                self.lost[node] = [{**row, "armed": False} for row in self.lost[node]]
            case "responses":
                return {"rules": self.lost[node]}
            case "failpoint.arm":
                self.points[node][fields["name"]] = {
                    "name": fields["name"], "action": fields["action"], "fired": 0, "armed": True,
                }  # fmt: skip
            case "failpoint.disarm":
                self.points[node].get(fields["name"], {})["armed"] = False
            case "failpoints":
                return {"failpoints": list(self.points[node].values())}
            case _:
                raise ClusterError(f"no such operation {op}")
        return {}

    def undisturbed(self) -> bool:
        """Whether nothing is left of any fault."""
        everybody = (*self.brokers.values(), self.registry)
        running = all(one.state == "running" for one in everybody)
        armed = [row for rows in self.lost.values() for row in rows if row["armed"]]
        armed += [row for rows in self.disk_rules.values() for row in rows if row["armed"]]
        armed += [row for rows in self.points.values() for row in rows.values() if row["armed"]]
        return running and not any(self.rules.values()) and not armed

    def close(self) -> None:
        for one in (*self.brokers.values(), self.registry):
            one.resume()
            one.kill()


@contextmanager
def fake_system(brokers: int = 3) -> Generator[FakeSystem]:
    """A fake whose processes end with the block."""
    system = FakeSystem(brokers)
    try:
        yield system
    finally:
        system.close()
