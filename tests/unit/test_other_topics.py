"""A topic that does not exist, and records that went elsewhere: the error names the topics that there are (J7)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harrow.cluster.errors import ClusterError, ConfigError
from harrow.harness.verdict.other_topics import check_existing, elsewhere


def cluster(folder: Path, ends: dict[str, int], events: list[dict[str, object]] | None = None) -> Any:
    """A cluster whose topics have one partition each, on two brokers of which one lags."""
    (folder / "broker-1").mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(event) for event in events or []]
    (folder / "broker-1" / "trace.jsonl").write_text("\n".join([*lines, '{"torn'] if lines else []))
    rows = [{"topic": name, "partition": 0, "leo": end} for name, end in ends.items()]
    return SimpleNamespace(
        folder=folder,
        describe=lambda: SimpleNamespace(topics={"__consumer_offsets": {}, **ends}),
        state=lambda: {1: rows, 2: [{**row, "leo": 0} for row in rows]},
    )


def test_a_topic_that_does_not_exist_is_an_error_with_the_topics_that_received_records(tmp_path: Path) -> None:
    found = cluster(tmp_path, {"orders-3fa9c1": 12, "bills": 0, "audit": 1})
    with pytest.raises(ConfigError) as caught:
        check_existing(found, ["orders"], ["orders-3fa9c1"])
    assert str(caught.value) == (
        "the cluster has no topic 'orders'; did you mean 'orders-3fa9c1'?; records are in orders-3fa9c1 (12 offsets), "
        "audit (1 offset); empty are bills. Name one of them, or the Topic that harrow.topic(…) returned"
    )
    with pytest.raises(ConfigError, match="no topic 'nope'; the cluster has no topic at all"):
        check_existing(cluster(tmp_path, {}), ["nope"], [])


def test_a_topic_that_was_deleted_is_left_to_the_verdict(tmp_path: Path) -> None:
    check_existing(cluster(tmp_path, {"bills": 1}), ["orders", "bills"], ["orders"])
    place = {"topic": "orders", "partition": 0}
    led: list[dict[str, object]] = [
        {"t_ns": 1, "event": "partition.leader", **place, "leader": 1, "leader_epoch": 0, "isr": [1]}
    ]
    check_existing(cluster(tmp_path, {}, led), ["orders"], [])


def test_nothing_is_said_while_the_cluster_does_not_respond(tmp_path: Path) -> None:
    def refuse() -> Any:
        raise ClusterError("no registry")

    silent: Any = SimpleNamespace(folder=tmp_path, describe=refuse, state=refuse)
    check_existing(silent, ["nope"], [])
    assert elsewhere(silent, ["nope"]) == ""


def test_where_records_went_is_said_of_an_empty_topic_only(tmp_path: Path) -> None:
    written = cluster(tmp_path, {"orders": 5, "orders-3fa9c1": 0})
    assert elsewhere(written, ["orders-3fa9c1"]) == (
        "nothing was written to orders-3fa9c1; records are in orders (5 offsets); did you mean 'orders'?"
    )
    assert elsewhere(written, ["orders"]) == ""
    assert elsewhere(cluster(tmp_path, {"orders": 0}), ["orders"]) == ""


def test_names_for_which_clients_asked_are_said_once(tmp_path: Path) -> None:
    event: dict[str, object] = {"t_ns": 1, "event": "metadata.unknown-topic", "topic": "order", "client": "shop"}
    assert elsewhere(cluster(tmp_path, {"orders": 0}, [event, event]), ["orders"]) == (
        "nothing was written to orders; clients asked for topics that do not exist: 'order' (shop)"
    )
