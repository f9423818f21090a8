"""The control socket as a synchronous client uses it; failed tasks are traced and logged."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import ClusterError, ConfigError
from harrow.cluster.host.knobs.control import ControlClient
from harrow.cluster.host.real.host import RealHost


def with_host(folder: Path, main: Callable[[RealHost], Awaitable[None]]) -> None:
    async def whole() -> None:
        host = RealHost("broker-7", str(folder), seed=5)
        await host.start()
        try:
            await asyncio.wait_for(main(host), 20)
        finally:
            await host.stop()

    asyncio.run(whole())


def test_control_client_calls_operations_over_the_socket(tmp_path: Path) -> None:
    def call_operations(path: str) -> None:
        with ControlClient(path) as client:
            assert client.call("ping") == {"pid": os.getpid()}
            assert client.call("state") == {"partitions": []}
            assert client.call("slow", n=4) == {"twice": 8}
            client.call("rules.add", kind="failpoint", name="log.after-append", action="delay", delay_ms=1)
            assert client.call("rules.list", kind="failpoint")["rules"][0]["armed"] is True
            rule = client.call("rules.add", kind="response", action="lose", api_key=0, nth=2, client="orders-*")["id"]
            assert client.call("rules.list", kind="response")["rules"][0]["id"] == rule
            client.call("rules.remove", kind="response", id=rule)
            refusals = {"nonsense": "no operation", "slow": "'n' is missing", "bad": "on purpose"}
            for op, message in refusals.items():
                with pytest.raises(ClusterError, match=message):
                    client.call(op)
            with pytest.raises(ClusterError, match="direction"):
                client.call("links.block", peers=["*"], direction="up")
            assert client.call("ping")["pid"]

    def bad(_fields: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ConfigError("on purpose")

    async def main(host: RealHost) -> None:
        async def slow(fields: Mapping[str, Any]) -> Mapping[str, Any]:
            await host.tasks.sleep(0)
            return {"twice": fields["n"] * 2}

        host.control.register("state", lambda _fields: {"partitions": []})
        host.control.register("slow", slow)
        host.control.register("bad", bad)
        for line in (b"[]", b"not json", b'{"op": 5}', b"\xff"):
            assert (await host.control.answer(line))["ok"] is False
        await host.tasks.run_blocking(call_operations, str(tmp_path / "control.sock"))

    with_host(tmp_path, main)


def test_control_client_connects_to_a_path_longer_than_a_unix_address(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)

    def call_ping() -> None:
        with ControlClient(str(folder / "control.sock")) as client:
            assert client.call("ping")

    async def main(host: RealHost) -> None:
        await host.tasks.run_blocking(call_ping)

    with_host(folder, main)


def test_control_client_reconnects_to_the_next_incarnation_of_its_process(tmp_path: Path) -> None:
    client = ControlClient(str(tmp_path / "control.sock"))

    async def main(host: RealHost) -> None:
        await host.tasks.run_blocking(client.call, "ping")

    with_host(tmp_path, main)
    with_host(tmp_path, main)
    client.close()


def test_call_to_an_absent_process_names_it_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"broker-3.*is it running.*broker\.log"):
        ControlClient(str(tmp_path / "broker-3" / "control.sock")).call("ping")


def test_call_to_a_stuck_process_names_it_and_the_remedy(tmp_path: Path) -> None:
    received, release = threading.Event(), threading.Event()

    async def main(host: RealHost) -> None:
        async def stuck(_fields: Mapping[str, Any]) -> Mapping[str, Any]:
            received.set()
            await host.tasks.run_blocking(release.wait)
            return {}

        def call_stuck() -> None:
            client = ControlClient(str(tmp_path / "control.sock"), timeout_s=0.05)
            with pytest.raises(ClusterError, match="SIGSTOP"):
                client.call("stuck")
            release.set()

        host.control.register("stuck", stuck)
        await host.tasks.run_blocking(call_stuck)
        assert received.is_set()

    with_host(tmp_path, main)


def test_failed_task_is_traced_and_logged_with_its_stack(tmp_path: Path) -> None:
    async def fails() -> None:
        raise ValueError("on purpose")

    def callback_fails() -> None:
        raise ValueError("in a callback")

    async def main(host: RealHost) -> None:
        task = host.tasks.spawn(fails(), name="doomed")
        host.tasks.call_soon(callback_fails)
        while not task.done():
            await host.tasks.sleep(0)
        await host.tasks.sleep(0)

    with_host(tmp_path, main)
    events = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    failed = {e["name"]: e["error"] for e in events if e["event"] == "task.failed"}
    assert failed["doomed"] == "ValueError: on purpose"
    assert any("in a callback" in error for error in failed.values())
    log = (tmp_path / "broker.log").read_text()
    assert "Traceback" in log
    assert "raise ValueError" in log


def test_wait_that_times_out_cancels_the_promise(tmp_path: Path) -> None:
    async def main(host: RealHost) -> None:
        promise = host.tasks.promise()
        with pytest.raises(TimeoutError):
            await host.tasks.wait(promise, 5)
        assert promise.done()
        completed = host.tasks.promise()
        host.tasks.call_later(1, completed.set_result, 42)
        assert await host.tasks.wait(completed, 5000) == 42

    with_host(tmp_path, main)


def test_stop_cancels_every_task(tmp_path: Path) -> None:
    ended: list[str] = []

    async def forever(host: RealHost) -> None:
        try:
            await host.tasks.promise()
        finally:
            ended.append("cancelled")

    async def main(host: RealHost) -> None:
        host.tasks.spawn(forever(host), name="forever")
        await host.tasks.sleep(0)

    with_host(tmp_path, main)
    assert ended == ["cancelled"]
    assert not (tmp_path / "control.sock").exists()


def test_hosts_of_one_seed_draw_equal_numbers_in_each_run(tmp_path: Path) -> None:
    drawn: list[float] = []

    async def main(host: RealHost) -> None:
        drawn.append(host.random.random())

    with_host(tmp_path / "one run", main)
    with_host(tmp_path / "the next", main)
    assert drawn[0] == drawn[1]
