"""Histories from elsewhere: files of operations that other tools wrote, as run folders.

* `rows.py`, `edn.py`: the formats JSON lines, CSV and EDN;
* `operations.py`: the columns, Jepsen's operation maps, pairs of invocation and completion;
* `writer.py`: the run folder;
* `errors.py`: errors with the line of the file and the remedy.

The verdict is that of `harrow.harness.checks.judge`; what is judged only for such histories, because it needs all
partitions, is in `checks/imported_transactions.py`. The page of the columns: `docs/histories.md`.
"""

from __future__ import annotations
