"""What the application promised: records by the user's own ids, and pipelines from a topic to a sink (L5).

`checks/` judges whether the brokers and clients kept Kafka's guarantees. This room judges whether the **application**
kept its own: every order that it believes to have placed is in the topic once, and every bill follows from an order.

The values that a user gives:

* `checks/record.py`: `Record`, the record that every function of the user receives;
* `record_ids.py`: `record_id=` and `order_key=`, by which the application recognises and orders records;
* `expectations.py`: `expected=`, what the application believes that it did;
* `relations.py`: `identity`, `mapped`, `filtered`, `flat_mapped`, `folded`, `windowed`: what an input requires;
* `sinks.py`: where a pipeline's output is: a topic, `table(…)`, `files(…)`, a frame, any iterable; `sink_tables.py` and
  `sink_files.py` read them, `sink_rows.py` writes their rows for the tasks.

How they are judged. Records with the same id may lie in any partition of any topic, so they are joined on Spark, by
hash of the id, in two stages (`join.py`). Both stages run in Spark's tasks; nothing is collected except counts and the
first anomalies of each name:

    contents of the final read, rows of a sink        (`histories/contents.py`; Arrow files, bounded chunks)
      stage 1, a *mapper* for each chunk              decode, apply the user's functions, compute id and hash
      shuffle by the hash
      stage 2, a *reducer* for each set of hashes     compare all records of an id

For a pipeline, `pairing.py` says which output belongs to which input, `shapes.py` how an expected output is compared
with an actual one, and `output_times.py` with `histories/commits.py` when outputs were acknowledged and offsets
committed. `pipeline_promise.py` checks the arguments and runs the join (`pipeline_join.py`); `pipeline_results.py` and
`pipeline_words.py` make the verdict's part of what the tasks found.

A join of few rows is one task without shuffle. Functions of the user travel by value (`by_value.py`).

Topics: `topic_promise.py` checks the arguments of `verify` and plans the join, `topic_rows.py` is its mapper,
`topic_checks.py` its reducers; `topic_results.py` merges their results into findings (`checks/promise_findings.py`),
and `topic_words.py` says them in the user's words. The reducers of pipelines are in `pipeline_checks.py` (outputs that
depend on one input), `keyed_checks.py` (states: `folded`, `windowed`) and `pipeline_order.py`. Each check has a plain
oracle (`tests/support/oracle_of_*.py`) and a property test against it. A function of the user that raises makes the
verdict unknown, and the reason shows the exception and the record.

Retry topics and dead letters of a pipeline: `retries.py` checks the arguments and reads headers, `retry_columns.py`
adds columns to the mapper's rows, `retry_checks.py` (dead letters) and `attempt_rules.py` (attempts) are the rules for
an id; `retry_results.py` has the doubts, `retry_words.py`
the words.

Anomalies on a topic: `missing`, `unexpected`, `duplicate`, `out-of-order`, `split-key`. On a pipeline:
`missing-output`, `duplicate-output`, `unexpected-output`, `wrong-output`, `out-of-order-output`,
`commit-before-output`; with retries `output-and-dead-letter`, `dead-letter-without-reason`, `too-many-attempts`,
`attempt-before-due`, `due-out-of-order`. What each guarantee forbids is in `checks/guarantees.py`.
"""
