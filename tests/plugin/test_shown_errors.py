"""Errors of Harrow's in the terminal: a traceback that ends in the user's line, a short summary, ASCII where needed."""

from __future__ import annotations

import io
import re

import pytest
from harrow.harness.checks.verdict import Status, Verdict
from harrow.harness.checks.verdict_text import shortest_line
from harrow.harness.plain_text import encoded, write_plainly
from long_runs import long_run

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist")
FAILS = """
    import types
    import pytest
    from harrow import kill, leader
    from harrow.harness.checks import Status, Verdict
    from harrow.harness.run.harrow_run import HarrowRun

    @pytest.fixture(autouse=True)
    def no_cluster(monkeypatch):
        lost = Verdict(status=Status.INVALID, guarantees=("no-loss",), anomaly_counts={"lost-write": 689})
        monkeypatch.setattr(HarrowRun, "judged", lambda *_: lost)
        cluster = types.SimpleNamespace(brokers=[1], bootstrap_servers="127.0.0.1:1")
        monkeypatch.setattr(HarrowRun, "cluster", cluster)

    def test_shop_a(harrow): harrow.verify("orders")
    def test_shop_b(harrow): harrow.verify_pipeline("orders", "bills", record_id="id")
    def test_shop_c(harrow): harrow.chaos(cap=-1)
    def test_shop_d(harrow): harrow.topic("orders", partitions=0)
    def test_shop_e(harrow): harrow.producer(no_setting=1)

    @pytest.fixture
    def shop(harrow): return harrow.chaos(kill(leader("orders")), duration=-1)
    def test_in_setup(shop): pass
"""


def test_a_traceback_ends_in_the_users_line_and_the_summary_says_what_was_found(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    pytester.makepyfile(test_it=FAILS)
    result = pytester.runpytest_subprocess(*QUIET, "--harrow-brokers=1")
    result.assert_outcomes(failed=5, errors=1)
    said = result.stdout.str()
    assert re.findall(r"^(\S+\.py):\d+: ", said, re.MULTILINE) == ["test_it.py"] * 6
    summary = said.partition("short test summary info")[2]
    assert "FAILED test_it.py::test_shop_a - VerdictError: INVALID lost-write ×689\n" in summary
    assert "FAILED test_it.py::test_shop_b - VerdictError: INVALID lost-write ×689\n" in summary
    for name in "cd":
        assert f"test_shop_{name} - ConfigError: " in summary
    assert "test_shop_e - cimpl.KafkaException: " in summary
    assert "test_in_setup - ConfigError: " in summary

    full = pytester.runpytest_subprocess(*QUIET, "--harrow-brokers=1", "--full-trace", "-k", "shop_d")
    assert "harness/topics.py" in full.stdout.str()


@long_run
def test_a_terminal_without_the_signs_shows_ascii(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("COLUMNS", "80")
    pytester.makeconftest(
        """
        import pytest
        from harrow.harness.checks import Status, Verdict
        from harrow.harness.run.harrow import run_of

        @pytest.fixture(autouse=True)
        def judged(harrow):
            run_of(harrow).made.publish(Verdict(status=Status.VALID, guarantees=("no-loss",)))
        """
    )
    pytester.makepyfile(test_it="def test_shop(harrow): pass")
    said = pytester.runpytest_subprocess(*QUIET).stdout.str()
    assert "test_it.py::test_shop: valid (no-loss) - harrow-out" in said
    assert "\\x" not in said


@pytest.mark.parametrize(
    ("encoding", "errors", "written"),
    [
        ("ascii", "strict", rb"no-loss - lost-write x689 ... Zo\xeb"),
        ("ascii", "surrogateescape", rb"no-loss - lost-write x689 ... Zo\xeb"),
        ("ascii", "replace", b"no-loss ? lost-write ?689 ? Zo?"),
        ("latin-1", "strict", "no-loss · lost-write ×689 ... Zoë".encode("latin-1")),
        ("utf-8", "strict", "no-loss · lost-write ×689 … Zoë".encode()),
    ],
)
def test_a_stream_writes_what_it_can_encode(encoding: str, errors: str, written: bytes) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)
    undo = write_plainly(stream)
    stream.write("no-loss · lost-write ×689 … Zoë")
    stream.flush()
    assert stream.buffer.getvalue() == written
    undo()
    assert stream.errors == errors


def test_a_file_name_that_is_no_text_is_written_as_it_is() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert encoded("orders-\udcff ·", stream) == b"orders-\xff -"
    assert write_plainly(io.StringIO())() is None


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"anomaly_counts": {"duplicate": 3, "lost-write": 1689}}, "INVALID lost-write ×1,689"),
        (
            {"guarantees": ("exactly-once",), "anomaly_counts": {"duplicate": 3, "lost-write": 2}},
            "INVALID lost-write ×2, duplicate ×3",
        ),
        ({"status": Status.UNKNOWN, "reasons": ("no fault\nwas injected", "more")}, "UNKNOWN no fault was injected"),
        ({"status": Status.VALID}, "VALID no-loss"),
    ],
)
def test_the_shortest_line_has_the_forbidden_kinds_or_the_first_reason(fields: dict[str, object], line: str) -> None:
    given: dict[str, object] = {"status": Status.INVALID, "guarantees": ("no-loss",), **fields}
    assert shortest_line(Verdict(**given)) == line  # type: ignore[arg-type]
