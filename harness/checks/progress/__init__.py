"""Standing still (L4): who made no progress although what it needed was available, and for how long after each fault.

Owns: the anomaly `stalled` and the table of faults and clients of a verdict. Sans-IO except for `reading.py`.

    spans           sets of times: sorted intervals that do not overlap, in nanoseconds of the monotonic clock
    availability    when a partition could serve, by the traces of the brokers and the faults
    memberships     when a member of a group owned a partition, when a group was rebalancing, when members had died
    transactions    what readers of committed data may read, and transactions that are decided and not completed
    activity        progress and work of each producer, group, reader and transactional id, from rows of the taps
    standstills     what kept a subject from progress; the rows of the table
    judging         the table and the anomalies of a run
    reading         the files of a run folder as the inputs of the rest
    findings        what was found
    words           the table as sentences

Definitions. A subject is a producer (a client id), a consumer group, a reader without a group, or a transactional id.

* Progress: a Produce that was acknowledged; a fetch that delivered records beyond those before; a committed offset that
  rose, below what was read; a transaction that was completed.
* Work: a record that was made and is not acknowledged yet; a record that a reader may read beyond its position, while
  it owns the partition; a transaction that is decided and not completed. A subject without work is idle, not stalled.
* Available: the partition (for a group also that of its coordinator, for a transactional id as well) has a leader that
  runs, every broker of its ISR runs, the ISR has `min.insync.replicas`, and no fault disturbs any of these brokers.
* Not counted: while a fault disturbs the application itself; while a group rebalances, which its members' timeouts
  bound (`stuck-group` judges that); while a group waits for the session timeout of a member that did not return.

`stalled`: a subject with work made no progress for longer than the bound, in one piece, while everything was available.
The bound is `recovers_within`, else `REPORTED_NS`; and at least twice what the same subject needed before any fault,
because an application that takes its time is not stalled.

What cannot be seen: a client that has all records and does not process them; a reader without a group that never reads
again, which looks the same as one that was closed; a producer whose records are never acknowledged and never
refused. Brokers whose traces are not known (every backend behind the proxy) leave availability unknown.
"""
