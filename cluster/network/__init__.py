"""Requests on links, on the host's network and tasks alone, so that everything here runs on a simulated host too.

socket_server.py       all listeners of a broker, and what they share
request_server.py      one listener: accepts connections
connection.py          one connection: reads requests, dispatches them, sends the responses in order
connection_quotas.py   max.connections, max.connections.per.ip
request_queue.py       queued.max.requests
peers.py               requests to other brokers
passing_end.py         one end of a connection that is passed on, for the proxy and the relay
forwarding.py          requests of operators, which other brokers send to the active controller
kazoo_link.py          a session with ZooKeeper (real threads: outside the host)
http.py                the page of metrics (real sockets: outside the host)
"""
