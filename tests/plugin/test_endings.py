"""Every test that does not pass and is not skipped has a verdict, a page, and its reason in the index (J5, J7, J8)."""

from __future__ import annotations

import asyncio
import re
import unittest
from pathlib import Path

import pytest
from harrow.faults.errors import NemesisError
from harrow.harness.errors import ProgramDiedError, WaitTimeoutError
from harrow.harness.verdict.endings import Ending, ending_of
from long_runs import long_run

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")
JUDGED_WITHOUT_A_CLUSTER = """
    import pytest
    from harrow.harness.checks import Status, Verdict
    from harrow.harness.run.harrow_run import HarrowRun

    def judged(self, topics, *_):
        with self.failures.making_a_verdict():
            self.folder.mkdir(parents=True, exist_ok=True)
            if getattr(self, "slow", False):
                self.slow()
            return publish(self, Verdict(status=Status.VALID, guarantees=("judged",)))

    def publish(self, verdict):
        self.folder.mkdir(parents=True, exist_ok=True)
        verdict.write(self.folder / "verdict.json")
        (self.folder / "run.json").write_text('{"schema_version": 1, "seed": 1}')
        return self.made.publish(verdict)

    def without_spark(self, reason):
        return publish(self, Verdict(status=Status.UNKNOWN, guarantees=("quick",), reasons=(reason,)))

    @pytest.fixture(autouse=True)
    def no_cluster(monkeypatch):
        monkeypatch.setattr(HarrowRun, "judged", judged)
        monkeypatch.setattr(HarrowRun, "judged_without_spark", without_spark)
        monkeypatch.setattr(HarrowRun, "needs_no_verdict", property(lambda self: bool(self.made.verdicts)))
"""


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (AssertionError(), Ending.FAILED),
        (TimeoutError(), Ending.FAILED),
        (asyncio.CancelledError(), Ending.FAILED),
        (SystemExit(1), Ending.FAILED),
        (pytest.fail.Exception("by pytest.fail and by pytest-timeout"), Ending.FAILED),
        (pytest.xfail.Exception("known"), Ending.FAILED),
        (WaitTimeoutError("not within 60 s"), Ending.FAILED),
        (ProgramDiedError("the program 'billing' has ended"), Ending.FAILED),
        (NemesisError("no fault fired"), Ending.HARNESS),
        (KeyboardInterrupt(), Ending.INTERRUPTED),
        (pytest.exit.Exception("enough"), Ending.INTERRUPTED),
        (pytest.skip.Exception("not here"), Ending.SKIPPED),
        (unittest.SkipTest("not here"), Ending.SKIPPED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_says_how_the_test_ended(error: BaseException, ending: Ending) -> None:
    assert ending_of(error) is ending


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> str:
    pytester.makeconftest(JUDGED_WITHOUT_A_CLUSTER)
    pytester.makepyfile(test_shop=source)
    return pytester.runpytest_subprocess(*QUIET, *arguments).stdout.str()


def verdicts(said: str) -> dict[str, str]:
    """The words of the verdict line of each test."""
    return dict(re.findall(r"^test_shop.py::(?:test_)?(\w+): (\w+ \(\w+\).*) · ", said, re.MULTILINE))


def cards(index: Path) -> str:
    return re.sub(r"<[^>]*>", " ", index.read_text().partition("<main>")[2])


def test_each_way_to_fail_has_a_verdict_and_its_reason_in_the_index(pytester: pytest.Pytester) -> None:
    said = run(
        pytester,
        """
        import asyncio, sys, time
        import pytest
        from harrow.faults.errors import NemesisError
        from harrow.harness.run.harrow import run_of

        def test_assert(harrow): assert 1 == 2, "one is not two"
        def test_fail(harrow): pytest.fail("the shop is closed")
        def test_plain_fail(harrow): pytest.fail("without a traceback", pytrace=False)
        def test_exit(harrow): sys.exit("exit code of a service")
        def test_cancelled(harrow): raise asyncio.CancelledError("the task was cancelled")
        def test_timed_out(harrow): raise asyncio.TimeoutError("no answer in 5 s")
        def test_nemesis(harrow): raise NemesisError("no fault fired")
        def test_xfail(harrow): pytest.xfail("known since May")
        @pytest.mark.xfail(reason="marked")
        def test_marked(harrow): assert False

        @pytest.mark.timeout(0.2, method="signal", func_only=True)
        def test_timeout(harrow): time.sleep(60)

        @pytest.mark.timeout(0.2, method="signal", func_only=True)
        def test_timeout_of_verify(harrow):
            run_of(harrow).slow = lambda: time.sleep(60)
            run_of(harrow).judged(())

        @pytest.fixture
        def shop(harrow): pytest.fail("the shop does not open")
        def test_in_setup(shop): pass

        def test_skip(harrow): pytest.skip("not here")
        def test_pass(harrow): pass
        """,
    )
    judged = dict.fromkeys(
        ["assert", "fail", "plain_fail", "exit", "cancelled", "timed_out", "xfail", "marked", "timeout", "in_setup"],
        "valid (judged)",
    )
    found = verdicts(said)
    assert {name: found[name] for name in judged} == judged
    assert {name: text for name, text in found.items() if name not in judged} == {
        "nemesis": "unknown (quick) · nothing was judged, because the test ended with NemesisError: no fault fired",
        "timeout_of_verify": "unknown (quick) · the test ended with Failed: Timeout (>0.2s) from pytest-timeout. "
        "while its verdict was made; give it more time",
    }
    shown = cards(pytester.path / "harrow-out" / "index.html")
    for reason in (
        "AssertionError: one is not two",
        "Failed: the shop is closed",
        "without a traceback",
        "SystemExit: exit code of a service",
        "CancelledError: the task was cancelled",
        "no answer in 5 s",
        "NemesisError: no fault fired",
        "expected to fail: known since May",
        "expected to fail: marked",
        "Failed: Timeout (&gt;0.2s) from pytest-timeout.",
        "Failed: the shop does not open",
    ):
        assert reason in shown, reason


def test_a_timeout_that_ends_the_process_leaves_verdict_page_and_index(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(JUDGED_WITHOUT_A_CLUSTER)
    pytester.makepyfile(
        """
        import time, pytest

        @pytest.mark.timeout(0.3, method="thread", func_only=True)
        def test_it(harrow): time.sleep(60)
        """
    )
    result = pytester.runpytest_subprocess(*QUIET)
    assert result.ret == 1
    reason = "the test ran into its timeout of 0.3 s"
    assert reason in result.stderr.str()
    assert "Stack of MainThread" in result.stdout.str()
    assert reason in cards(pytester.path / "harrow-out" / "index.html")


ON_BROKERS = """
    import signal, pytest
    from harrow import kill, leader

    @pytest.mark.harrow(brokers=1)
    def test_shop(harrow):
        orders = harrow.topic("orders")
        producer = harrow.producer()
        with harrow.chaos(kill(leader(orders))):
            producer.produce(orders.name, b"order")
            producer.flush(30)
            signal.raise_signal(signal.{name})  # as Ctrl-C and as pytest-timeout
"""


def test_an_interrupt_in_a_chaos_block_ends_without_spark_and_with_a_page(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_shop=ON_BROKERS.format(name="SIGINT"))
    result = pytester.runpytest_subprocess(*QUIET)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    (page,) = pytester.path.glob("harrow-out/*/test_shop-*/report.html")
    assert "the test was interrupted" in page.read_text()
    assert not list(pytester.path.glob("harrow-out/*/spark.log"))
    assert '"status": "unknown"' in (page.parent / "verdict.json").read_text()


@long_run
def test_a_timeout_in_a_chaos_block_is_judged_by_spark(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_shop=ON_BROKERS.format(name="SIGALRM"))
    result = pytester.runpytest_subprocess(*QUIET, "--timeout=600")
    result.assert_outcomes(failed=1)
    assert "harrow verdict (harrow)" in result.stdout.str()
    (page,) = pytester.path.glob("harrow-out/*/test_shop-*/report.html")
    assert '"drained": 1' in (page.parent / "verdict.json").read_text()


@pytest.mark.parametrize(
    ("ends", "named"),
    [("raise KeyboardInterrupt", "KeyboardInterrupt"), ("pytest.exit('enough')", "Exit: enough")],
    ids=["Ctrl-C", "pytest.exit"],
)
def test_an_interrupt_has_a_verdict_and_a_card_at_once(pytester: pytest.Pytester, ends: str, named: str) -> None:
    said = run(pytester, f"import pytest\ndef test_it(harrow):\n    harrow.topic\n    {ends}\n")
    expected = f"the test was interrupted ({named}), so nothing was judged; run it again"
    assert verdicts(said) == {"it": f"unknown (quick) · {expected}"}
    shown = cards(pytester.path / "harrow-out" / "index.html")
    assert expected in shown
    assert "INTERRUPTED" in shown
