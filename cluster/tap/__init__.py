"""The tap: what responses acknowledged, delivered and decided, written while it happens (J6): `Tap` of the seam.

`layouts.py` has every row, for who writes and who reads; `recorder.py` is the tap of a process; each other file writes
the rows of one subject. The room is above `wire`, because a row of a batch has fields of the batch's header.
"""
