"""Searches for each wrong service of this gallery again and again, and runs many seeds of each correct twin.

    python examples/simulated_gallery/repeat.py --searches 30 --seconds 60
    python examples/simulated_gallery/repeat.py --twins 2000 --only acks_one

A search is what a user starts: `pytest FILE --harrow-seed=BASE --harrow-seeds=N --harrow-jobs=1`, with a base of its
own. It ends with the first seed that fails, or when it has used `--seconds` of CPU time of one core. A line of the
table: the pair, the searches that found an expected anomaly, the seeds that they needed (median, most), CPU seconds
(median, most), runs a second of a core, the anomalies. With `--twins`: the seeds that ran, and the alarms.

Exit code 1: a wrong service was found in less than 95 % of the searches, or a twin gave an alarm.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

GALLERY = Path(__file__).parent
STRIDE = 100_000
"""Two searches have no seed in common."""
PART = 100
"""So many seeds of a twin run in one pytest, so that an alarm does not end all of them."""
RATE = re.compile(r": (\d+) runs, (\d+) failed, (?:(\d+) not judged[^,]*, )?.*, ([\d.]+) runs a second of a core")
FAILED_SEED = re.compile(r"^seed (\d+): (.*)", re.MULTILINE)
VERDICT = re.compile(r"(?:INVALID|UNKNOWN) ([a-z-]+)")
OTHER_RUN = "the seed gave another run in another process"


@dataclass(frozen=True, slots=True)
class Search:
    """What one pytest said."""

    seed: int | None
    """The seed that failed."""
    failure: str
    runs: int
    idle: int
    """Runs that were not judged, because their faults met no operation."""
    cpu_s: float
    rate: float
    text: str


def search(name: str, twin: str, base: int, seeds: int, seconds: float | None) -> Search:
    """Run seeds of one service until the first failure, or until the CPU time is used."""
    words = [f"--harrow-seed={base}", f"--harrow-seeds={seeds}", "--harrow-jobs=1", "--harrow-shrink=0"]
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider", "-q"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        [*command, *words, "-k", f"[{twin}]", str(GALLERY / f"test_{name}.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=GALLERY.parent.parent,
        env={**os.environ, "UNMASK": "1"},
    )
    over = threading.Event()
    watch = threading.Thread(target=_end_after, args=(process, seconds, over)) if seconds else None
    if watch is not None:
        watch.start()
    text = process.communicate()[0]
    over.set()
    if watch is not None:
        watch.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rate = RATE.search(text)
    failed = FAILED_SEED.search(text)
    said = "" if failed is None else failed[2]
    found = VERDICT.search(said)
    failure = found[1] if found else said.partition(":")[0]
    runs, idle = (int(rate[1]), int(rate[3] or 0)) if rate else (0, 0)
    if failed is None and process.returncode and rate is not None:
        failure = "pytest failed"
    number = int(failed[1]) if failed else None
    return Search(number, failure, runs, idle, cpu_s, float(rate[4]) if rate else 0.0, text)


def _end_after(process: subprocess.Popen[str], seconds: float, over: threading.Event) -> None:
    """End the processes of a search when they have used so many CPU seconds."""
    while not over.wait(0.5):
        if _cpu_s(process.pid) > seconds:
            os.killpg(process.pid, 15)
            return


def _cpu_s(group: int) -> float:
    """Return the CPU seconds of all processes of a process group, with their children that ended (Linux)."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def search_wrong(name: str, searches: int, seconds: float, first: int) -> bool:
    """Search for one wrong service; print its line; return whether it was found often enough."""
    found: list[Search] = []
    rates: list[float] = []
    for number in range(first, first + searches):
        result = search(name, "wrong", (number + 1) * STRIDE, STRIDE, seconds)
        if result.rate:
            rates.append(result.rate)
        if result.seed is not None:
            found.append(result)
        if OTHER_RUN in result.text:
            print(f"{name}[wrong] seed {result.seed}: {OTHER_RUN}", flush=True)
    needed = sorted(result.seed % STRIDE + 1 for result in found if result.seed is not None)
    cpu = sorted(result.cpu_s for result in found)
    names = ", ".join(f"{what} {count}" for what, count in Counter(result.failure for result in found).most_common())
    row = f"| {name} | {len(found)}/{searches} "
    if found:
        row += f"| {statistics.median(needed):g}, {needed[-1]} | {statistics.median(cpu):.1f}, {cpu[-1]:.1f} "
        row += f"| {statistics.median(rates):.1f} | {names} |"
    print(row, flush=True)
    return len(found) >= 0.95 * searches


def run_twin(name: str, seeds: int, first: int) -> bool:
    """Run many seeds of a correct twin; print its line and its alarms; return whether there was none."""
    at, runs, idle, cpu_s, alarms = first, 0, 0, 0.0, list[str]()
    while at < first + seeds:
        end = min(at + PART - at % PART, first + seeds)
        result = search(name, "right", at, end - at, None)
        runs, idle, cpu_s = runs + result.runs, idle + result.idle, cpu_s + result.cpu_s
        at = end if result.seed is None else result.seed + 1
        if result.failure:
            again = f" ({OTHER_RUN})" if OTHER_RUN in result.text else ""
            alarms.append(f"{name}[right] seed {result.seed}: {result.failure}{again}")
            print(alarms[-1], flush=True)
    print(f"| {name} | {runs} seeds, {idle} not judged | {len(alarms)} alarms | {cpu_s:.0f} CPU s |", flush=True)
    return not alarms


def main() -> int:
    """Search, or run twins."""
    parser = argparse.ArgumentParser(description="searches of the simulated gallery")
    parser.add_argument("--searches", type=int, default=0, help="searches for each wrong service")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds of each search")
    parser.add_argument("--twins", type=int, default=0, help="seeds of each correct twin")
    parser.add_argument("--first", type=int, default=0, help="the first search, or the first seed of a twin")
    parser.add_argument("--only", action="append", help="a pair; all by default")
    given = parser.parse_args()
    names = given.only or sorted(path.stem.removeprefix("test_") for path in GALLERY.glob("test_*.py"))
    good = True
    for name in names:
        if given.searches:
            good &= search_wrong(name, given.searches, given.seconds, given.first)
        if given.twins:
            good &= run_twin(name, given.twins, given.first)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
