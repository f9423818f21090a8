"""The backend `external`: brokers that Harrow did not start, known by a bootstrap address (J2).

    bootstrap.py         the brokers behind the address, or why they cannot be used
    external_cluster.py  the cluster: the proxy before these brokers, and the topics that Harrow created
    leader_logs.py       what the leaders return of their logs, copied into the run folder
    broker_settings.py   the settings of the brokers, compared with those that a test asks for
    system.py            the cluster as faults see it
    source.py            a source of such clusters for `Harrow`

Clients reach the brokers through the proxy (`cluster/proxy/`), which writes the history and injects the faults of links
and requests. Harrow starts and stops no broker, and deletes no topic that it did not create.
"""
