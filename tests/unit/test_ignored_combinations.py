"""Arguments and options that would have no effect beside others are refused, with the remedy (J1, J5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import harrow
import pytest
from click.testing import CliRunner
from harrow.cluster.errors import ConfigError
from harrow.faults import Schedule, ScheduledFault
from harrow.harness.chaos.plan import ChaosRequest
from harrow.harness.commands import cli
from harrow.harness.promises.topic_promise import TopicPromise

KILL = harrow.kill(harrow.one)
SCHEDULE = Schedule(steps=(ScheduledFault(id="1", fault=KILL),))


@pytest.mark.parametrize(
    ("faults", "given", "words"),
    [
        ((KILL,), {"kinds": ["kill"]}, r"chaos\(kill\(one\), kinds=\['kill'\]\): kinds= says which random faults"),
        ((), {"kinds": []}, r"chaos\(kinds=\[\]\): expected at least one kind"),
        ((), {"schedule": SCHEDULE, "kinds": ["kill"]}, "a schedule has its own faults, kinds, duration and cap"),
        ((KILL,), {"schedule": SCHEDULE}, "accepts faults or a schedule"),
        ((), {"schedule": SCHEDULE, "cap": 1}, "accepts faults or a schedule"),
    ],
)
def test_what_a_chaos_block_would_ignore_is_refused(
    faults: tuple[harrow.faults.Fault, ...], given: dict[str, Any], words: str
) -> None:
    arguments: dict[str, Any] = {"duration": None, "cap": None, "kinds": None, "schedule": None}
    with pytest.raises(ConfigError, match=words):
        ChaosRequest.of(faults, **{**arguments, **given})


def test_an_order_key_needs_a_guarantee_of_order() -> None:
    def promise(guarantee: str | None) -> TopicPromise | None:
        return TopicPromise.of(guarantee=guarantee, record_id=None, expected=None, order_key="customer")

    with pytest.raises(ConfigError, match="write guarantee='no-loss,ordered', or leave out"):
        promise("no-loss")
    for guarantee in (None, "ordered", "exactly-once, ordered"):
        found = promise(guarantee)
        assert found is not None
        assert found.judges_order


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--harrow-kafka=/opt/kafka"], "--harrow-kafka=/opt/kafka: it belongs to the backend apache"),
        (["--harrow-kafka=/opt/kafka", "--harrow-backend=local"], "the backend is local: choose apache"),
        (["--harrow-image=kafka:4"], "--harrow-image=kafka:4: it belongs to the backend docker"),
        (["--harrow-spark-data=/mnt/a"], "--harrow-spark-data: Harrow's own Spark reads the run folders"),
    ],
)
def test_an_option_of_the_command_line_without_effect_is_a_usage_error(
    pytester: pytest.Pytester, arguments: list[str], words: str
) -> None:
    pytester.makepyfile("def test_it(harrow): pass")
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:xdist", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{words}*"])


def test_a_marker_may_choose_the_backend_of_an_option_of_the_command_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_it(harrow): pass

        @pytest.mark.harrow(backend="apache")
        def test_kafka(harrow): pass
        """
    )
    result = pytester.runpytest_inprocess(
        "-p", "no:randomly", "-p", "no:xdist", "--collect-only", "--harrow-kafka=/opt/kafka"
    )
    assert result.ret == pytest.ExitCode.OK


def test_a_marker_with_the_option_of_another_backend_fails_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.harrow(kafka="/opt/kafka")
        def test_it(harrow): pass
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:xdist")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*kafka=/opt/kafka: it belongs to the backend apache*"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chaos", "--kafka", "/opt/kafka"], "--kafka: it belongs to the backend apache"),
        (["chaos", "--spark-data", "/mnt/a"], "--spark-data: Harrow's own Spark reads the run folder"),
        (["chaos", "--schedule", "FILE", "--seeds", "3"], "--seeds has no meaning beside --schedule"),
        (["chaos", "--schedule", "FILE", "--faults", "all", "--", "true"], "--faults has no meaning beside --schedule"),
    ],
)
def test_an_option_of_a_command_without_effect_is_a_usage_error(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    file = tmp_path / "schedule.json"
    file.write_text(SCHEDULE.to_json())
    result = CliRunner().invoke(cli, [str(file) if word == "FILE" else word for word in arguments])
    assert (result.exit_code, words in result.output) == (2, True), result.output
