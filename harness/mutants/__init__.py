"""Mutants of a service's clients: how many of the bugs that lose or double records would a suite notice?

    catalogue.py   the mutants: what each does, which guarantees it breaks, and which faults show it
    score.py       from a run of the suite without a mutant and one with each: killed by which tests, or why not
    injected/      mutants inside of a Python client, put into every Python process of the suite

Mutants on the wire are in `cluster/mutants/`: brokers and proxies change what clients send. What a run says of its
mutant is a row of `harness/mutant_rows.py`. The command is `harness/commands/mutants.py`.
"""
