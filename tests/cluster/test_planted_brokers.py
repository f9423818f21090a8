"""Planted bugs in real broker processes: applied before the broker starts, named by every output (M1)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harrow import Cluster, HarrowError
from waiting import until

KIP_101 = "harrow.faults.zoo.kip_101"
TITLE = "KIP-101, first case: a follower truncates to its own high watermark"
UP = [str(Path(sys.executable).with_name("harrow")), "up"]


def first_event(folder: Path) -> dict[str, object]:
    with (folder / "trace.jsonl").open() as file:
        event: dict[str, object] = json.loads(file.readline())
    return event


def test_every_broker_says_first_which_bugs_are_planted(tmp_path: Path) -> None:
    with Cluster(brokers=2, folder=tmp_path, plants=[KIP_101]) as cluster:
        assert [plant.title for plant in cluster.plants] == [TITLE]
    for node in (1, 2):
        event = first_event(tmp_path / f"broker-{node}")
        assert event["event"] == "broker.planted"
        assert event["plants"] == [{"module": KIP_101, "title": TITLE}]


def test_brokers_of_a_later_cluster_of_the_same_process_are_not_planted(tmp_path: Path) -> None:
    with Cluster(brokers=1, folder=tmp_path / "planted", plants=[KIP_101]):
        pass
    with Cluster(brokers=1, folder=tmp_path / "plain"):
        pass
    assert first_event(tmp_path / "planted" / "broker-1")["event"] == "broker.planted"
    plain = (tmp_path / "plain" / "broker-1" / "trace.jsonl").read_text()
    assert "broker.ready" in plain
    assert "broker.planted" not in plain


def test_a_plant_of_the_user_is_found_where_the_user_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_bugs.py").write_text(
        "from harrow.cluster.storage.producers.producer_entry import ProducerEntry\n"
        "TITLE = 'a bug of my own'\n"
        "def plant(planter):\n"
        "    planter.replace_method(ProducerEntry, 'batches_to_remember', lambda self: ())\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with Cluster(brokers=1, folder=tmp_path / "cluster", plants=["my_bugs"]):
        pass
    event = first_event(tmp_path / "cluster" / "broker-1")
    assert event["plants"] == [{"module": "my_bugs", "title": "a bug of my own"}]


def test_an_unknown_plant_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(HarrowError, match=r"kip_11. cannot be imported"):
        Cluster(brokers=1, folder=tmp_path / "cluster", plants=["harrow.faults.zoo.kip_11"])
    assert not (tmp_path / "cluster").exists()


def test_harrow_up_names_the_planted_bug(tmp_path: Path) -> None:
    command = [*UP, "--brokers", "1", "--plant", KIP_101, "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.terminate()
    assert lines[0].startswith("bootstrap.servers=")
    assert lines[1].strip() == f"PLANTED BUG {KIP_101}: {TITLE}"
    until(lambda: process.poll() is not None, "the end of harrow up")
