"""Clients that log in by SASL see what they see of Apache Kafka: responses, messages, ends of connections (A5, A7).

`kafka_files/sasl.json` is what Apache Kafka 4.2 does. Its own test compares it with a node that this module starts,
because the nodes that other tests share have no SASL; `HARROW_SASL_RECORD=1` writes it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import MISSING
from free_ports import first_free
from harrow.cluster import Cluster
from kafka_reference import ADMIN_PACKAGE, TOOL
from sasl_conversations import (
    ALTERATIONS,
    CONVERSATIONS,
    SETTINGS,
    alter,
    describe,
    make_alice,
    outcomes,
    token_outcomes,
)
from waiting import until

TOOLS = "org.apache.kafka.tools"
RECORD = Path(__file__).parent / "kafka_files" / "sasl.json"
Ports = tuple[int, int]
"""Of the listener with SASL, and of one without."""
DESCRIBED = ((), ("carol",), ("carol", "dave", "carol", "zz"), ("a b/c%", ""))


PROTOCOLS = {"listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT"}


@pytest.fixture
def own_ports() -> Iterator[Ports]:
    """The ports of a cluster of Harrow's with SASL for clients."""
    with Cluster(brokers=1, config=SETTINGS | PROTOCOLS) as cluster:
        make_alice(cluster.brokers[1].port)
        yield cluster.brokers[1].port, cluster.brokers[1].listeners["BROKERS"].bind.port


@pytest.fixture
def apache_ports(tmp_path: Path) -> Iterator[Ports]:
    """The ports of a node of Apache Kafka with the same settings."""
    folder = tmp_path / "kafka"
    port = first_free(range(31_490, 32_700, 20), (1, 11, -9_999))
    listeners = f"CLIENTS://127.0.0.1:{port + 1},PLAINTEXT://127.0.0.1:{port + 11}"
    settings = SETTINGS | {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{port - 9_999}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    environment = os.environ | {"KAFKA_PORT": str(port), "KAFKA_HEAP": "256m"}
    environment["KAFKA_SET"] = "\n".join(f"{name}={value}" for name, value in settings.items())
    subprocess.run([TOOL, "up", str(folder), "1"], env=environment, check=True, capture_output=True)
    try:
        make_alice(port + 1)
        yield port + 1, port + 11
    finally:
        subprocess.run([TOOL, "down", str(folder)], check=False, capture_output=True)


def seen(ports: Ports) -> dict[str, Any]:
    """All conversations, changes of users and tokens; users are described without alice."""
    port = ports[0]
    found: dict[str, Any] = {name: outcomes(port, steps) for name, steps in CONVERSATIONS.items()}
    for name, changes in ALTERATIONS.items():
        found[name] = alter(port, *changes)
    until(lambda: "(2, 9000)" in str(describe(port, "carol")), "the broker has the last change")
    for names in DESCRIBED:
        rows = [row for row in describe(port, *names) if "alice" not in str(row)]
        found[f"described {names}"] = rows
    found |= token_outcomes(*ports)
    return dict(json.loads(json.dumps(found, default=repr)))


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_kafkas_own_tools_log_in(own_ports: Ports, tmp_path: Path) -> None:
    def tool(name: str, user: str, *arguments: str) -> str:
        module = "plain.PlainLoginModule" if user == "alice" else "scram.ScramLoginModule"
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN" if user == "alice" else "SCRAM-SHA-512",
            "sasl.jaas.config": f'org.apache.kafka.common.security.{module} required username="{user}" password="a";',
        }
        file = tmp_path / user
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [TOOL, "run", str(tmp_path), name, "--bootstrap-server", f"127.0.0.1:{own_ports[0]}"]
        done = subprocess.run(
            [*command, "--command-config", str(file), *arguments],
            env=os.environ | {"KAFKA_HEAP": "96m"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    of_user = ("--entity-type", "users", "--entity-name", "frank")
    added = ("--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=a]", *of_user)
    assert "Completed updating config for user frank" in tool(f"{ADMIN_PACKAGE}.ConfigCommand", "alice", *added)
    described = tool(f"{ADMIN_PACKAGE}.ConfigCommand", "alice", "--describe", *of_user)
    assert "SCRAM-SHA-512=iterations=8192" in described
    assert "of-frank" in tool(f"{TOOLS}.TopicCommand", "frank", "--create", "--topic", "of-frank")
    made = tool(f"{TOOLS}.DelegationTokenCommand", "frank", "--create", "--max-life-time-period", "-1")
    assert "User:frank" in made


def test_logging_in_is_as_recorded_of_kafka(own_ports: Ports) -> None:
    recorded = json.loads(RECORD.read_text())
    found = seen(own_ports)
    assert recorded.keys() == found.keys()
    assert found == recorded, {name: (found[name], recorded[name]) for name in found if found[name] != recorded[name]}


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_the_record_is_what_kafka_does(apache_ports: Ports) -> None:
    found = seen(apache_ports)
    if os.environ.get("HARROW_SASL_RECORD") == "1":
        RECORD.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(RECORD.read_text())
