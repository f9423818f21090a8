"""The Kafka protocol as bytes: API keys and their versions, headers, messages and record batches.

Owns: `Request` and `ApiTable` (a connection passes requests to handlers through them), the schemas of every
message by version, the hand-written codecs of Produce and Fetch, the inter-broker requests that the controller
sends, and record batches v2. Nothing here uses sockets, logs or the state of the cluster.
"""
