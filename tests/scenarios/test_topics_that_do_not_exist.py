"""A verdict on a topic that does not exist, and a service that writes elsewhere, on real brokers (J7)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harrow import Harrow
from harrow.cluster.errors import ConfigError
from harrow.harness.verdict.other_topics import elsewhere


def test_a_misspelt_topic_is_an_error_at_once_and_starts_no_spark(tmp_path: Path) -> None:
    def no_spark() -> None:
        raise AssertionError("Spark was started")

    config = {"auto.create.topics.enable": False}
    with Harrow(tmp_path / "run", brokers=1, config=config, spark=no_spark) as harrow:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - never used
        harrow.topic("orders")
        harrow.topic("bills")
        settings = {"client.id": "shop", "log_level": 0, "topic.metadata.propagation.max.ms": 500}
        service = Producer({"bootstrap.servers": harrow.bootstrap_servers, **settings})
        service.produce("bills", b"1")
        service.produce("order", b"1")
        service.poll(0)
        began = time.monotonic()
        with pytest.raises(ConfigError, match=r"no topic 'ordres'; did you mean 'orders'"):
            harrow.verify("ordres")
        assert time.monotonic() - began < 5
        service.flush(10)
        assert elsewhere(harrow.cluster, ["orders"]) == (
            "nothing was written to orders; records are in bills (1 offset); clients asked for topics that do not "
            "exist: 'order' (shop)"
        )
