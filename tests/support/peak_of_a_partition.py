"""Judges one partition of a run in a process of its own, and prints its rows and the peak of its memory.

    python peak_of_a_partition.py FOLDER TOPIC PARTITION

Only anonymous memory counts: the pages of the mapped history are the page cache's, which the kernel can take back. A
thread samples it: numpy and polars let go of the interpreter's lock while they work.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from harrow.harness.checks.judged_run import RunToJudge
from harrow.harness.checks.kernels import judge_partition
from harrow.harness.checks.partition_jobs import plan_jobs
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.histories.layout import lay_out

SAMPLE_S = 0.0005


def anonymous_bytes() -> int:
    """Return the anonymous memory that the process has in use."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("/proc/self/status has no RssAnon")


def main() -> None:
    folder, topic, partition = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    layout = lay_out(folder, [topic])
    jobs, _ = plan_jobs(RunToJudge.read(folder, layout, [topic]), None, 20)
    (job,) = (job for job in jobs if job.partition == partition)
    judge_partition(PartitionJob(topic=topic, partition=partition))  # what the code itself needs
    before = anonymous_bytes()
    peak, ended = [before], threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_S):
            peak[0] = max(peak[0], anonymous_bytes())

    sampler = threading.Thread(target=sample)
    sampler.start()
    result = judge_partition(job)
    ended.set()
    sampler.join()
    assert not result.unknown, result.unknown
    print(sum(part.rows for part in job.ops), max(peak[0], anonymous_bytes()) - before)


if __name__ == "__main__":
    main()
