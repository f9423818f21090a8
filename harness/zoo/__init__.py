"""The zoo: how surely and how soon each bug that Kafka really had is found (M1).

bug.py           a bug with what makes it visible: application, settings, faults, and the anomalies that name it
replication.py   bugs of replication and elections
storage.py       bugs of logs, disks and reads
transactions.py  bugs of producers, transactions and groups
in_order.py      schedules of events, for real processes
catalog.py       all of them, in the order of their numbers
fewest_faults.py the schedule that found a bug, without the faults that it does not need
swarm.py         applications and settings of a search that knows nothing about the bug
trial.py         one trial: search until the planted bug is found, or until the time is used up
alarms.py        runs of the searches on brokers without a bug
real.py          runs of a trial on real processes
suite.py         a test suite of the user's against the zoo
table.py         the table, for a terminal and for a page
rates.py         detection rate with its Wilson interval, medians

The plants are in `faults/zoo/`; `harrow zoo` (`commands/zoo.py`) runs the trials and prints the table.
"""
