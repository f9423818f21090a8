"""`harrow.chaos(…)`: the plan of a block of faults, and the block."""
