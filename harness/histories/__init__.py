"""Histories: the rows that recorders and taps append, and their layout for judging.

* `format.py`: the row of one operation, its crash-safe writer and its reader (J6);
* `tap.py`: the brokers' tap files, read into batch rows;
* `contents.py`: the contents of the final read, as Arrow files, for the promises of the application;
* `layout.py`: everything of one run folder rewritten as Parquet, one folder a topic-partition.
"""

from .format import HistoryWriter as HistoryWriter
from .format import OperationFunction as OperationFunction
from .format import OperationType as OperationType
from .format import stable_hash as stable_hash

__all__ = ["HistoryWriter", "OperationFunction", "OperationType", "stable_hash"]
