"""Mutants of clients on the wire: a broker or a proxy gets what a client with a bug would have sent.

    changes.py         the table: for each mutant, how a request, and its response, is changed
    changing_link.py   the changes on the links of a listener, between the link and what serves it

`HARROW_MUTANT` in the environment of a process names the mutant; `harrow mutants` sets it for a whole suite. Every
listener for clients then changes their requests, in whatever language they are written; requests of Harrow's own
clients, whose ids begin with `harrow`, and of brokers are not changed. What serves a link does not know of a mutant.
"""
