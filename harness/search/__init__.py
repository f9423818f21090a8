"""The search for failures: a failing schedule made as small as possible (K9).

shrinking.py   the algorithm, for any way of running a candidate
simulated.py   candidates as simulations: exact, a second each
pasted.py      a schedule as the Python text of a test
"""
