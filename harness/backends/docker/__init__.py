"""The backend `docker`: containers that Harrow starts, of an image with Apache Kafka or with Harrow's own brokers (J2).

    daemon.py             the Docker daemon and the image, or why they cannot be used; the labels of Harrow's containers
    containers.py         what the containers of one cluster have in common: image, labels, guard
    guard.py              a process that removes the containers when the process that started them ends
    node.py               one container, handled as a process
    docker_cluster.py     Apache Kafka: the cluster of the backend `apache`, with containers in place of processes
    harrow_containers.py  Harrow's brokers: the cluster of the backend `local`, with containers in place of processes
    source.py             a source of such clusters for `Harrow`

The containers have the network of this machine, and the cluster's folder at the same path: a node is configured,
reached and judged as a process of the other backend. The packages come with the extra `pytest-harrow[docker]`.
"""
