"""`harrow chaos`: brokers and repertoires, their lines in the ledger, and the recorded schedule (K9)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import UsageError
from harrow import controller, isolate, kill, leader, pause, terminate
from harrow.cluster.errors import ConfigError
from harrow.faults import Fault, Schedule, ScheduledFault, one, power_loss
from harrow.faults.planning import ALL_RANDOM, DEFAULT_RANDOM, random_schedule
from harrow.harness.commands.chaos import command, folder_name, summary
from harrow.harness.run_settings import RunSettings, fields_of_producer
from harrow.harness.workloads.scenario import (
    REPERTOIRES,
    VARIANTS,
    ChaosResult,
    cap_of,
    kinds_in_effect,
    leader_died,
    recorded_scenario,
    repeat_command,
)


def outcome(**more: object) -> ChaosResult:
    fields: dict[str, object] = {
        "seed": 7,
        "variant": "safe",
        "status": "valid",
        "acknowledged": 9,
        "elections": 1,
        "faults": 3,
        "anomalies": {},
        "reasons": (),
        "seconds": 1.0,
        "folder": "f",
    }
    return ChaosResult(**(fields | more))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - by name


def test_without_options_a_seed_runs_on_three_brokers_with_the_usual_faults() -> None:
    given = command.make_context("chaos", []).params
    assert (given["brokers"], given["faults"]) == (3, "usual")
    assert REPERTOIRES["usual"] == DEFAULT_RANDOM == ("kill", "pause", "isolate")
    assert folder_name("safe", 3, "usual") == "chaos-safe"
    repeat = repeat_command(7, 5, "safe", 3, "usual")
    assert repeat == "harrow chaos --seed 7 --seeds 1 --seconds 5 --variant safe"


def test_five_brokers_and_every_kind_have_a_folder_and_a_command_of_their_own() -> None:
    given = command.make_context("chaos", ["--brokers", "5", "--faults", "all"]).params
    assert (given["brokers"], given["faults"]) == (5, "all")
    assert folder_name("safe", 5, "all") == "chaos-safe-5-all"
    words = repeat_command(7, 2.5, "safe", 5, "all").split()
    assert words[:2] == ["harrow", "chaos"]
    again = command.make_context("chaos", words[2:]).params
    assert (again["seed"], again["seconds"], again["brokers"], again["faults"]) == (7, 2.5, 5, "all")
    kinds = {"kill", "pause", "isolate", "cut", "slow_link", "restart_registry", "pause_registry"}
    assert set(ALL_RANDOM) == kinds | {
        "terminate",
        "restart",
        "reset",
        "slow_disk",
        "throttle",
        "lose_request",
        "delay_request",
    }


def test_with_every_kind_less_than_half_of_the_brokers_may_be_down_at_once() -> None:
    safe, unclean = VARIANTS["safe"], VARIANTS["unclean"]
    assert [cap_of(safe, "all", brokers) for brokers in (1, 3, 5, 7)] == [1, 1, 2, 3]
    assert cap_of(safe, "usual", 5) is None
    assert cap_of(unclean, "usual", 3) == cap_of(unclean, "all", 5) == unclean.cap


def test_an_unknown_repertoire_is_refused() -> None:
    with pytest.raises(UsageError, match="usual"):
        command.make_context("chaos", ["--faults", "some"])


def test_the_ledger_says_brokers_repertoire_and_what_took_effect(tmp_path: Path) -> None:
    assert kinds_in_effect(tmp_path) == {}
    rows = [
        ("1", "slow_link", "inject"),
        ("1", "slow_link", "effect"),
        ("2", "kill", "inject"),
        ("2", "kill", "effect"),
        ("3", "slow_link", "effect"),
        ("4", "cut", "skipped"),
    ]
    text = "".join(json.dumps({"id": i, "fault": f, "event": e}) + "\n" for i, f, e in rows)
    (tmp_path / "faults.jsonl").write_text(text)
    kinds = kinds_in_effect(tmp_path)
    assert kinds == {"kill": 1, "slow_link": 2}
    line = json.loads(outcome(brokers=5, repertoire="all", kinds=kinds).to_json())
    assert (line["brokers"], line["repertoire"], line["kinds"]) == (5, "all", kinds)
    table = summary([outcome(kinds=kinds), outcome(kinds={"cut": 1})])
    cells = dict(zip(*(column.cells for column in table.columns), strict=True))
    assert (cells["  slow_link"], cells["  cut"]) == ("2", "1")


def test_the_anomalies_of_a_summary_are_below_the_status_of_their_seeds() -> None:
    table = summary([outcome(), outcome(status="invalid", anomalies={"lost-write": 3}), outcome(status="unknown")])
    shown = list(zip(*(column.cells for column in table.columns), strict=True))
    assert shown[:4] == [("invalid", "1"), ("  with lost-write", "1"), ("unknown", "1"), ("valid", "1")]


@pytest.mark.parametrize("name", REPERTOIRES)
def test_of_a_repertoire_only_its_kinds_are_drawn(name: str) -> None:
    drawn = {
        step.fault.kind
        for seed in range(30)
        for step in random_schedule(seed, REPERTOIRES[name], 20, topics=["orders"]).steps
    }
    assert drawn == set(REPERTOIRES[name])


def test_a_recorded_schedule_runs_on_the_cluster_that_it_describes() -> None:
    settings = RunSettings(
        seed=4, brokers=5, config={"internal.segment.bytes": 6000}, partitions=2, in_flight=3, acks=1, idempotent=False
    )
    step = ScheduledFault(id="1", fault=power_loss(one), nodes=(5,))
    schedule = Schedule(steps=(step,), run=settings.to_json())
    scenario = recorded_scenario(Schedule.from_json(schedule.to_json()), "again")
    assert (scenario.brokers, scenario.partitions, scenario.seed) == (5, 2, 4)
    assert scenario.config == {"internal.segment.bytes": 6000, "harrow.power.loss": True}
    assert scenario.producer == {
        "acks": 1,
        "enable.idempotence": False,
        "max.in.flight": 3,
        "request.timeout.ms": 30_000,
        "batch.size": 3000,
    }
    assert scenario.faults["schedule"] == schedule
    with pytest.raises(ConfigError, match="does not say what it ran on"):
        recorded_scenario(Schedule(steps=(step,)), "again")
    with pytest.raises(ConfigError, match="did you mean brokers"):
        RunSettings.from_json({"broker": 3})


@pytest.mark.parametrize(
    ("settings", "described"),
    [
        ({}, {"acks": -1, "idempotent": False, "in_flight": 5, "request_timeout_ms": 30_000}),
        (
            {"request.required.acks": "1", "max.in.flight.requests.per.connection": 2},
            {"acks": 1, "idempotent": False, "in_flight": 2, "request_timeout_ms": 30_000},
        ),
        (
            {"acks": "-1", "enable.idempotence": "true", "max.in.flight": "1", "request.timeout.ms": "9"},
            {"acks": -1, "idempotent": True, "in_flight": 1, "request_timeout_ms": 9},
        ),
        ({"enable.idempotence": 1}, {"acks": -1, "idempotent": True, "in_flight": 5, "request_timeout_ms": 30_000}),
        (
            {"transactional.id": "billing", "enable.idempotence": "false"},
            {"acks": -1, "idempotent": True, "in_flight": 5, "request_timeout_ms": 30_000},
        ),
    ],
)
def test_a_recorded_schedule_describes_the_producer_by_any_of_its_settings_names(
    settings: dict[str, object], described: dict[str, object]
) -> None:
    assert fields_of_producer(settings) == described


@pytest.mark.parametrize(
    ("fault", "fired", "died"),
    [
        (kill(leader("orders")), True, True),
        (terminate(leader("orders", 1)), True, True),
        (kill(leader("orders")), False, False),
        (kill(leader("bills")), True, False),
        (kill(controller()), True, False),
        (pause(leader("orders"), seconds=0.5), True, False),
        (isolate(leader("orders"), seconds=9), True, False),
    ],
    ids=str,
)
def test_an_election_is_demanded_only_where_a_leader_of_the_topic_died(
    tmp_path: Path, fault: Fault, fired: bool, died: bool
) -> None:
    assert not leader_died(tmp_path, "orders"), "no schedule"
    step = ScheduledFault(id="1", fault=fault, nodes=(1,), fired_ms=7 if fired else None)
    (tmp_path / "schedule.json").write_text(Schedule(steps=(step,)).to_json())
    assert leader_died(tmp_path, "orders") is died
