"""The plugin as a user meets it: options, marker, ini, header, errors, the line that repeats a failure (J1, J5)."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*QUIET, "-p", "no:xdist", *arguments)


def test_importing_the_plugin_imports_no_heavy_module() -> None:
    code = (
        "import sys, pytest, harrow, harrow.harness.plugin.hooks;"
        "heavy = {'pyspark', 'polars', 'pyarrow', 'numpy', 'confluent_kafka', 'faker', 'kio', 'grpc',"
        " 'harrow.cluster', 'harrow.cluster.supervisor', 'harrow.faults', 'harrow.harness.run.harrow'};"
        "sys.exit(f'imported {sorted(heavy & set(sys.modules))}' if heavy & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_run_without_harrow_imports_only_the_modules_of_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure():
            print("imported", *sorted(name for name in sys.modules if name.partition(".")[0] == "harrow"))
        """
    )
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess(*QUIET, "-p", "no:xdist")
    (imported,) = re.findall(r"^imported (.*)$", result.stdout.str(), re.MULTILINE)
    plugin = ("attempts", "fixtures", "hooks", "options", "requested_fixtures", "run_index", "workers")
    modules = [
        *("", ".backends", ".backends.choice", ".engines", ".out_folder", ".plain_text", ".plugin"),
        *(f".plugin.{name}" for name in plugin),
        *(".security", ".security.choice", ".seeds", ".user_spark"),
    ]
    assert imported.split() == ["harrow", *(f"harrow.harness{name}" for name in modules)]


def test_the_header_shows_seed_and_brokers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    result = run(pytester, "--harrow-seed=12345", "--harrow-set=min.insync.replicas=1")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["harrow: seed 12345, brokers 3, out harrow-out, min.insync.replicas=1"])


def test_without_a_seed_option_each_run_draws_another_seed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    seeds = {re.findall(r"harrow: seed (\d+)", run(pytester).stdout.str())[0] for _ in range(2)}
    assert len(seeds) == 2


def test_a_test_that_uses_no_cluster_starts_nothing_and_writes_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(harrow):
            assert harrow.random.random() != harrow.random.random()
            assert harrow.values.name()
            assert not harrow.folder.exists()
        """
    )
    run(pytester, "--harrow-seed=1").assert_outcomes(passed=1)
    assert not (pytester.path / "harrow-out").exists()


def test_a_flag_overrides_the_marker_the_ini_file_and_the_default(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_plain(harrow): print(f"plain={harrow.brokers}")

        @pytest.mark.harrow(brokers=4)
        def test_marked(harrow): print(f"marked={harrow.brokers}")
        """
    )

    def brokers(*flags: str) -> list[str]:
        return re.findall(r"=(\d)$", run(pytester, "-s", *flags).stdout.str(), re.MULTILINE)

    assert brokers() == ["3", "4"]
    pytester.makeini("[pytest]\nharrow_brokers = 2\n")
    assert brokers() == ["2", "4"]
    assert brokers("--harrow-brokers=5") == ["5", "5"]


def test_broker_settings_of_all_sources_are_merged(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nharrow_set =\n  min.insync.replicas=1\n  num.partitions=7\n")
    pytester.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.harrow(config={"num.partitions": 8, "internal.segment.bytes": 1000})

        @pytest.mark.harrow(config={"internal.segment.bytes": 2000})
        def test_it(harrow):
            assert harrow._run._config == {"min.insync.replicas": "1", "num.partitions": 8,
                                      "internal.segment.bytes": "4000"}
        """
    )
    run(pytester, "--harrow-set=internal.segment.bytes=4000").assert_outcomes(passed=1)


def test_kafkas_defaults_are_below_all_settings_that_are_given(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nharrow_defaults = kafka\nharrow_set =\n  min.insync.replicas=2\n")
    pytester.makepyfile(
        """
        import pytest
        from harrow import harrow_fixture

        mine = harrow_fixture(defaults="harrow")

        def test_ini(harrow):
            assert harrow._run._config["group.initial.rebalance.delay.ms"] == 3000
            assert harrow._run._config["offsets.topic.num.partitions"] == 50
            assert harrow._run._config["min.insync.replicas"] == "2"

        @pytest.mark.harrow(defaults="harrow")
        def test_marker(harrow): assert harrow._run._config == {"min.insync.replicas": "2"}

        def test_fixture(mine): assert mine._run._config == {"min.insync.replicas": "2"}
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["harrow: seed *, defaults kafka, *"])
    result = run(pytester, "--harrow-defaults=apache")
    assert "--harrow-defaults: 'apache': expected harrow or kafka" in result.stderr.str()


