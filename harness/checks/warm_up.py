"""One small verdict at the server's start, so that nobody's first is slow: `python -m … REMOTE FOLDER`.

The JVM compiles and the Python workers import what a verdict needs; the first one would take seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .. import run_folder
from ..histories.format import HistoryWriter, OperationFunction, OperationType
from .judgement import judge
from .spark_client import SparkHandle

TOPIC = "warm-up"
ROUNDS = 8


def tiny_run(folder: Path) -> None:
    """A run folder of one record, sent and read."""
    with HistoryWriter(folder / run_folder.HISTORY) as history:
        client, topic = history.name("warm-up"), history.name(TOPIC)
        history.append(OperationFunction.SEND, OperationType.OK, client, topic, 0, 0, 0, 1, 2)
    with HistoryWriter(folder / run_folder.DRAIN) as history:
        client, topic = history.name("warm-up"), history.name(TOPIC)
        history.append(OperationFunction.POLL, OperationType.OK, client, topic, 0, 0, 0, 1, 2)
        history.append(OperationFunction.BOUNDS, OperationType.OK, client, topic, 0, 1, 0)


def main(remote: str, scratch: str) -> None:
    """Judge a tiny run a few times."""
    spark = SparkHandle(scratch, remote=remote)
    for number in range(ROUNDS):
        folder = Path(scratch) / f"warm-up-{number}"
        tiny_run(folder)
        judge(folder, topics=[TOPIC], spark=spark)
    spark.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
