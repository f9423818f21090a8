"""No fault waits for ever: what it waited for, for how long, and what happened instead (K2, K6, K9)."""

from __future__ import annotations

from typing import Any

import pytest
from fake_system import FakeRule, FakeSystem
from harrow.faults import (
    BackgroundNemesis,
    Fault,
    Nemesis,
    NemesisError,
    Schedule,
    ScheduledFault,
    disk_error,
    failpoint,
    kill,
    kill_program,
    lose_response,
    one,
    pause,
    refuse_request,
    rolling_restart,
    slow_disk,
    took_effect,
)
from harrow.faults.bounds import END_TIMEOUT_MS, GRACE_MS, HEAL_TIMEOUT_MS, longest_ms
from harrow.faults.spec import TICK_MS
from harrow.faults.traffic_wait import REACHED_WITHIN_MS, SILENCE_MS

SHORT = 0.01
MOST_MS = 900_000
COMMIT, FETCH, HEARTBEAT = 8, 1, 12


class Run:
    """A nemesis on a fake cluster and a clock by hand."""

    def __init__(self, *faults: Fault, **more: Any) -> None:
        steps = [ScheduledFault(id=str(n), fault=fault) for n, fault in enumerate(faults, 1)]
        self.system = FakeSystem()
        self.now_ms = 0
        self.nemesis = Nemesis(self.system, Schedule(steps=tuple(steps), seed=5), **more)

    @property
    def rules(self) -> list[FakeRule]:
        return [rule for broker in self.system.brokers.values() for rule in broker.own_rules.armed]

    @property
    def problem(self) -> str:
        (problem,) = self.nemesis.problems
        return problem

    def turns(self, until_ms: int = MOST_MS) -> Run:
        while self.now_ms < until_ms:
            again = self.nemesis.turn(self.now_ms)
            if again is None:
                break
            self.now_ms = again
        return self


def seen(run: Run, **facts: Any) -> None:
    """Let the rule of the first broker have counted something."""
    run.rules[0].what |= facts


def test_a_request_fault_whose_client_matches_no_client_ends_with_the_client_ids_that_were_seen() -> None:
    run = Run(lose_response("OffsetCommit", client="billing*")).turns(until_ms=TICK_MS)
    seen(run, seen=0, clients={"one-0": 7}, others={"two": [FETCH, HEARTBEAT], "one-0": [FETCH]})
    run.turns()
    assert run.nemesis.over
    assert run.system.undisturbed()
    assert REACHED_WITHIN_MS <= run.now_ms < REACHED_WITHIN_MS + 5_000
    assert (
        "no request OffsetCommit of a client that matches 'billing*' arrived; client ids seen for this API: one-0; "
        "others: two (Fetch, Heartbeat) in 30 s of traffic" in run.problem
    )
    assert "reached_within=" in run.problem


def test_an_api_that_no_client_uses_is_named_with_what_clients_send() -> None:
    run = Run(refuse_request("OffsetCommit", "NOT_COORDINATOR")).turns(until_ms=TICK_MS)
    seen(run, seen=0, clients={}, others={"one-0": [FETCH]})
    run.turns()
    assert "no request OffsetCommit arrived; no client used this API; others: one-0 (Fetch)" in run.problem


def test_an_nth_that_is_never_reached_says_how_many_were_seen() -> None:
    run = Run(lose_response("OffsetCommit", nth=5)).turns(until_ms=TICK_MS)
    seen(run, seen=2, clients={"one-0": 2}, others={})
    run.rules[1].what |= {"seen": 1}
    run.turns()
    assert (
        "request OffsetCommit number 5 did not arrive on any broker; arrived: 2 on broker 1, 1 on broker 2"
        in run.problem
    )


def test_a_fault_that_makes_progress_waits_on() -> None:
    run = Run(lose_response("OffsetCommit", nth=50)).turns(until_ms=TICK_MS)
    for count in range(1, 6):
        seen(run, seen=count)
        run.turns(until_ms=run.now_ms + REACHED_WITHIN_MS - 5_000)
        assert not run.nemesis.problems
    run.rules[0].fire()
    assert run.turns().nemesis.problems == []


def test_time_without_traffic_does_not_count_but_is_bounded_too() -> None:
    run = Run(lose_response("OffsetCommit")).turns(until_ms=TICK_MS)
    run.system.traffic = False
    run.turns(until_ms=SILENCE_MS - 5_000)
    assert not run.nemesis.problems
    run.turns()
    assert run.nemesis.over
    assert run.now_ms < SILENCE_MS + 5_000
    assert "no traffic at all was seen for 120 s" in run.problem


def test_the_bound_can_be_chosen() -> None:
    run = Run(lose_response("OffsetCommit"), reached_within_ms=200_000).turns(until_ms=190_000)
    assert not run.nemesis.problems
    assert "in 200 s of traffic" in run.turns().problem


