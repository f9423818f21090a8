"""Judges small runs when the server starts, so that the first real verdict is fast: `python -m … REMOTE FOLDER`.

During these verdicts the JVM compiles, and the Python workers import, the code that a verdict needs. Without them the
first verdict of a run would take seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..histories.format import HistoryWriter, Kind, Outcome
from .judgement import judge
from .spark_client import SparkHandle

TOPIC = "warm-up"
ROUNDS = 8


def tiny_run(folder: Path) -> None:
    """Write a run folder with a single record that was sent and read."""
    with HistoryWriter(folder / "history") as history:
        client, topic = history.name("warm-up"), history.name(TOPIC)
        history.append(Kind.SEND, Outcome.OK, client, topic, 0, 0, 0, 1, 2)
    with HistoryWriter(folder / "drain") as history:
        client, topic = history.name("warm-up"), history.name(TOPIC)
        history.append(Kind.POLL, Outcome.OK, client, topic, 0, 0, 0, 1, 2)
        history.append(Kind.BOUNDS, Outcome.OK, client, topic, 0, 1, 0)


def main(remote: str, scratch: str) -> None:
    """Judge a small run `ROUNDS` times."""
    spark = SparkHandle(scratch, remote=remote)
    for number in range(ROUNDS):
        folder = Path(scratch) / f"warm-up-{number}"
        tiny_run(folder)
        judge(folder, topics=[TOPIC], spark=spark)
    spark.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
