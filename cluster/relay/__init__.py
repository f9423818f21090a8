"""A relay in front of one TCP service that is not Kafka: what stands beside the brokers, such as Redis or PostgreSQL.

    process.py   the relay's process: its listener, and a connection to the service for each one that it accepts
    ends.py      the two links of one connection, and how bytes and ends of input pass between them

The relay knows no protocol: it passes bytes, in order, each direction for itself. Faults set the rules of links of its
host, as of a broker's.
"""
