"""The requests that the release of Apache Kafka which judges lists to a client: API key -> (first, last version).

`kafka_releases.py` asked brokers of each release; `test_api_versions_as_kafka.py` asks a live one again.
"""

from __future__ import annotations

from harrow.cluster.wire.release_table import RELEASES
from kafka_reference import RELEASE

KAFKA_VERSIONS = dict(RELEASES[RELEASE].apis)
