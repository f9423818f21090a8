"""The search for failures: which runs are tried, and a failing schedule made as small as possible (K9).

guided.py      a search that mutates the schedules of runs which reached something new
coverage.py    what a run reached, from its trace
mutations.py   from one schedule to another
shrinking.py   the algorithm, for any way of running a candidate
simulated.py   candidates as simulations: exact, a second each
pasted.py      a schedule as the Python text of a test
"""
