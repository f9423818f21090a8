"""The Kafka protocol as bytes: which API at which versions, headers, messages, record batches.

Owns: `Request` and `ApiTable` (what a connection hands to a handler), the schemas of every message by
version, the hand-written codecs of Produce and Fetch, the internal requests of the controller, and record
batches v2. Knows nothing of sockets, logs or clusters.
"""
