"""Histories: the rows that recorders and taps append, and their layout for judging.

* `format.py`: the row of one operation, its crash-safe writer and its reader (J6);
* `tap.py`: the brokers' tap files, read into batch rows;
* `contents.py`: the contents of the final read, as Arrow files, for the promises of the application;
* `layout.py`: where the rows of each topic-partition are in the files of one run folder;
* `row_index.py`: the index files, and the rows that they name;
* `placed_rows.py`: the same rows in the order of an index, for tasks on other machines; `task_files.py`: files by URL.
"""

from .format import HistoryWriter as HistoryWriter
from .format import OperationFunction as OperationFunction
from .format import OperationType as OperationType
from .format import stable_hash as stable_hash

__all__ = ["HistoryWriter", "OperationFunction", "OperationType", "stable_hash"]
