"""The backend `apache`: an Apache Kafka installation on this machine, started by Harrow (J2).

    installation.py    where Kafka and Java are, or why the backend cannot be used here
    kafka_cluster.py   the cluster: KRaft nodes as processes, Harrow's proxy before them
    kafka_security.py  what clients need to log in: TLS at the proxy, SASL and ACLs of Kafka
    kafka_listeners.py where each node listens, and how the nodes reach each other through the proxy
    kafka_node.py      one node as a process
    kafka_views.py     the state of the cluster, asked by Kafka's own requests
    kafka_settings.py  the settings of a test as a node's server.properties
    system.py          the cluster as faults see it
    source.py          a source of such clusters for `Harrow`

Clients reach the brokers through the proxy (`cluster/proxy/`), which writes the history and injects the faults of links
and requests, and so do the nodes each other. Harrow asks the brokers directly.
"""
