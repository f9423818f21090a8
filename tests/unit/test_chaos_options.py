"""`harrow chaos`: brokers and repertoires, what the ledger says of them, and that the usual run is as it was (K9)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click import UsageError
from harrow.faults.schedule import ALL_RANDOM, DEFAULT_RANDOM, random_schedule
from harrow.harness.commands.chaos import command, folder_name, summary
from harrow.harness.scenario import (
    REPERTOIRES,
    VARIANTS,
    Outcome,
    cap_of,
    kinds_in_effect,
    repeat_command,
)


def outcome(**more: object) -> Outcome:
    fields: dict[str, object] = {
        "seed": 7, "variant": "safe", "status": "valid", "acknowledged": 9, "elections": 1, "faults": 3,
        "anomalies": {}, "reasons": (), "seconds": 1.0, "folder": "f",
    }  # fmt: skip
    return Outcome(**(fields | more))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - by name


def test_without_options_the_run_is_the_one_it_was() -> None:
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
    assert (again["seed"], again["seconds"], again["brokers"], again["faults"]) == (
        7,
        2.5,
        5,
        "all",
    )
    kinds = {"kill", "pause", "isolate", "cut", "slow", "restart_registry", "pause_registry"}
    assert set(ALL_RANDOM) == kinds | {"terminate", "restart"}


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
    rows = [("1", "slow", "inject"), ("1", "slow", "effect"), ("2", "kill", "inject"), ("2", "kill", "effect"),
            ("3", "slow", "effect"), ("4", "cut", "skipped")]  # fmt: skip
    text = "".join(json.dumps({"id": i, "fault": f, "event": e}) + "\n" for i, f, e in rows)
    (tmp_path / "faults.jsonl").write_text(text)
    kinds = kinds_in_effect(tmp_path)
    assert kinds == {"kill": 1, "slow": 2}
    line = json.loads(outcome(brokers=5, repertoire="all", kinds=kinds).to_json())
    assert (line["brokers"], line["repertoire"], line["kinds"]) == (5, "all", kinds)
    table = summary([outcome(kinds=kinds), outcome(kinds={"cut": 1})])
    told = dict(zip(*(column.cells for column in table.columns), strict=True))
    assert (told["  slow"], told["  cut"]) == ("2", "1")


@pytest.mark.parametrize("name", REPERTOIRES)
def test_of_a_repertoire_only_its_kinds_are_drawn(name: str) -> None:
    drawn = {
        step.fault.kind
        for seed in range(30)
        for step in random_schedule(seed, REPERTOIRES[name], 20, topics=["orders"]).steps
    }
    assert drawn == set(REPERTOIRES[name])
