"""The engine that judges is chosen by option, marker, ini file or size; `inline` starts no JVM (J7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from harrow.cluster.errors import ConfigError, HarrowError
from harrow.harness.checks import judge
from harrow.harness.checks.imported import judge_history, read_history_file
from harrow.harness.commands import cli
from harrow.harness.engines import AUTO, INLINE, INLINE_MOST, SPARK, engine_for
from harrow.harness.plugin.options import make_options
from harrow.harness.user_spark import UserSpark, chosen_engine
from judged_runs import TOPIC, RunFolder
from run_stories import good_with_logs

CLIENT = """
from confluent_kafka import Producer

import pytest
from harrow import pause, leader

def place_orders(harrow, chaos):
    shop = Producer({"bootstrap.servers": harrow.bootstrap_servers})
    number = 0
    while chaos.running:
        shop.produce("orders", f'{{"order": {number}}}'.encode())
        shop.poll(0.02)
        number += 1
    shop.flush()

def test_by_the_ini_file(harrow):
    orders = harrow.topic("orders", partitions=2)
    with harrow.chaos(pause(leader(orders, 0), seconds=0.5)) as chaos:
        place_orders(harrow, chaos)
    verdict = harrow.verify(record_id="order", guarantee="exactly-once")
    assert verdict.engine == "inline"
"""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A run folder that is larger than `auto` judges in this process; the file has no blocks on the disk."""
    run = RunFolder(tmp_path / "large")
    good_with_logs(run)
    folder = run.done()
    with (folder / "history" / "more.bin").open("wb") as file:
        file.truncate(INLINE_MOST)
    return folder


def test_the_size_of_a_run_chooses_the_engine_of_auto(tmp_path: Path, large: Path) -> None:
    run = RunFolder(tmp_path / "small")
    good_with_logs(run)
    small = run.done()
    assert engine_for(AUTO, small, [TOPIC]) == INLINE
    assert engine_for(AUTO, large, [TOPIC]) == SPARK
    assert engine_for(INLINE, large, [TOPIC]) == INLINE
    assert engine_for(SPARK, small, [TOPIC]) == SPARK


def test_only_the_logs_of_judged_topics_count_and_no_preallocated_index(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    good_with_logs(run)
    folder = run.done()
    logs = sorted((folder / "cluster").rglob(f"{TOPIC}-0"))
    assert logs
    for name in (logs[0] / "00000000000000000000.index", logs[0].parent / "other-0" / "0.log"):
        name.parent.mkdir(exist_ok=True)
        with name.open("ab") as file:
            file.truncate(2 * INLINE_MOST)
    assert engine_for(AUTO, folder, [TOPIC]) == INLINE
    assert engine_for(AUTO, folder, ["other"]) == SPARK


def test_the_engine_inline_beside_a_spark_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="does not use sc://here: leave out --harrow-engine"):
        make_options({"seed": 1}, {"spark": "sc://here"}, {"engine": INLINE})
    with pytest.raises(ConfigError, match="judges without Spark, and does not use sc://here"):
        chosen_engine(INLINE, UserSpark("sc://here"))
    with pytest.raises(ConfigError, match="engine 'flink': expected spark, inline, auto"):
        chosen_engine("flink", "")


def test_harrow_check_judges_with_the_chosen_engine(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    good_with_logs(run)
    words = ["check", str(run.done()), "--topic", TOPIC, "--guarantee", "no-loss", "--engine"]
    done = CliRunner().invoke(cli, [*words, "inline"])
    assert done.exit_code == 0, done.output
    assert "engine inline, without Spark" in done.output


def test_inline_no_second_thread_judges_and_imports_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path / "run")
    good_with_logs(run)
    monkeypatch.setattr("harrow.harness.checks.judgement.ThreadPoolExecutor", None)
    assert judge(run.done(), topics=[TOPIC], guarantee="no-loss", engine=INLINE).valid


def test_the_size_of_a_history_from_elsewhere_is_that_of_its_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sends.jsonl"
    file.write_text(
        '{"process": 1, "type": "ok", "f": "send", "topic": "orders", "partition": 0, "offset": 0, "value": "a"}\n'
    )
    history = read_history_file(file)
    assert judge_history(history, tmp_path / "small", engine=AUTO).engine == INLINE
    monkeypatch.setattr("harrow.harness.engines.INLINE_MOST", 0)

    class Spark:
        def collect(self, plan: Path) -> list[dict[str, Any]]:
            raise HarrowError(f"Spark was asked for {plan.name}")

    with pytest.raises(HarrowError, match=r"Spark was asked for plan\.json"):
        judge_history(history, tmp_path / "large", engine=AUTO, spark=Spark())
    with pytest.raises(ConfigError, match="engine 'local': expected spark, inline, auto"):
        judge_history(history, tmp_path / "other", engine="local")


def test_a_run_with_the_engine_inline_starts_no_spark(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendezvous = pytester.path / "spark.sock"
    monkeypatch.setenv("HARROW_RENDEZVOUS", str(rendezvous))
    pytester.makeini("[pytest]\nharrow_engine = inline\n")
    pytester.makepyfile(CLIENT)
    result = pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:randomly")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["harrow: seed *, engine inline*", "*: valid (exactly-once) *"])
    assert not rendezvous.exists()
    assert not list(pytester.path.glob("**/spark*.log"))
