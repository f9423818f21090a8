"""A stranger's environment: limits are named at once, proxies and long paths change nothing (J1, J3, J9).

`make environments` (`tests/environments.py`) runs the README's example in every environment of its table.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from long_runs import long_run
from waiting import until

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")
SENDS_AND_VERIFIES = """
    import pytest
    from confluent_kafka import Producer

    @pytest.mark.harrow(brokers=1)
    def test_it(harrow):
        orders = harrow.topic("orders")
        producer = Producer({"bootstrap.servers": harrow.bootstrap_servers})
        producer.produce("orders", "1")
        assert producer.flush(30) == 0
        harrow.verify(orders, guarantee="no-loss")
"""


def test_a_hard_limit_of_256_open_files_is_the_error_of_the_test_and_starts_nothing(pytester: pytest.Pytester) -> None:
    if shutil.which("prlimit") is None:
        pytest.skip("needs prlimit of util-linux")
    pytester.makepyfile(SENDS_AND_VERIFIES)
    command = ("prlimit", "--nofile=256:256", sys.executable, "-m", "pytest")
    result = pytester.run(*command, *QUIET, timeout=60)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E*LimitError: the hard limit of open files is 256 (`ulimit -Hn`), and a run needs 512: raise it*"]
    )
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    assert not list(pytester.path.glob("harrow-out/*/spark.log"))


@pytest.fixture
def long_tmpdir() -> Iterator[Path]:
    """A folder for temporary files with a path of 100 bytes, as CI runners and macOS have."""
    top = Path(tempfile.mkdtemp(prefix="h-", dir="/tmp"))
    folder = top / ("x" * (99 - len(str(top))))
    folder.mkdir()
    yield folder
    shutil.rmtree(top)


@long_run
def test_proxies_a_long_tmpdir_and_options_of_every_jvm_change_no_verdict(
    pytester: pytest.Pytester, long_tmpdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("TMPDIR", str(long_tmpdir))
    monkeypatch.setenv("_JAVA_OPTIONS", "-Xmx16m")
    monkeypatch.delenv("HARROW_RENDEZVOUS", raising=False)
    monkeypatch.delenv("HARROW_CONTROLLER", raising=False)
    pytester.makepyfile(SENDS_AND_VERIFIES)
    result = pytester.runpytest_subprocess(*QUIET, timeout=180)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_it: valid (no-loss)*"])
    until(lambda: not list(long_tmpdir.glob("harrow-spark-*")), "the owner of Spark to remove its folder")
