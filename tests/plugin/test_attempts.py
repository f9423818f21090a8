"""A test that runs again in one process keeps what each attempt left: folder, verdict line, index, JUnit (J5, J8)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")
VERDICT_OF_EACH_ATTEMPT = """
    import pathlib
    from harrow.harness.checks import Status, Verdict
    from harrow.harness.errors import VerdictError
    from harrow.harness.run.harrow import run_of

    def judge_by_hand(harrow):
        # what `verify` does with a verdict, without a cluster and without Spark
        (harrow.folder / "cluster").mkdir(parents=True)
        again = pathlib.Path("began").exists()
        pathlib.Path("began").touch()
        status = Status.VALID if again else Status.INVALID
        verdict = Verdict(
            status=status, guarantees=("no-loss",), anomaly_counts={} if again else {"lost-write": 689}
        )
        verdict.write(harrow.folder / "verdict.json")
        (harrow.folder / "run.json").write_text('{"schema_version": 1, "seed": 1}')
        (harrow.folder / "report.html").write_text(f"the page says {status.value}")
        made = run_of(harrow).made
        made.publish(verdict)
        if not verdict.valid:
            raise VerdictError(made.explained(verdict), verdict)
"""


def write(pytester: pytest.Pytester, test: str) -> None:
    pytester.makeconftest(VERDICT_OF_EACH_ATTEMPT)
    pytester.makepyfile(test_orders=f"from conftest import judge_by_hand\n\n{test}\n")


def linked_page(line: str) -> str:
    return Path(line.rpartition(" ")[2]).read_text()


def test_a_test_that_is_run_again_keeps_the_folder_the_line_the_card_and_the_properties_of_each_attempt(
    pytester: pytest.Pytester,
) -> None:
    write(pytester, KEPT)
    result = pytester.runpytest_inprocess(*QUIET, "--reruns=1", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1)
    assert "1 rerun" in result.stdout.str()

    first, second = re.findall(r"^test_orders.py::test_kept (.*)$", result.stdout.str(), re.MULTILINE)[-2:]
    assert first.startswith("(attempt 1 of 2): invalid (no-loss)")
    assert second.startswith("(attempt 2 of 2): valid (no-loss)")
    assert linked_page(first) == "the page says invalid"
    assert linked_page(second) == "the page says valid"
    failed, passed = (Path(line.rpartition(" ")[2]).parent for line in (first, second))
    assert (failed / "cluster").exists()
    assert not (passed / "cluster").exists()

    index = (pytester.path / "harrow-out" / "index.html").read_text()
    assert index.index("test_kept (attempt 1 of 2)") < index.index("test_kept (attempt 2 of 2)")
    assert [index.count(f">{state}<") for state in ("INVALID", "VALID")] == [1, 1]
    assert len(set(re.findall(r'href="([^"]*)"', index))) == 2

    last = (pytester.path / "junit.xml").read_text().rpartition("<testcase")[2]
    found = dict(re.findall(r'name="(harrow\.[^"]*)" value="([^"]*)"', last))
    assert found["harrow.attempt"] == "2"
    assert found["harrow.verdict"].startswith("valid")
    assert found["harrow.attempt-1.verdict"].startswith("invalid")
    assert found["harrow.folder"] == str(passed.absolute())
    assert found["harrow.attempt-1.folder"] == str(failed.absolute())


def test_a_failure_that_came_back_is_counted_also_when_the_test_passed_in_another_attempt(
    pytester: pytest.Pytester,
) -> None:
    write(pytester, KEPT)
    result = pytester.runpytest_inprocess(*QUIET, "--reruns=1", "--harrow-repeat=2")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*::test_kept: came back in 1 of 2 runs *: 1 lost-write; 1 passed"])


KEPT = "def test_kept(harrow):\n    judge_by_hand(harrow)"
WITH_PARAMETER = """
import pytest

@pytest.mark.parametrize("step", range(2))
def test_kept(harrow, step):
    judge_by_hand(harrow)
"""


@pytest.mark.parametrize(
    ("test", "options"),
    [
        (KEPT, ("--keep-duplicates", "test_orders.py", "test_orders.py")),
        (KEPT, ("--harrow-repeat=2",)),
        (WITH_PARAMETER, ()),  # as pytest-repeat and pytest-flakefinder repeat a test
    ],
    ids=["duplicates", "harrow-repeat", "parameters"],
)
def test_each_other_way_to_repeat_a_test_keeps_a_folder_of_each_run(
    pytester: pytest.Pytester, test: str, options: tuple[str, ...]
) -> None:
    write(pytester, test)
    result = pytester.runpytest_inprocess(*QUIET, *options)
    result.assert_outcomes(passed=1, failed=1)
    pages = [page.read_text() for page in pytester.path.glob("harrow-out/*/*/report.html")]
    assert sorted(pages) == ["the page says invalid", "the page says valid"]
    index = (pytester.path / "harrow-out" / "index.html").read_text()
    assert [index.count(f">{state}<") for state in ("INVALID", "VALID")] == [1, 1]
    form = r"^test_orders.py::test_kept.*: ((?:in)?valid) \(no-loss\).* (\S+)$"
    lines = re.findall(form, result.stdout.str(), re.MULTILINE)
    assert sorted(f"{state}: {Path(page).read_text()}" for state, page in lines) == [
        "invalid: the page says invalid",
        "valid: the page says valid",
    ]
