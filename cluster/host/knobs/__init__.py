"""What a fault can change on a host: links, responses, requests, disk errors, failpoints; and the control socket.

The real host and the simulated host use the same rules. Broker code does not import this room: it reaches a
failpoint through `Host.failpoints`.
"""
