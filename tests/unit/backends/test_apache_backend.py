"""The backend `apache` without a Kafka: finding an installation, settings of a node, and what it cannot do (J2)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from harrow.cluster.errors import ClusterError
from harrow.cluster.foreign_process import ForeignProcess
from harrow.cluster.listeners import Address
from harrow.faults.controls import AclRevocation, CertificateChange, PasswordChange
from harrow.faults.errors import CapabilityError
from harrow.faults.rule_kinds import DenialRule, HandshakeRule, LoginRule, TokenRule
from harrow.faults.system import CAPABILITIES
from harrow.harness.backends.apache.installation import KafkaInstallation, find_kafka
from harrow.harness.backends.apache.kafka_cluster import KafkaCluster
from harrow.harness.backends.apache.kafka_listeners import NodeListeners, hosts_file, listener_settings, peer_links
from harrow.harness.backends.apache.kafka_settings import node_settings, server_properties
from harrow.harness.backends.apache.system import KafkaSystem
from harrow.harness.backends.credentials import access_arms
from harrow.harness.backends.kinds import KINDS
from harrow.harness.commands.backends import command
from harrow.harness.security.choice import Security
from harrow.harness.security.cluster_security import ClusterSecurity
from waiting import until


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder like a release of Kafka, and a program like java."""
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.2.0.jar").touch()
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(0o755)
    return tmp_path


def test_a_release_is_found_by_the_option_or_by_the_environment(release: Path) -> None:
    env = {"JAVA_HOME": str(release / "jdk"), "KAFKA_HOME": str(release)}
    for folder in ("", str(release), str(release / "libs")):
        found = find_kafka(folder, env)
        assert found.version == "4.2.0"
        assert found.jars == release / "libs"
        assert found.command("kafka.Kafka", "x.properties")[-2:] == ["kafka.Kafka", "x.properties"]


@pytest.mark.parametrize(
    ("jar", "env", "message"),
    [
        ("kafka_2.13-4.2.0.jar", {}, "no Apache Kafka is named: .*--harrow-kafka=/opt/kafka or KAFKA_HOME"),
        ("other.jar", {"KAFKA_HOME": "."}, r"KAFKA_HOME=.*: no Apache Kafka there: expected libs/kafka_2\.13"),
        ("kafka_2.13-2.8.1.jar", {"KAFKA_HOME": "."}, r"Apache Kafka 2\.8\.1 is too old .* 3\.7 or later"),
        ("kafka_2.13-4.2.0.jar", {"KAFKA_HOME": ".", "PATH": "/nowhere"}, "needs Java, and there is none on the path"),
        (
            "kafka_2.13-4.2.0.jar",
            {"KAFKA_HOME": ".", "JAVA_HOME": "/nowhere"},
            "needs Java, and there is none in JAVA_HOME=/nowhere; install a JDK or JRE 17",
        ),
    ],
)
def test_what_is_missing_is_said_with_its_remedy(tmp_path: Path, jar: str, env: dict[str, str], message: str) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / jar).touch()
    here = {name: str(tmp_path) if value == "." else value for name, value in env.items()}
    with pytest.raises(CapabilityError, match=message):
        find_kafka("", here)


def test_settings_of_a_test_become_those_of_a_node() -> None:
    found = node_settings(
        {
            "min.insync.replicas": 2,
            "zookeeper.session.timeout.ms": 2000,
            "harrow.tap": True,
            "auto.create.topics.enable": False,
        }
    )
    assert found["min.insync.replicas"] == "2"
    assert found["auto.create.topics.enable"] == "false"
    assert found["broker.session.timeout.ms"] == "2000"
    assert found["broker.heartbeat.interval.ms"] == "500"
    assert not [name for name in found if name.startswith(("harrow", "zookeeper"))]
    with pytest.raises(CapabilityError, match=r"harrow\.power\.loss exists only in Harrow's own"):
        node_settings({"harrow.power.loss": True})


LISTENERS = {node: NodeListeners(*(Address("127.0.0.1", port + node) for port in (90, 70, 10))) for node in (1, 2)}