def test_a_fault_waits_while_a_later_step_may_still_bring_the_broker_to_it() -> None:
    steps = (
        ScheduledFault(id="1", fault=failpoint("log.after-roll", one, "delay", delay_ms=1), trigger="traffic"),
        ScheduledFault(id="2", fault=kill(one, seconds=50.0), trigger="traffic", at_ms=60_000),
    )
    run = Run()
    run.nemesis = Nemesis(run.system, Schedule(steps=steps, seed=5))
    run.turns(until_ms=110_000 + REACHED_WITHIN_MS - 5_000)
    assert not run.nemesis.problems
    run.turns()
    assert "a hit of log.after-roll did not happen" in run.problem


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (failpoint("log.after-roll", 1, "delay", nth=3, delay_ms=1), "a hit of log.after-roll did not happen 3 times"),
        (disk_error("read", 1, nth=3, path="*.index"), "a read of a path like '*.index' did not happen 3 times"),
        (slow_disk(1), "no traffic reached it"),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_places_and_disks_that_are_not_reached_end_with_their_counts(fault: Fault, words: str) -> None:
    run = Run(fault).turns(until_ms=TICK_MS)
    seen(run, hits=2) if fault.kind == "failpoint" else seen(run, seen=2)
    run.turns()
    assert run.nemesis.over
    assert words in run.problem
    assert fault.kind == "slow_disk" or "on any broker; it happened: 2 on broker 1" in run.problem
    assert run.system.undisturbed()


def test_a_program_that_sends_no_such_request_ends_the_wait_of_its_kill() -> None:
    run = Run(kill_program("billing", before="OffsetCommit", client="bill*")).turns(until_ms=TICK_MS)
    seen(run, seen=0, clients={"one-0": 3}, others={})
    run.turns()
    assert run.nemesis.over
    assert "no request OffsetCommit of a client that matches 'bill*' arrived" in run.problem
    assert "client ids seen for this API: one-0" in run.problem
    assert run.system.billing.actions == []
    assert run.system.undisturbed()


def test_a_rule_that_ended_with_its_broker_is_named() -> None:
    run = Run(lose_response("OffsetCommit")).turns(until_ms=TICK_MS)
    for rule in run.rules:
        rule.what |= {"seen": 0}
    run.system.brokers[2].kill()
    run.system.brokers[2].start()
    run.turns()
    assert "broker 2 ended meanwhile, and the rule there with it" in run.problem


def test_after_the_block_the_same_is_said_at_once() -> None:
    run = Run(lose_response("OffsetCommit")).turns(until_ms=TICK_MS)
    seen(run, seen=0, clients={"one-0": 1}, others={})
    run.nemesis.finish(run.now_ms)
    run.turns()
    assert run.now_ms < GRACE_MS + 5_000
    assert "client ids seen for this API: one-0 before the block ended" in run.problem


def test_a_step_after_an_effect_that_cannot_happen_any_more_does_not_wait_for_it() -> None:
    run = Run()
    steps = (
        ScheduledFault(id="1", fault=lose_response("OffsetCommit", client="billing*")),
        ScheduledFault(id="2", fault=kill(one, seconds=SHORT), after=(took_effect("1"),)),
    )
    run.nemesis = Nemesis(run.system, Schedule(steps=steps, seed=5))
    run.turns()
    assert run.now_ms < REACHED_WITHIN_MS + 5_000
    assert run.nemesis.problems[1] == (
        "kill(one, seconds=0.01) never fired: it waited for took_effect('1'), and step 1 is over without that"
    )


def test_what_the_nemesis_waits_for_is_said_for_each_state() -> None:
    run = Run(lose_response("OffsetCommit"))
    run.system.traffic = False
    run.turns(until_ms=TICK_MS)
    assert "the first traffic" in run.nemesis.waits_for
    run.system.traffic = True
    run.turns(until_ms=5 * TICK_MS)
    assert "at which lose_response(all_brokers, api='OffsetCommit') acts" in run.nemesis.waits_for
    assert run.turns().nemesis.waits_for == ""


def test_the_end_of_a_block_waits_longer_than_the_nemesis_allows_a_fault_of_several_steps() -> None:
    plan = Schedule(steps=(ScheduledFault(id="1", fault=rolling_restart()),), seed=5)
    assert longest_ms(plan, 1_500) > END_TIMEOUT_MS + HEAL_TIMEOUT_MS
    run = Run()
    run.system.brokers[2].ends_slowly = True
    run.nemesis = Nemesis(run.system, plan)
    run.turns(until_ms=TICK_MS)
    run.nemesis.finish(run.now_ms)
    began_ms = run.now_ms
    run.turns(until_ms=began_ms + END_TIMEOUT_MS - 10_000)
    assert not run.nemesis.over
    run.system.brokers[2].state = "dead"
    assert run.turns().nemesis.problems == []
    assert run.now_ms - began_ms < longest_ms(plan, 1_500)


def test_a_block_that_gives_up_says_so_and_what_it_waited_for() -> None:
    steps = (ScheduledFault(id="1", fault=pause(one, seconds=60.0)),)
    runner = BackgroundNemesis(FakeSystem(), Schedule(steps=steps, seed=5))
    runner.start()
    assert not runner.finish(0.3)
    with pytest.raises(NemesisError, match=r"did not come to their end within .* pause"):
        runner.stop()
