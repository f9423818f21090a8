"""Takes the smallest failure of each wrong service of this gallery to real brokers, and counts how often it comes back.

    python examples/simulated_gallery/on_processes.py --backend local --repeats 5
    python examples/simulated_gallery/on_processes.py --backend apache --repeats 3 --twins 1    # KAFKA_HOME says where

First each pair's search runs in the simulation, unless the folder `--schedules` has its schedule from before. Then the
test runs with these faults on the backend, with the wrong service and with its correct twin. A line of the
table: the pair, the faults, in how many runs the failure came back (what the pair is to be found with), all failures by
name, and the alarms of the twin.

Exit code 1: a twin gave an alarm.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

GALLERY = Path(__file__).parent
ROOT = GALLERY.parent.parent
SCHEDULE = re.compile(r"^repeat the smallest run with: .*--harrow-schedule=(\S+)", re.MULTILINE)
CAME_BACK = re.compile(r"came back in \d+ of \d+ runs[^:;]*(?:: (.*))?; \d+ passed")
FAILURE = re.compile(r"(\d+) (\D+?)(?=, \d|$)")
FINDS = re.compile(r'finds="([^"]+)"')


def pytest(name: str, twin: str, *options: str) -> str:
    """Run one test of a pair; return what pytest prints."""
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider", "-q"]
    command += [*options, "-k", f"[{twin}", str(GALLERY / f"test_{name}.py")]
    environment = {**os.environ, "UNMASK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    return done.stdout + done.stderr


def schedule_of(name: str, folder: Path, seed: int) -> Path | None:
    """Return the file with the smallest failure of a wrong service; None where the search did not find it."""
    kept = folder / f"{name}.json"
    if not kept.exists():
        found = SCHEDULE.search(pytest(name, "wrong", f"--harrow-seed={seed}", "--harrow-jobs=1"))
        if found is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / found[1], kept)
    return kept


def on_processes(name: str, twin: str, schedule: Path, backend: str, repeats: int) -> tuple[int, str]:
    """Return in how many runs a test failed as its pair is to be found, and all failures by name.

    Of a correct twin each failure counts.
    """
    options = [f"--harrow-backend={backend}", f"--harrow-schedule={schedule}", "--harrow-engine=inline"]
    text = pytest(name, twin, *options, f"--harrow-repeat={max(2, repeats)}", "--harrow-seed=1")
    found = CAME_BACK.search(text)
    if found is None:
        sys.exit(f"{name}[{twin}] did not run:\n{text[-3000:]}")
    failures = found[1] or ""
    wanted = set(FINDS.findall((GALLERY / f"test_{name}.py").read_text())[0].split(", "))
    counts = [(int(count), set(names.split(", "))) for count, names in FAILURE.findall(failures)]
    return sum(count for count, names in counts if twin == "right" or names & wanted), failures


def faults_of(schedule: Path) -> str:
    """Return the faults of a schedule, and the sizes that are smaller than the test says."""
    row = json.loads(schedule.read_text())
    faults = ", ".join(f"`{step['fault']['name']}`" for step in row["steps"])
    sizes = ", ".join(f"{size} {what}" for what, size in row["run"].get("sizes", {}).items())
    return f"{faults}; {sizes}" if sizes else faults


def main() -> int:
    """Run the pairs."""
    parser = argparse.ArgumentParser(description="the findings of the simulated gallery on real brokers")
    parser.add_argument("--backend", default="local")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each wrong service, at least 2")
    parser.add_argument("--twins", type=int, default=2, help="runs of each correct twin, at least 2; 0: none")
    parser.add_argument("--schedules", type=Path, default=ROOT / "harrow-out" / "gallery-schedules")
    parser.add_argument("--seed", type=int, default=1, help="the first seed of each search")
    parser.add_argument("--only", action="append", help="a pair; all by default")
    given = parser.parse_args()
    names = given.only or sorted(path.stem.removeprefix("test_") for path in GALLERY.glob("test_*.py"))
    alarms = 0
    for name in names:
        schedule = schedule_of(name, given.schedules.absolute(), given.seed)
        if schedule is None:
            print(f"| {name} | not found in the simulation |", flush=True)
            continue
        row = f"| {name} | {faults_of(schedule)} "
        if given.repeats:
            count, failures = on_processes(name, "wrong", schedule, given.backend, given.repeats)
            row += f"| {count}/{given.repeats} | {failures} "
        if given.twins:
            count, failures = on_processes(name, "right", schedule, given.backend, given.twins)
            row += f"| {count}/{given.twins} alarms {failures} "
            alarms += count
        print(f"{row}|", flush=True)
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
