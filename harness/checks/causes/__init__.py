"""One line of cause for each kind of anomaly: which fault, which broker and which setting led to it.

* `evidence.py`: `RunEvidence`, what the run recorded; `recorded.py` reads it from the run folder;
* `rules.py`: the rule of each kind; the rules are in `losses.py`, `duplicates.py`, `unacknowledged.py`,
  `commits.py`, `transactions.py` and `groups.py`, those about retry topics in `retries.py`;
* `client_requests.py`: what a client did last and what it repeated, where something is missing or waits;
* `busy_machine.py`: records that were refused because of the machine, and not of a fault;
* `programs.py`: programs of the test that had died, the first line of every cause;
* `dependencies.py`: what faults did to what stands beside the brokers;
* `faults.py`: what a fault did to a broker, in words.

The facts: acknowledged batches that no log has, and the requests that appended a record twice (`kernels/evidence.py`,
from taps and logs); faults (`faults.jsonl`); leaders, ISRs, truncations and states of groups (traces); refused Produce
requests (taps); errors of delivery reports (histories); commits (rows of an anomaly).
"""
