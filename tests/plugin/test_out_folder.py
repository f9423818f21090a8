"""The out folder: what happens where it cannot be written, what git sees of it, and which runs stay (J1, J8)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harrow.harness.out_folder import claim, prepare, prune, why_not_writable
from long_runs import long_run

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider")
STARTS_A_CLUSTER = """
    import pytest

    @pytest.mark.harrow(brokers=1)
    @pytest.mark.parametrize("number", [1, 2])
    def test_it(harrow, number):
        harrow.topic("orders")
"""


@pytest.fixture
def temporary(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of the pytest runs of a test."""
    folder = pytester.mkdir("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def block(path: Path) -> None:
    """Let no folder be made at `path`, also not by root."""
    path.write_text("a file")


@pytest.mark.parametrize(
    "workers", [pytest.param(("-p", "no:xdist"), id="alone"), pytest.param(("-n2",), id="xdist", marks=long_run)]
)
def test_a_working_folder_that_cannot_be_written_is_replaced_by_a_temporary_one(
    pytester: pytest.Pytester, temporary: Path, workers: tuple[str, ...]
) -> None:
    if "-n2" in workers:
        pytest.importorskip("xdist")
    pytester.makepyfile(STARTS_A_CLUSTER)
    block(pytester.path / "harrow-out")
    result = pytester.runpytest_subprocess(*QUIET, *workers, "--harrow-keep")
    result.assert_outcomes(passed=2)
    (folder,) = temporary.glob("harrow-out-*")
    result.stdout.fnmatch_lines([f"harrow: *out {folder}, because harrow-out cannot be written (*: Not a directory)*"])
    assert len(list(folder.glob("**/test_it-*"))) == 2


def test_an_out_folder_of_the_command_line_that_cannot_be_written_is_a_usage_error(
    pytester: pytest.Pytester, temporary: Path
) -> None:
    pytester.makepyfile(STARTS_A_CLUSTER)
    block(pytester.path / "results")
    result = pytester.runpytest_subprocess(*QUIET, "-p", "no:xdist", "--harrow-out=results/here")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--harrow-out=results/here: Harrow cannot write there (*/results: Not a directory); name*"]
    )
    assert "Traceback" not in result.stderr.str()
    assert not list(temporary.iterdir())


def test_a_run_without_a_cluster_leaves_no_folder_behind(pytester: pytest.Pytester, temporary: Path) -> None:
    pytester.makepyfile("def test_it(harrow): pass")
    block(pytester.path / "harrow-out")
    pytester.runpytest_subprocess(*QUIET, "-p", "no:xdist").assert_outcomes(passed=1)
    assert not list(temporary.glob("harrow-out-*"))


def test_git_ignores_the_out_folder_and_old_runs_are_removed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(STARTS_A_CLUSTER)
    out = pytester.mkdir("harrow-out")
    old, recent, running = (
        out / name
        for name in ("20200101-000000-999999999", "20210101-000000-999999999", f"20190101-000000-{os.getpid()}")
    )
    for folder in (old, recent, running, out / "demo", out / "mine"):
        (folder / "deep").mkdir(parents=True)
    pytester.runpytest_subprocess(*QUIET, "-p", "no:xdist", "--harrow-keep-runs=2").assert_outcomes(passed=2)
    assert (out / ".gitignore").read_text().splitlines()[-1] == "*"
    assert not old.exists()
    for folder in (recent, running, out / "demo", out / "mine"):
        assert folder.exists()


def test_a_gitignore_of_the_user_stays(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("demo/\n")
    prepare(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "demo/\n"


def test_the_check_leaves_nothing_behind(tmp_path: Path) -> None:
    assert not why_not_writable(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    block(tmp_path / "a")
    assert why_not_writable(tmp_path / "a" / "b") == f"{tmp_path / 'a'}: Not a directory"


def test_commands_in_two_terminals_have_folders_of_their_own(tmp_path: Path) -> None:
    wanted = tmp_path / "out" / "demo"
    claims = [claim(wanted) for _ in range(3)]  # as of three processes: each opens the lock file
    assert claims == [wanted, wanted.with_name("demo-2"), wanted.with_name("demo-3")]
    assert (tmp_path / "out" / ".gitignore").exists()


def test_pruning_a_folder_that_does_not_exist_removes_nothing(tmp_path: Path) -> None:
    assert prune(tmp_path / "none", 1) == []
