"""`Harrow` shows what a test needs; what only the plugin needs is in the run behind it (J1)."""

from __future__ import annotations

from pathlib import Path

from harrow import Harrow
from harrow.harness.run.harrow import run_of

SHOWN = {
    "cluster": {"backend", "bootstrap_servers", "brokers", "cluster", "close", "folder", "seed", "topic"},
    "clients": {"aiokafka", "allow", "client_config", "consumer", "kafka_python", "producer"},
    "beside the brokers": {"allow_outside", "dependency", "program", "start"},
    "values": {"faker", "random", "up_to", "values"},
    "waits": {"aio", "await_assigned", "await_caught_up", "await_leader", "await_records", "await_request"},
    "faults": {"chaos", "schedule", "schedules"},
    "verdicts": {"repeat", "verdicts", "verify", "verify_pipeline"},
}


def test_the_public_names_are_those_that_a_test_needs(tmp_path: Path) -> None:
    names = {name for name in dir(Harrow(tmp_path)) if not name.startswith("_")}
    assert names == set().union(*SHOWN.values())


def test_each_public_name_says_what_it_is() -> None:
    undocumented = [name for names in SHOWN.values() for name in names if not getattr(Harrow, name).__doc__]
    assert not undocumented


def test_values_of_the_next_test_on_a_shared_cluster_derive_from_its_name_alone(tmp_path: Path) -> None:
    def drawn(*tests: str) -> list[tuple[float, str, str]]:
        harrow = Harrow(tmp_path, seed=7)
        found: list[tuple[float, str, str]] = []
        for name in tests:
            run_of(harrow).begin_test(name)
            found.append((harrow.random.random(), harrow.values.uuid(), harrow.faker.name()))
        return found

    assert drawn("test_b")[-1] == drawn("test_a", "test_b")[-1]
    assert drawn("test_b")[-1] == drawn("test_a", "test_c", "test_b")[-1]
    assert len(set(drawn("test_a", "test_b", "test_c"))) == 3
