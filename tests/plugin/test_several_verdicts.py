"""Each `verify` of a test keeps its verdict and its page; a valid verdict hides no other (J5, J7, J8)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harrow.harness import run_folder
from harrow.harness.checks.promise_findings import PromiseFindings, read_findings, write_findings
from harrow.harness.checks.verdict import Status, Verdict
from harrow.harness.reports.index_page import IndexRow, JudgedTest, render

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")
JUDGED_BY_HAND = """
    import pytest
    from harrow.harness.checks import Status, Verdict
    from harrow.harness.run.harrow_run import HarrowRun
    from harrow.harness.verdict.verifier import RunVerifier

    def judged(self, topics, guarantee, *_):
        # what `verify` does, without a cluster and without Spark
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.failures.making_a_verdict():
            found = {"lost-write": 689} if guarantee == "no-loss" else {}
            status = Status.INVALID if found else Status.VALID
            verdict = Verdict(status=status, guarantees=(guarantee,), anomaly_counts=found)
            self._verifier._written(verdict, self.made.next_number)
        return self.made.publish(verdict)

    @pytest.fixture(autouse=True)
    def no_cluster(monkeypatch):
        monkeypatch.setattr(HarrowRun, "judged", judged)
"""


def run(pytester: pytest.Pytester, source: str) -> pytest.RunResult:
    pytester.makeconftest(JUDGED_BY_HAND)
    pytester.makepyfile(test_shop=source)
    return pytester.runpytest_subprocess(*QUIET, "--junitxml=junit.xml")


def pages_by_line(said: str) -> list[tuple[str, str]]:
    """The test and the status of each verdict line, each with the status on the page that it links."""
    found: list[tuple[str, str]] = []
    for words, page in re.findall(r"^test_shop.py::(\w+: \w+) .* · (\S+\.html)$", said, re.MULTILINE):
        shown = re.search(r'"status":"(\w+)"', Path(page).read_text())
        assert shown
        found.append((words, shown[1]))
    return found


def cards(index: str) -> dict[str, tuple[str, list[str]]]:
    """The state and the labels of the links of each test's card."""
    found = re.findall(r'<section class="card found.*?</section>', index, re.DOTALL)
    return {
        re.findall(r'class="name">.*?::(\w+)<', card)[0]: (
            re.findall(r'class="badge \w+">(\w+)<', card)[0],
            re.findall(r"<a href=[^>]*>([^<]*)</a>", card),
        )
        for card in found
    }


def test_two_verdicts_of_a_test_have_a_file_a_page_a_line_and_a_link_each(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from harrow import VerdictError

        def test_twice(harrow):
            with pytest.raises(VerdictError, match=r"report: .*/report.html"):
                harrow.verify("orders", guarantee="no-loss")
            assert harrow.verify("orders", guarantee="ordered").valid
            with pytest.raises(VerdictError, match=r"report: .*/report-3.html"):
                harrow.verify("orders", guarantee="no-loss")
        """,
    )
    result.assert_outcomes(passed=1)
    lines = pages_by_line(result.stdout.str())
    states = ["invalid", "valid", "invalid"]
    assert lines == [(f"test_twice: {status}", status) for status in states]
    index = (pytester.path / "harrow-out" / "index.html").read_text()
    assert cards(index) == {"test_twice": ("PASSED", [f"report: {status}" for status in states])}
    (folder,) = {path.parent for path in pytester.path.glob("harrow-out/*/*/verdict.json")}
    found = [Verdict.from_json(path.read_text()) for path in run_folder.verdict_files(folder)]
    assert [verdict.status.value for verdict in found] == states
    junit = (pytester.path / "junit.xml").read_text()
    assert len(re.findall(r'name="harrow.page(?:-[23])?" value="[^"]*.html"', junit)) == 3


def test_tests_that_share_a_cluster_have_only_their_own_verdicts_on_their_cards(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_lost(harrow_session):
            harrow_session.verify("orders", guarantee="no-loss")

        def test_good(harrow_session):
            harrow_session.verify("orders", guarantee="ordered")

        def test_quiet(harrow_session):
            assert harrow_session.verdicts
        """,
    )
    result.assert_outcomes(passed=2, failed=1)
    assert pages_by_line(result.stdout.str()) == [("test_lost: invalid", "invalid"), ("test_good: valid", "valid")]
    index = (pytester.path / "harrow-out" / "index.html").read_text()
    found = cards(index)
    assert found["test_lost"] == ("INVALID", ["report"])
    assert found["test_good"] == ("VALID", ["report"])
    assert found["test_quiet"][0] == "PASSED"


def write(folder: Path, *states: Status) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / run_folder.numbered("verdict.json", number) for number in range(1, len(states) + 1)]
    for path, status in zip(files, states, strict=True):
        Verdict(status=status, guarantees=("no-loss",)).write(path)
        run_folder.page_of(path).write_text(status.value)
    return files


def test_files_are_in_the_order_of_the_verdicts_and_each_has_its_page(tmp_path: Path) -> None:
    files = write(tmp_path, *[Status.VALID] * 11)
    (tmp_path / "verdict-mine.json").write_text("{}")
    assert run_folder.verdict_files(tmp_path) == files
    pages = [run_folder.page_of(path).name for path in files]
    assert pages[:2] + pages[-1:] == ["report.html", "report-2.html", "report-11.html"]
    run_folder.remove_results(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["verdict-mine.json"]


def test_a_later_valid_verdict_hides_no_other_on_the_card(tmp_path: Path) -> None:
    write(tmp_path / "it", Status.UNKNOWN, Status.INVALID, Status.VALID)
    row = IndexRow(test="t.py::test_it", outcome="failed", folders=(tmp_path / "it",))
    assert JudgedTest(row).state == "invalid"
    (card,) = cards(render([row], tmp_path, title="Run")).values()
    assert card == ("INVALID", ["report: unknown", "report: invalid", "report: valid"])


def test_a_run_knows_topics_and_promises_of_each_verdict(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema_version": 1}')
    run_folder.note_verdict(tmp_path, 1, ["orders"], promised=True)
    run_folder.note_verdict(tmp_path, 2, ["bills"], promised=False)
    run_folder.note_verdict(tmp_path, 2, ["bills", "orders"], promised=False)
    assert run_folder.topics_of_verdict(tmp_path, 1) == ["orders"]
    assert run_folder.topics_of_verdict(tmp_path, 2) == ["bills", "orders"]
    assert run_folder.topics_of_verdict(tmp_path, 3) == []
    assert run_folder.read_run(tmp_path)["promised"] is True
    run_folder.check_run(tmp_path)

    write_findings(tmp_path, ["orders"], PromiseFindings(anomaly_counts={"missing": 1}), number=1)
    write_findings(tmp_path, ["orders"], None, number=2)
    first = read_findings(tmp_path, ["orders"])
    assert first is not None
    assert first.anomaly_counts == {"missing": 1}
    assert read_findings(tmp_path, ["orders"], number=2) is None
