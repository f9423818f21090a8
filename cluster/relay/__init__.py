"""A relay in front of one TCP service that is not Kafka: what stands beside the brokers, such as Redis or PostgreSQL.

`process.py` has its process: the listener, a connection to the service for each one that it accepts, and how bytes and
ends of input pass between the two links of a connection.

The relay knows no protocol: it passes bytes, in order, each direction for itself. Faults set the rules of links of its
host, as of a broker's.
"""
