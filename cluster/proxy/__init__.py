"""The proxy in front of foreign brokers: faults of links and requests, and the tap, for any Kafka cluster (J6).

A process of its own, without root. It has one host for each foreign broker (`broker_proxy.py`), with the folder, the
control socket, the trace and the tap of a broker of Harrow's, so that faults, histories and verdicts need no second
form. Clients connect to a port of this machine; each of their connections has one connection to the foreign broker.

process.py        all brokers of one proxy, also those that appear later
broker_proxy.py   one broker: its port, which is open while the broker accepts connections
connection.py     one connection of a client and its connection to the broker: requests and responses in order
pending.py        the requests of one connection that have no response yet
apis.py           which APIs and versions pass; the ApiVersions response
addresses.py      brokers' addresses in responses, replaced by the proxy's
machine.py        what the proxy needs of the machine beside the seam

TLS of clients ends here, with a keystore that the options name; without one, and on the ports of Harrow's own clients,
only plain Kafka passes, and a connection that begins otherwise is closed with a line in the log. SASL passes from
SaslHandshake v1 on: each client logs in at its broker, on the connection that belongs to its own.
`harrow.cluster.proxy_supervisor` starts the process.
"""
