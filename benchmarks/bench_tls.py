"""Measures TLS on our brokers beside TLS on Apache Kafka's, and PLAINTEXT before and after a change, in turns.

    python benchmarks/bench_tls.py [--messages 100000] [--rounds 3] [--before OTHER/.venv/bin/harrow] [--skip kafka]

Every cluster has three brokers, which speak TLS to each other, too; clients and brokers show certificates. For each
cluster: messages per second with acks=all and when consumed, at 1 KiB; p50 of a message with acks=all at a time; and
the CPU time of all brokers per message. All clusters run at the same time and take turns, so they are under the same
load of the machine. `--before` is the command `harrow` of another checkout: its brokers without TLS, beside those of
this checkout.

Goals: with TLS not slower than Apache Kafka with TLS; PLAINTEXT within 3 % of before. Exit code 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import load
import peers
from harrow.harness.security.certificates import CertificateAuthority
from load import Budget
from peers import Peer

STEP_S, LIMIT_S = 120.0, 1200.0
SIZE = 1024
ONE_AT_A_TIME = 300
PASSWORD = "of a benchmark"
TLS, KAFKA_TLS, AFTER, BEFORE = "harrow TLS", "kafka TLS", "PLAINTEXT now", "PLAINTEXT before"
AS_BEFORE = 0.97
RATES = ("produce, msg/s", "consume, msg/s")


class Stores:
    """Keystores and truststores in a folder."""

    def __init__(self, folder: Path) -> None:
        authority = CertificateAuthority()
        client = authority.issue("client", hosts=())
        self.brokers = {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(folder / "broker.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(folder / "trust.p12"),
            "ssl.truststore.password": PASSWORD,
            "ssl.client.auth": "required",
        }
        self.client = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(folder / "ca.pem"),
            "ssl.certificate.location": str(folder / "client.pem"),
            "ssl.key.location": str(folder / "client.key"),
        }
        (folder / "broker.p12").write_bytes(authority.issue("broker").pkcs12(PASSWORD))
        (folder / "trust.p12").write_bytes(authority.truststore(PASSWORD))
        for name, text in (("ca.pem", authority.certificate), ("client.pem", client.chain), ("client.key", client.key)):
            (folder / name).write_text(text)


@contextmanager
def ours_with_tls(stores: Stores) -> Generator[Peer]:
    """Three brokers of ours."""
    config: dict[str, object] = {**stores.brokers, "listener.security.protocol.map": "CLIENTS:SSL,BROKERS:SSL"}
    with peers.harrow(config) as peer:
        yield Peer(name=TLS, bootstrap_servers=peer.bootstrap_servers, pids=peer.pids, client=stores.client)


@contextmanager
def kafka_with_tls(stores: Stores) -> Generator[Peer]:
    """Three nodes of Apache Kafka."""
    protocols = {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"}
    names = {"inter.broker.listener.name": "PLAINTEXT"}
    with peers.apache_kafka({**stores.brokers, **protocols, **names}) as peer:
        yield Peer(name=KAFKA_TLS, bootstrap_servers=peer.bootstrap_servers, pids=peer.pids, client=stores.client)


@contextmanager
def of_command(name: str, harrow: str) -> Generator[Peer]:
    """Three brokers of a checkout, without TLS."""
    command = [harrow, "up", "--json", "--brokers", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        try:
            assert up.stdout is not None
            made = json.loads(up.stdout.readline())
            pids = {row["id"]: row["pid"] for row in made["brokers"]}
            yield Peer(name=name, bootstrap_servers=made["bootstrap_servers"], pids=pids)
        finally:
            up.terminate()


class Measured:
    """The values of each figure of each cluster."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, list[float]]] = {}

    def add(self, peer: Peer, figure: str, value: float) -> None:
        """Add a value."""
        self._values.setdefault(figure, {}).setdefault(peer.name, []).append(value)

    def middle(self, figure: str, name: str) -> float:
        """The median; 0 without values."""
        found = self._values.get(figure, {}).get(name)
        return median(found) if found else 0.0

    def report(self, names: list[str]) -> None:
        """Print the table."""
        print(f"\n{'figure':<28}" + "".join(f"{name:>20}" for name in names))
        for figure in self._values:
            print(f"{figure:<28}" + "".join(f"{self.middle(figure, name):>20,.2f}" for name in names))


def measure(peer: Peer, measured: Measured, messages: int, budget: Budget) -> None:
    """One turn of a cluster."""
    topic = load.make_topic(peer)
    before = peers.cpu_seconds(peer)
    measured.add(peer, RATES[0], load.produce(peer, topic, SIZE, messages, budget.step(STEP_S)))
    produced = peers.cpu_seconds(peer)
    measured.add(peer, "produce, broker CPU us/msg", (produced - before) / messages * 1e6)
    measured.add(peer, RATES[1], load.consume(peer, topic, budget.step(STEP_S)))
    measured.add(peer, "consume, broker CPU us/msg", (peers.cpu_seconds(peer) - produced) / messages * 1e6)
    sender = load.OneAtATime(peer.bootstrap_servers, topic, client=peer.client)
    load.repeat(sender.send, ONE_AT_A_TIME // 3, budget.step(STEP_S))
    times = load.repeat(sender.send, ONE_AT_A_TIME, budget.step(STEP_S))
    measured.add(peer, "one at a time p50, ms", load.quantile(times, 0.5))


def main() -> int:
    """Run the benchmark; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", default="")
    parser.add_argument("--skip", default="")
    options = parser.parse_args()
    budget, measured = Budget(LIMIT_S), Measured()
    with ExitStack() as stack:
        stores = Stores(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="harrow-bench-"))))
        running = [stack.enter_context(ours_with_tls(stores))]
        if "kafka" not in options.skip:
            running.append(stack.enter_context(kafka_with_tls(stores)))
        running.append(stack.enter_context(of_command(AFTER, str(Path(sys.executable).with_name("harrow")))))
        if options.before:
            running.append(stack.enter_context(of_command(BEFORE, options.before)))
        for peer in running:  # a first turn that does not count
            measure(peer, Measured(), options.messages, budget)
        for number in range(options.rounds):
            turn = number % len(running)
            for peer in [*running[turn:], *running[:turn]]:
                measure(peer, measured, options.messages, budget)
        measured.report([peer.name for peer in running])
    pairs = ((TLS, KAFKA_TLS, 1.0), (AFTER, BEFORE, AS_BEFORE))
    missed = [
        f"{figure} of {ours}: {measured.middle(figure, ours):,.0f}, of {theirs}: {measured.middle(figure, theirs):,.0f}"
        for ours, theirs, least in pairs
        for figure in RATES
        if measured.middle(figure, ours) < measured.middle(figure, theirs) * least
    ]
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
