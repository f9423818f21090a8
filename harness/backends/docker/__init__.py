"""The backend `docker`: an image with Apache Kafka, whose nodes are containers that Harrow starts (J2).

    daemon.py          the Docker daemon and the image, or why they cannot be used; the labels of Harrow's containers
    guard.py           a process that removes the containers when the process that started them ends
    node.py            one container, handled as a process
    docker_cluster.py  the cluster: that of the backend `apache`, with containers in place of processes
    source.py          a source of such clusters for `Harrow`

The containers have the network of this machine, and the cluster's folder at the same path: a node is configured,
reached and judged as a process of the backend `apache`. The packages come with the extra `pytest-harrow[docker]`.
"""
