"""The verdict on a history from elsewhere: a file of operations becomes a run folder, which is judged as any other.

`read_history_file` reads the file (`histories/imported/`), `judge_history` writes the run folder and judges it. What
needs all partitions is found here, by `imported_transactions.py`, and kept in `run.json` under `imported`: `complete`
(the file has every send), `claims` (anomalies) and `notes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..engines import SPARK, engine_for
from ..histories.imported.operations import ReadHistory, read_operations
from ..histories.imported.rows import read_rows
from ..histories.imported.writer import write_history
from ..user_spark import chosen_engine
from ..wording import counted
from .guarantees import parse
from .imported_transactions import precommitted_reads
from .judgement import PlanCollector, judge
from .verdict import Verdict


def read_history_file(file: Path) -> ReadHistory:
    """Return the operations of a file. Raises ImportedHistoryError with the line that cannot be read."""
    return read_operations(read_rows(file), file.name)


def judge_history(
    found: ReadHistory,
    folder: Path,
    *,
    guarantee: str | None = None,
    topics: Sequence[str] = (),
    complete: bool = True,
    reads_committed: bool = True,
    spark: PlanCollector | None = None,
    engine: str = SPARK,
) -> Verdict:
    """Judge the operations of a file; `folder`, which is empty or does not exist, becomes their run folder.

    `complete`: the file has every send to its topics, so that a record which no send has written is of unknown origin.
    `reads_committed`: the readers of transactional topics read committed data. `topics`: default all. `engine`: one of
    `engines.CHOICES`. Raises ConfigError for an unknown guarantee or engine.
    """
    if guarantee is not None:
        parse(guarantee)
    choice = chosen_engine(engine, None)
    claims = precommitted_reads(found.operations) if reads_committed else []
    facts: dict[str, Any] = {
        "complete": complete,
        "reads_committed": reads_committed,
        "claims": [claim.to_json() for claim in claims],
        "notes": _notes(found.passed_over),
    }
    known = write_history(found.operations, folder, facts)
    return judge(
        folder, topics=list(topics) or known, guarantee=guarantee, spark=spark, engine=engine_for(choice, folder, known)
    )


def _notes(passed_over: dict[str, int]) -> list[str]:
    if not passed_over:
        return []
    kinds = ", ".join(sorted(passed_over))
    return [f"{counted(sum(passed_over.values()), 'row')} of other kinds were not read: {kinds}"]