def test_a_node_is_broker_and_voter() -> None:
    named = listener_settings(2, LISTENERS, relayed=False)
    text = server_properties(2, named, Path("/data"), {"node.id": "7"})
    rows = dict(line.split("=", 1) for line in text.splitlines())
    assert rows["node.id"] == "2", "what Harrow must set has priority"
    assert rows["controller.quorum.voters"] == "1@127.0.0.1:11,2@127.0.0.1:12"
    served = "CLIENTS://127.0.0.1:92,BROKERS://127.0.0.1:72"
    assert rows["listeners"] == f"{served},CONTROLLER://127.0.0.1:12"
    assert rows["advertised.listeners"] == served


def test_nodes_reach_each_other_by_names_that_lead_to_the_proxy() -> None:
    rows = listener_settings(2, LISTENERS, relayed=True)
    served = "CLIENTS://127.0.0.1:92,BROKERS://kafka-2:72"
    assert rows["listeners"] == f"{served},CONTROLLER://kafka-2:12"
    assert rows["advertised.listeners"] == served
    assert rows["controller.quorum.voters"] == "1@kafka-1:11,2@kafka-2:12"
    rows_of_hosts = (line.split() for line in hosts_file(2, (1, 2)).splitlines())
    hosts = {name: address for address, name in rows_of_hosts}
    assert hosts["kafka-1"] == "127.77.2.1"
    assert hosts["kafka-2"] == hosts["localhost"] == "127.0.0.1", "a node reaches itself directly"
    assert [tuple(link) for link in peer_links(LISTENERS)] == [
        (source, target, (f"127.77.{source}.{target}", port), ("127.0.0.1", port))
        for source, target, port in ((2, 1, 71), (2, 1, 11), (1, 2, 72), (1, 2, 12))
    ]


def test_a_short_session_also_shortens_the_quorums_timeouts() -> None:
    usual, short = (node_settings({"zookeeper.session.timeout.ms": ms}) for ms in (3000, 500))
    name = "controller.quorum.{}.timeout.ms"
    assert [usual[name.format(what)] for what in ("fetch", "election")] == ["2000", "1000"]
    assert [short[name.format(what)] for what in ("fetch", "election")] == ["1000", "200"]


def secured_cluster(folder: Path, security: Security) -> KafkaCluster:
    """A cluster of this security that is not started, with the system's part for its credentials."""
    installation = KafkaInstallation(version="4.4.0", jars=folder, java="java")
    settings = ClusterSecurity(security, folder / "security").broker_settings
    return KafkaCluster(installation, folder=folder, brokers=1, config=settings, seed=1, relayed=False)


@pytest.mark.parametrize(
    ("security", "changes", "rules"),
    [
        (Security("sasl_ssl", acls=True), {PasswordChange, AclRevocation, CertificateChange}, {LoginRule, DenialRule}),
        (Security("sasl_plaintext:SCRAM-SHA-256"), {PasswordChange}, {LoginRule}),
        (Security("sasl_ssl:PLAIN"), {CertificateChange}, {LoginRule}),
        (Security("sasl_ssl:OAUTHBEARER"), {CertificateChange}, {LoginRule, TokenRule}),
        (Security("ssl"), {CertificateChange}, set[type]()),
        (Security("mtls", acls=True), {AclRevocation, CertificateChange}, {DenialRule}),
    ],
    ids=lambda value: str(value) if isinstance(value, Security) else "",
)
def test_what_faults_of_credentials_can_change_follows_from_the_security(
    tmp_path: Path, security: Security, changes: set[type], rules: set[type]
) -> None:
    cluster = secured_cluster(tmp_path, security)
    system = KafkaSystem(cluster)
    owner = ClusterSecurity(security, tmp_path / "security")
    system.owned_by(owner)
    assert system.credentials.kinds == changes

    def call(op: str, **fields: object) -> dict[str, Any]:
        raise AssertionError((op, fields))

    arms = access_arms(call, cluster.config)
    assert set(arms) - {HandshakeRule} == rules
    assert (HandshakeRule in arms) == (CertificateChange in changes)


