"""Where the brokers run: each backend implements `harrow.faults.system.System`.

* `local.py`: processes of this machine (`harrow.cluster.Cluster`); `local_traffic.py`: how it notices traffic;
* `apache/`: an Apache Kafka of this machine behind the proxy; `docker/`: the same in containers;
* `external/`: a cluster that Harrow did not start, behind the proxy; `kinds.py`: the backends by name;
* `knobs.py`: what all share, the operations of a Harrow broker's host.
"""
