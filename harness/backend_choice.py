"""Which backend a user chose; the backends are in `backends/kinds.py`. The plugin imports this when pytest starts."""

from __future__ import annotations

from typing import NamedTuple

LOCAL, APACHE = "local", "apache"
BACKENDS = (LOCAL, APACHE)


class BackendChoice(NamedTuple):
    """The backend of a test, and where its brokers come from."""

    name: str = LOCAL
    kafka: str = ""
    """The folder of an Apache Kafka release; empty: the environment names it (`backends/apache/installation.py`)."""


HARROWS_BROKERS = BackendChoice()
