"""Kafka's own Java tools reach a secured cluster with the settings of `client_config(user, library="java")` (A5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from apache_kafka import MISSING
from harrow import Harrow, Security
from kafka_tools import Tools, ToolsJvm

PROTOCOLS = ("ssl", "mtls", "sasl_plaintext:PLAIN", "sasl_ssl")


def written(settings: dict[str, str], path: Path) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "")
@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(text, marks=pytest.mark.harrow(security=Security(text, acls=text == "sasl_ssl"), brokers=1))
        for text in PROTOCOLS
    ],
)
def test_kafkas_consumer_reads_with_the_settings_for_java(
    harrow: Harrow, tools_jvm: ToolsJvm, tmp_path: Path, protocol: str
) -> None:
    orders = harrow.topic("orders")
    if harrow.client_config().get("sasl.mechanism") == "SCRAM-SHA-512":
        harrow.allow("app", "WRITE", orders)
        harrow.allow("java", "READ", orders)
        harrow.allow("java", "READ", group="java")
    producer = harrow.producer()
    for number in range(20):
        producer.produce(orders.name, f"{protocol} {number}")
    assert producer.flush(20) == 0

    tools = Tools(tools_jvm, {node: broker.port for node, broker in harrow.cluster.brokers.items()})
    settings = harrow.client_config("java", library="java")
    arguments = ("--topic", orders.name, "--group", "java", "--from-beginning", "--max-messages", "20")
    config = written(settings, tmp_path / "java.properties")
    result = tools.run("ConsoleConsumer", *arguments, "--timeout-ms", "30000", "--command-config", config)
    assert result.succeeded().out.splitlines() == [f"{protocol} {number}" for number in range(20)]
    harrow.verify(orders, guarantee="no-loss")
