"""The small runs that are judged when Spark has started, so that the first real verdict is fast.

During these verdicts the JVM compiles, and the Python workers import, the code that a verdict needs. Without them the
first verdict of a run would take seconds.
"""

from __future__ import annotations

from pathlib import Path

from .. import run_folder
from ..histories.format import HistoryWriter, OperationFunction, OperationType
from ..histories.recordings import recordings_of

TOPIC = "warm-up"
ROUNDS = 3


def tiny_run(folder: Path) -> None:
    """Write a run folder with a single record that was sent and read."""
    with HistoryWriter(folder / run_folder.HISTORY) as history:
        client, topic = history.name("warm-up"), history.name(TOPIC)
        history.append(OperationFunction.SEND, OperationType.OK, client, topic, 0, 0, 0, 1, 2)
    with HistoryWriter(folder / run_folder.DRAIN) as history:
        client, topic = history.name("warm-up"), history.name(TOPIC)
        history.append(OperationFunction.POLL, OperationType.OK, client, topic, 0, 0, 0, 1, 2)
        history.append(OperationFunction.BOUNDS, OperationType.OK, client, topic, 0, 1, 0)
    run_folder.write_run(
        folder, seed=0, brokers=0, config={}, log_dirs={}, started_ns=0, unrecorded=sorted(recordings_of(folder).lost)
    )
