"""SASL on simulated machines: brokers and clients log in, one seed gives one trace, and guarantees hold (A5, C1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from harrow.cluster.errors import ClusterError
from harrow.cluster.ids import NodeId
from harrow.cluster.network.peers import PeerClient
from harrow.cluster.ports import LOOPBACK
from harrow.cluster.security.sasl.mechanisms import PeerLogin
from harrow.cluster.security.sasl.scram import ScramClient, ScramMechanism, nonce_of
from harrow.cluster.simulation import CLIENT_PORTS, SimulatedCluster
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.harness.simulation import SimulationOptions, run_seed
from long_runs import some

SECURITY = "org.apache.kafka.common.security"
MODULES = {
    "PLAIN": 'plain.PlainLoginModule required username="kafka" password="k" user_kafka="k";',
    "SCRAM-SHA-256": 'scram.ScramLoginModule required username="kafka" password="k";',
    "OAUTHBEARER": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="kafka";',
}


def settings(mechanism: str, *, clients: str = "PLAINTEXT", password: str = "k") -> dict[str, object]:
    """Brokers log in by a mechanism, and again several times in a run."""
    entry = f"{SECURITY}.{MODULES[mechanism]}"
    return {
        "listener.security.protocol.map": f"CLIENTS:{clients},BROKERS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"listener.name.brokers.{mechanism.lower()}.sasl.jaas.config": entry,
        f"listener.name.clients.{mechanism.lower()}.sasl.jaas.config": entry,
        "listener.name.brokers.connections.max.reauth.ms": 700,
        "harrow.scram.users": f"SCRAM-SHA-256=[name=kafka,password={password}]",
    }


@pytest.mark.parametrize("mechanism", MODULES)
@pytest.mark.parametrize("seed", some((1, 2, 3, 4), suite=1))
def test_brokers_that_log_in_keep_every_promise_under_faults(mechanism: str, seed: int) -> None:
    options = SimulationOptions(seconds=4.0, batches=45, config=settings(mechanism))
    found = run_seed(seed, options, keep_trace=True)
    assert not found.anomalies
    assert run_seed(seed, options, keep_trace=True).trace == found.trace
    assert run_seed(seed, replace(options, config={}), keep_trace=True).trace != found.trace


def test_brokers_with_a_wrong_password_do_not_become_a_cluster() -> None:
    with (
        SimulatedCluster(brokers=2, config=settings("SCRAM-SHA-256", password="other")) as cluster,
        pytest.raises(ClusterError, match="did not start"),
    ):
        cluster.start(20_000)


def test_a_client_on_a_simulated_machine_logs_in() -> None:
    with SimulatedCluster(brokers=1, config=settings("SCRAM-SHA-256", clients="SASL_PLAINTEXT")) as cluster:
        cluster.start()
        host = cluster.client("app")
        login = PeerLogin(
            mechanism="SCRAM-SHA-256",
            user="kafka",
            client=lambda: ScramClient(ScramMechanism.SHA_256, "kafka", "k", nonce_of(host.random)),
        )
        client = PeerClient(host, NodeId(9), NodeId(1), LOOPBACK, CLIENT_PORTS + 1, login=login)
        found: list[Any] = []

        async def ask() -> None:
            s = messages.schema(ApiKey.METADATA, 12, "request")
            found.append(await client.request(ApiKey.METADATA, 12, s.MetadataRequest(topics=()), 5_000))

        host.tasks.spawn(ask(), name="ask")
        assert cluster.run_until(lambda: bool(found), 10_000)
        assert [row.node_id for row in found[0].brokers] == [1]
