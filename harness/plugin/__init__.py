"""The pytest plugin: `hooks.py` is its entry point; fixtures, options, xdist workers, and what pytest shows."""
