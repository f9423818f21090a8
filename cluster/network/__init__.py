"""Requests on links: the server side of a connection (`server.py`) and calls to other brokers (`peers.py`).

Built on the host's network and tasks alone, so it runs unchanged on a simulated host.
"""
