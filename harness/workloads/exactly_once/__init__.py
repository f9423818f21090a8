"""A consume-transform-produce job in several processes under faults (`harrow chaos --variant exactly-once`).

`job.py` is the program of one process, `job_processes.py` starts, kills and replaces the processes, `end_state.py` says
what a transaction left behind, and `workload.py` runs everything and judges it: the output has each input exactly once,
no transaction is open, and the last stable offset of each partition is its high watermark.
"""

from .workload import CONFIG, GROUP, PROCESSES, TransformWorkload, bill_of

__all__ = ["CONFIG", "GROUP", "PROCESSES", "TransformWorkload", "bill_of"]
