"""The zoo: how surely and how soon each bug that Kafka really had is found (M1).

directed.py      runs with the faults that a bug needs, by time or by event; the same run without the bug
catalog.py       all bugs, in the order of their numbers
fewest_faults.py the schedule that found a bug, without the faults that it does not need
swarm.py         applications and settings of a search that knows nothing about the bug
trial.py         one trial: search until the planted bug is found, or until the time is used up
alarms.py        runs of the searches on brokers without a bug
real.py          runs of a trial on real processes
suite.py         a test suite of the user's against the zoo
table.py         the table, for a terminal and for a page: detection rates with Wilson intervals, medians

The bugs are in `faults/zoo/`, one file each; `harrow zoo` (`commands/zoo.py`) runs the trials and prints the table.
"""
