"""Repeating a failure: the command in its last line, one seed everywhere, and `--harrow-repeat` (J5)."""

from __future__ import annotations

import re
import shlex
import sys

import pytest
from long_runs import long_run

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider")
ALONE = (*QUIET, "-p", "no:xdist")
DRAWS_AND_FAILS = """
    import pytest
    from harrow import harrow_fixture

    small = harrow_fixture(brokers=1, seed=5)

    def draw(*runs):
        print("drawn", *(run.random.randrange(10**9) for run in runs))
        raise AssertionError

    def test_plain(harrow): draw(harrow)

    @pytest.mark.harrow(seed=11)
    def test_marked(harrow): draw(harrow)

    def test_factory(small): draw(small)

    def test_two_seeds(harrow, small): draw(harrow, small)

    @pytest.mark.harrow(seed=11)
    @pytest.mark.parametrize("text", ["a b", "c::d/e"])
    def test_parameters(harrow, text): draw(harrow)
"""


def drawn(result: pytest.RunResult) -> dict[str, str]:
    """The random numbers that each failed test drew, by the command that repeats it."""
    text = result.stdout.str()
    numbers = re.findall(r"^drawn (.*)$", text, re.MULTILINE)
    commands = re.findall(r"^repeat with: pytest (.*)$", text, re.MULTILINE)
    assert len(numbers) == len(commands)
    return dict(zip(commands, numbers, strict=True))


def test_the_last_line_of_each_failure_repeats_its_random_values(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(DRAWS_AND_FAILS)
    found = drawn(pytester.runpytest_inprocess(*ALONE))
    assert len(found) == 6
    for command, numbers in found.items():
        again = drawn(pytester.runpytest_inprocess(*ALONE, *shlex.split(command)))
        assert list(again.values()) == [numbers], command


def test_a_seed_of_the_command_line_replaces_all_pinned_seeds_also_when_repeated(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(DRAWS_AND_FAILS)
    found = drawn(pytester.runpytest_inprocess(*ALONE, "--harrow-seed=3", "-k", "two_seeds"))
    ((command, numbers),) = found.items()
    assert command.endswith("::test_two_seeds --harrow-seed=3")
    assert list(drawn(pytester.runpytest_inprocess(*ALONE, *shlex.split(command))).values()) == [numbers]


@long_run
def test_a_failure_in_a_worker_in_random_order_is_repeated_alone(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytest.importorskip("pytest_randomly")
    pytester.makepyfile(DRAWS_AND_FAILS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n2")
    found = drawn(result)
    command = next(command for command in found if "test_two_seeds" in command)
    again = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist", *shlex.split(command))
    assert list(drawn(again).values()) == [found[command]]


@long_run
def test_the_command_is_for_the_folder_in_which_pytest_was_started(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\n")
    folder = pytester.mkdir("deep")
    (folder / "test_it.py").write_text("def test_it(harrow): assert 0\n")
    result = pytester.run("sh", "-c", f"cd {folder} && {sys.executable} -m pytest -p no:xdist test_it.py")
    result.stdout.fnmatch_lines(["repeat with: pytest test_it.py::test_it --harrow-seed=*"])


def test_the_command_includes_the_settings_of_the_command_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(harrow): assert 0\n")
    ini = pytester.makefile(".ini", other="[pytest]\n")
    result = pytester.runpytest_inprocess(*ALONE, "-c", str(ini), "-o", "harrow_brokers=5", "-o", "harrow_seed=1")
    result.stdout.fnmatch_lines([f"repeat with: pytest *::test_it --harrow-seed=1 -c {ini} -o harrow_brokers=5"])


def test_header_verdict_page_and_junit_show_the_seed_of_the_option(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import json
        from harrow import Harrow

        def test_it(harrow: Harrow):
            topic = harrow.topic("orders")
            producer = harrow.producer()
            producer.produce(topic.name, b"order")
            producer.flush(30)
            assert "seed=4242" in repr(harrow)
            harrow.verify(topic, guarantee="no-loss")
            assert json.loads((harrow.folder / "run.json").read_text())["seed"] == 4242
        """
    )
    result = pytester.runpytest_subprocess(*ALONE, "--harrow-seed=4242", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["harrow: seed 4242, *"])
    assert '"harrow.seed" value="4242"' in (pytester.path / "junit.xml").read_text()
    (page,) = pytester.path.glob("harrow-out/*/*/report.html")
    assert re.search(r'"seed": ?"4242"', page.read_text())


@pytest.mark.parametrize("workers", [pytest.param((), id="alone"), pytest.param(("-n2",), id="xdist", marks=long_run)])
def test_harrow_repeat_runs_each_test_with_the_same_seed_and_counts_its_failures(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    if workers:
        pytest.importorskip("xdist")
    pytester.makepyfile(
        """
        import re
        import unittest
        import pytest

        class TestOfUnittest(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def cluster(self, harrow): pass

            def test_once(self): pass

        @pytest.fixture
        def number(request):
            return int(re.findall(r"(\\d+) of 10", request.node.nodeid)[0])

        @pytest.mark.parametrize("kind", ["x", "y"])
        def test_it(harrow, kind, number):
            with open(f"drawn-{kind}-{number}", "w") as file:
                file.write(str(harrow.random.random()))
            if kind == "x" and number % 3 == 0:
                raise ValueError("third")

        def test_without_harrow(): pass
        """
    )
    result = pytester.runpytest_subprocess(*QUIET, "--harrow-seed=17", "--harrow-repeat=10", *workers)
    result.assert_outcomes(passed=19, failed=3)
    result.stdout.fnmatch_lines(["harrow: seed 17, *, repeat 10"])
    name = next(iter(pytester.path.glob("test_*.py"))).name
    result.stdout.fnmatch_lines_random(
        [
            f"{name}::test_it[[]x[]]: came back in 3 of 10 runs with seed 17: 3 ValueError; 7 passed",
            f"{name}::test_it[[]y[]]: came back in 0 of 10 runs with seed 17; 10 passed",
        ]
    )
    assert "test_without_harrow: came back" not in result.stdout.str()
    for kind in "xy":
        files = list(pytester.path.glob(f"drawn-{kind}-*"))
        assert len(files) == 10
        assert len({file.read_text() for file in files}) == 1


def test_a_repeated_parameter_is_selected_by_its_own_node_id(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(DRAWS_AND_FAILS)
    result = pytester.runpytest_inprocess(*ALONE, f"{path}::test_parameters[a b]", "--harrow-repeat=3", "-x")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "repeat with: pytest '*::test_parameters[[]a b[]]' --harrow-seed=11",
            "*::test_parameters[[]a b[]]: came back in 1 of 1 runs (3 were planned) with seed 11: 1 *Error; *",
        ]
    )


@long_run
def test_repeats_on_a_shared_cluster_have_topics_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.harrow(brokers=1, scope="session")
        def test_it(harrow):
            harrow.topic("orders")
        """
    )
    pytester.runpytest_subprocess(*ALONE, "--harrow-repeat=3").assert_outcomes(passed=3)
