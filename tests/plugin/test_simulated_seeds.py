"""Searches over seeds: what is no counterexample, and what a seed's run must not depend on."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from long_runs import long_run

ALONE = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "-q", "--harrow-jobs=1", "--harrow-shrink=0")
TESTS = """
    import asyncio
    import random
    import uuid
    from os import urandom

    import pytest
    from aiokafka import AIOKafkaProducer
    from harrow import Harrow, kill

    NAME, RANDOM = uuid.uuid4().hex, random.Random()

    async def place(servers, pause_s):
        async with AIOKafkaProducer(bootstrap_servers=servers, client_id=NAME, enable_idempotence=True) as producer:
            for _ in range(3):
                await producer.send_and_wait("orders", f"{RANDOM.random()} {urandom(4).hex()}".encode())
                await asyncio.sleep(pause_s)

    @pytest.mark.harrow(backend="simulated", seeds=4)
    async def test_faults_may_meet_nothing(harrow: Harrow):
        orders = harrow.topic("orders", partitions=1)
        await place(harrow.bootstrap_servers, 0.2)
        async with harrow.chaos(kill(1, seconds=0.1)):
            await place(harrow.bootstrap_servers, 0.3)
        harrow.verify(orders)

    @pytest.mark.harrow(backend="simulated", seeds=2)
    async def test_no_fault_meets_anything(harrow: Harrow):
        orders = harrow.topic("orders", partitions=1)
        async with harrow.chaos(kill(1, seconds=0.05)):
            await place(harrow.bootstrap_servers, 0)
            await asyncio.sleep(1)
        harrow.verify(orders)

    @pytest.mark.harrow(backend="simulated", seeds=1)
    async def test_fails_under_faults(harrow: Harrow):
        harrow.topic("orders", partitions=1)
        async with harrow.chaos(kill(1, seconds=0.05)):
            await place(harrow.bootstrap_servers, 0.05)
        assert not harrow.schedule.steps
"""


def test_idle_seeds_are_counted_and_a_seed_is_the_same_run_in_another_process(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess(*ALONE, "--harrow-seed=1")
    text = result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "*test_faults_may_meet_nothing: 4 runs, 0 failed, *",
            "*test_no_fault_meets_anything: 2 runs, 0 failed, 2 not judged because faults met no operation, *",
            "*test_fails_under_faults: 1 runs, 1 failed, *",
        ]
    )
    assert "no seed was judged: the faults of each met no operation" in text
    assert "another run in another process" not in text
    result.assert_outcomes(passed=1, failed=2)


HASHES = """
    import hashlib
    from harrow.harness.plugin import simulation_server

    made = simulation_server._result

    def result(item, seed, reports, process):
        with open("traces", "a") as file:
            digest = hashlib.sha256(process.world.trace.text().encode()).hexdigest()
            file.write(f"{item.name} {seed} {digest}\\n")
        return made(item, seed, reports, process)

    simulation_server._result = result
"""


def other_interpreters() -> list[Path]:
    """Return interpreters of this minor version and of another patch version."""
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    places = [Path(f"/usr/bin/python{minor}"), Path(f"/usr/local/bin/python{minor}")]
    places += sorted(Path.home().glob(f".pyenv/versions/{minor}.*/bin/python"))
    found: list[Path] = []
    for place in filter(Path.exists, places):
        command = [str(place), "-c", "import sys; print(sys.version)"]
        said = subprocess.run(command, check=True, capture_output=True, text=True)
        if said.stdout.strip() != sys.version:
            found.append(place)
    return found


@long_run
def test_another_patch_version_of_python_gives_the_same_runs(pytester: pytest.Pytester) -> None:
    others = other_interpreters()
    if not others:
        pytest.skip(f"there is no other Python {sys.version_info[0]}.{sys.version_info[1]} than {sys.version}")
    pytester.makepyfile(TESTS)
    pytester.makeconftest(HASHES)
    paths = [sysconfig.get_path("purelib"), str(Path(__file__).parents[2] / ".typing")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    traces: list[str] = []
    for python in (sys.executable, str(others[0])):
        command = [python, "-m", "pytest", *ALONE, "--harrow-seed=1"]
        ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        assert "2 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
        traces.append((pytester.path / "traces").read_text())
        (pytester.path / "traces").unlink()
    assert traces[0].count("test_faults_may_meet_nothing") == 5, traces[0]
    assert traces[0] == traces[1]