def test_the_release_of_brokers_is_a_setting_that_config_overrides(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nharrow_as_version = 4.0\n")
    pytester.makepyfile(
        """
        import pytest
        from harrow import harrow_fixture

        mine = harrow_fixture(as_version="4.2", config={"num.partitions": 2})

        def test_ini(harrow): assert harrow._run._config == {"harrow.as.version": "4.0"}

        @pytest.mark.harrow(as_version="4.4")
        def test_marker(harrow): assert harrow._run._config == {"harrow.as.version": "4.4"}

        def test_fixture(mine): assert mine._run._config == {"harrow.as.version": "4.2", "num.partitions": 2}

        @pytest.mark.harrow(config={"harrow.as.version": "3.9"})
        def test_config(harrow): assert harrow._run._config == {"harrow.as.version": "3.9"}
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["harrow: seed *, as version 4.0*"])
    result = run(pytester, "--harrow-as-version=4.1")
    assert "--harrow-as-version: '4.1': expected 3.9 or 4.0 or 4.2 or 4.4" in result.stderr.str()


def test_an_invalid_option_is_a_usage_error(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--harrow-brokers=0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--harrow-brokers: 0: expected a whole number from 1 to 64" in result.stderr.str()
    assert "Traceback" not in result.stderr.str()


def test_an_invalid_marker_is_a_usage_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.harrow(broker=5)
        def test_it(harrow): pass
        """
    )
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "::test_it: @pytest.mark.harrow: no argument 'broker'; did you mean brokers?" in result.stderr.str()


def test_an_invalid_ini_value_is_reported_with_its_setting(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nharrow_brokers = some\n")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "harrow_brokers: 'some'" in result.stderr.str()


def test_a_failure_ends_with_the_command_that_repeats_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(harrow):\n    print('noise')\n    assert harrow.seed < 0\n")
    result = run(pytester, "--harrow-seed=7", "--harrow-brokers=2")
    result.assert_outcomes(failed=1)
    line = "pytest *::test_it --harrow-seed=7 --harrow-brokers=2"
    result.stdout.fnmatch_lines(["*Captured stdout*", "*- harrow -*", f"repeat with: {line}"])
    words = re.findall(r"repeat with: pytest (.*)", result.stdout.str())[0].split()
    again = run(pytester, *words)
    seed = r"assert (\d+) < 0"
    assert re.findall(seed, again.stdout.str()) == re.findall(seed, result.stdout.str()) != []


def test_the_repeat_command_includes_the_seed_of_pytest_randomly(pytester: pytest.Pytester) -> None:
    pytest.importorskip("pytest_randomly")
    pytester.makepyfile("def test_it(harrow):\n    assert 0\n")
    result = pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:cacheprovider", "--randomly-seed=99")
    result.stdout.fnmatch_lines(["repeat with: pytest *::test_it --harrow-seed=* --randomly-seed=99"])


def test_child_seeds_depend_on_the_seed_and_the_name_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pathlib

        def note(harrow):
            with open("seeds", "a") as file:
                file.write(f"{harrow.random.random()} {harrow.faker.name()} {harrow.values.name()}\\n")

        def test_a(harrow): note(harrow)
        def test_b(harrow): note(harrow)
        """
    )
    run(pytester, "--harrow-seed=1").assert_outcomes(passed=2)
    run(pytester, "--harrow-seed=1").assert_outcomes(passed=2)
    run(pytester, "--harrow-seed=2").assert_outcomes(passed=2)
    a, b, *rest = (pytester.path / "seeds").read_text().splitlines()
    assert a != b
    assert rest[:2] == [a, b]
    assert not {a, b} & set(rest[2:])


def test_harrow_fixture_makes_fixtures_with_their_own_options(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        from harrow import harrow_fixture

        small = harrow_fixture(brokers=1)
        big = harrow_fixture(brokers=5, config={"num.partitions": 2})
        """
    )
    pytester.makepyfile(
        """
        def test_it(harrow, small, big):
            assert (harrow.brokers, small.brokers, big.brokers) == (3, 1, 5)
            assert harrow.seed == small.seed == big.seed
            assert len({run.random.random() for run in (harrow, small, big)}) == 3
            assert len({harrow.folder, small.folder, big.folder}) == 3
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_help_markers_and_fixtures_list_harrow(pytester: pytest.Pytester) -> None:
    said = run(pytester, "--help").stdout.str()
    assert "--harrow-seed=N" in said
    assert "harrow_brokers" in said
    assert "@pytest.mark.harrow(brokers=3" in run(pytester, "--markers").stdout.str()
    assert "A Kafka cluster with faults and verdicts" in run(pytester, "--fixtures").stdout.str()


@pytest.mark.parametrize(
    "option",
    [
        "--fixtures",
        "--fixtures-per-test",
        "--collect-only",
        "--setup-plan",
        "--setup-only",
        "--markers",
        "--help",
        "--version",
    ],
)
def test_an_option_that_only_shows_something_starts_no_spark_and_makes_no_folder(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    started: list[object] = []

    def spark(*of: object) -> None:
        started.append(of)

    monkeypatch.setattr("harrow.harness.plugin.workers.Worker.spark", spark)
    pytester.makepyfile("def test_it(harrow):\n    harrow.verify('orders')\n")
    assert run(pytester, option).ret == pytest.ExitCode.OK
    assert started == []
    assert [path.name for path in pytester.path.iterdir() if path.suffix != ".py" and path.name != "__pycache__"] == []


def test_xdist_workers_and_a_run_without_them_share_the_seed_and_workers_have_separate_folders(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(
        """
        import pytest
        from harrow.harness.plugin.repeating import repeat_line

        GROUPED = pytest.param(3, marks=pytest.mark.xdist_group("group of its own"))

        @pytest.mark.parametrize("n", [0, 1, 2, GROUPED])
        def test_it(harrow, request, n):
            run = harrow.folder.parent
            worker = getattr(request.config, "workerinput", {}).get("workerid", "alone")
            if worker != "alone":
                assert run.name == worker
                run = run.parent
            assert f"::test_it[{n}]' " in repeat_line(request.node)
            with open(f"seeds-{worker}", "a") as file:
                file.write(f"{n} {harrow.random.random()} {run.name}\\n")
        """
    )

    def lines(*arguments: str) -> tuple[set[str], set[str]]:
        pytester.runpytest_subprocess(*QUIET, "--harrow-seed=5", *arguments).assert_outcomes(passed=4)
        rows = [row.split() for path in pytester.path.glob("seeds-*") for row in path.read_text().splitlines()]
        for path in pytester.path.glob("seeds-*"):
            path.unlink()
        return {f"{n} {seed}" for n, seed, _ in rows}, {run for _, _, run in rows}

    first, runs = lines("-n2", "--dist=loadgroup")
    again, other = lines("-p", "no:xdist")
    assert first == again
    assert len(runs) == len(other) == 1
    assert runs != other