def test_a_node_that_starts_again_has_none_of_the_rules_that_the_proxy_had_for_it(tmp_path: Path) -> None:
    """A later incarnation has no rule of a former one, and the proxy outlives both."""
    calls: list[tuple[str, object]] = []
    cluster: Any = secured_cluster(tmp_path, Security("sasl_ssl"))
    node = SimpleNamespace(state="dead", address=Address("127.0.0.1", 1), begun=0)
    node.begin = lambda: calls.append(("begin", None))
    cluster.brokers = {1: node}

    def control(number: int, op: str, **fields: object) -> None:
        calls.append((op, (number, fields["kind"])))

    cluster.control = control
    broker = KafkaSystem(cluster).broker(1)
    broker.process.start()
    removed = [("rules.remove", (1, kind)) for kind in ("request", "response", "access")]
    assert calls == [*removed, ("begin", None)]
    calls.clear()
    node.state = "running"
    broker.process.start()
    assert calls == [("begin", None)], "an action that has taken effect does nothing"


def test_every_backend_has_known_capabilities_only() -> None:
    for kind in KINDS.values():
        assert kind.capabilities()
        assert kind.capabilities() <= set(CAPABILITIES)
    assert KINDS["local"].capabilities() == set(CAPABILITIES)


def test_the_command_says_why_a_backend_cannot_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HARROW_KAFKA", "KAFKA_HOME"):
        monkeypatch.delenv(name, raising=False)
    shown = CliRunner().invoke(command, ["--kafka", str(tmp_path)]).output
    assert "local     Harrow's own brokers" in shown
    assert f"not here: --harrow-kafka={tmp_path}: no Apache Kafka there" in shown
    lacks = "clocks, descriptors, disk-damage, disk-delays, disk-errors, failpoints, memory, more-brokers, power-loss"
    assert f"and cannot use: {lacks}" in shown


def test_an_unusable_backend_of_the_command_line_is_an_error_and_of_a_mark_a_skip(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HARROW_KAFKA", "KAFKA_HOME"):
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.harrow(backend="apache")
        def test_on_kafka(harrow):
            harrow.topic("orders")
        """
    )
    arguments = ("-p", "no:xdist", "-p", "no:cacheprovider", "-rs")
    result = pytester.runpytest_subprocess(*arguments, "--harrow-backend=apache")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*backend apache: no Apache Kafka is named: *"])
    result = pytester.runpytest_subprocess(*arguments, "--harrow-backend=docked")
    result.stderr.fnmatch_lines(["*--harrow-backend: 'docked': expected one of local, apache, docker, external*"])
    result = pytester.runpytest_subprocess(*arguments)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*SKIPPED*no Apache Kafka is named*"])


def test_a_foreign_process_serves_when_it_says_so_and_its_output_explains_its_end(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    folder = tmp_path / "broker-1"
    sleeper = ForeignProcess("node", folder, [sys.executable, "-c", "input()"], serves=ready.exists)
    failing = ForeignProcess(
        "node", folder, [sys.executable, "-c", "print('no licence'); raise SystemExit(3)"], serves=ready.exists
    )
    with pytest.raises(ClusterError, match="node is not running"):
        sleeper.wait_ready()
    with pytest.raises(ClusterError, match=r"node did not start; see .*\n.*no licence"):
        failing.start()
    waiting = ForeignProcess("node", folder, [sys.executable, "-c", "import time; time.sleep(60)"], serves=ready.exists)
    try:
        waiting.begin()
        assert waiting.state == "starting"
        ready.touch()
        waiting.wait_ready()
        assert waiting.state == "running"
        until(lambda: os.getpgid(waiting.pid or 0) == waiting.pid, "it is in a session of its own")
        waiting.pause()
        assert waiting.state == "paused"
        waiting.resume()
        waiting.kill()
        assert waiting.state == "dead"
    finally:
        for process in (sleeper, failing, waiting):
            process.close()
    until(lambda: not waiting.alive)
