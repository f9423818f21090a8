"""The backend `simulated`: brokers on a virtual clock in the process of the test, beside the user's asyncio services.

    source.py    `SimulatedClusters`: makes a cluster for each `Harrow`
    cluster.py   a simulated cluster as the harness sees it (`RunningCluster`), and its files for the verdict
    requests.py  what Harrow itself asks the brokers: topics, groups, the final read
    system.py    a simulated cluster as faults see it
    nemesis.py   a schedule on virtual time
    wire.py      a small Kafka client on a simulated machine

Everything waits on virtual time: `time.sleep` and `time.monotonic` are the world's where a test is simulated
(`cluster/host/programs/process_view.py`).
"""
