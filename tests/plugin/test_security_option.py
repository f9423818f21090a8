"""The option `security` of flag, marker and factories: with xdist, sessions, shared clusters, repeated (A5, J1)."""

from __future__ import annotations

import shlex

import pytest
from long_runs import long_run

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider")
ALONE = (*QUIET, "-p", "no:xdist")
TESTS = """
    import pytest
    from harrow import Security, harrow_fixture, harrow_session_fixture

    shared = harrow_fixture(security=Security("sasl_ssl", users=("alice",)), brokers=1, scope="session")
    session = harrow_session_fixture(security="sasl_plaintext:PLAIN", brokers=1)

    def deliver(harrow, user):
        topic = harrow.topic("orders")
        producer = harrow.producer(user=user)
        producer.produce(topic.name, b"x")
        assert producer.flush(20) == 0
        harrow.verify(topic, guarantee="no-loss")

    @pytest.mark.parametrize("user", ["alice", "bob"])
    def test_shared(shared, user):
        deliver(shared, user)
        assert (shared.folder / "security" / "ca.pem").exists()

    @pytest.mark.parametrize("user", ["alice", "bob"])
    def test_session(session, user):
        deliver(session, user)

    @pytest.mark.harrow(security="mtls", brokers=1)
    def test_marked(harrow):
        deliver(harrow, "alice")
"""


@pytest.mark.parametrize(
    "workers", [pytest.param((), id="alone"), pytest.param(("-n", "2"), id="xdist", marks=long_run)]
)
def test_shared_clusters_sessions_and_workers_have_users_of_their_own(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess(*QUIET, "--harrow-engine=inline", *workers)
    result.assert_outcomes(passed=5)


def test_the_command_that_repeats_a_failure_has_the_flag_and_the_report_names_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(harrow):
            topic = harrow.topic("orders")
            print("reached by", harrow.client_config()["security.protocol"])
            harrow.verify(topic, guarantee="no-loss")
        """
    )
    first = pytester.runpytest_subprocess(
        *ALONE, "--harrow-engine=inline", "--harrow-security=sasl_ssl:PLAIN", "--harrow-brokers=1"
    )
    first.assert_outcomes(failed=1)  # nothing was acknowledged
    first.stdout.fnmatch_lines(["harrow: seed *, brokers 1, *security sasl_ssl:PLAIN*"])
    line = next(row for row in first.outlines if row.startswith("repeat with: pytest "))
    words = shlex.split(line.removeprefix("repeat with: pytest "))
    assert "--harrow-security=sasl_ssl:PLAIN" in words
    pages = list(pytester.path.glob("harrow-out/*/*/report.html"))
    assert any("sasl_ssl:PLAIN" in page.read_text() for page in pages)
    again = pytester.runpytest_subprocess(*ALONE, *words)
    again.stdout.fnmatch_lines(["reached by SASL_SSL"])


def test_unknown_values_are_usage_errors(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(harrow): pass")
    result = pytester.runpytest_subprocess(*ALONE, "--harrow-security=sasl-ssl")
    expected = "*--harrow-security: 'sasl-ssl': expected none, ssl, mtls, sasl_plaintext or sasl_ssl; did you mean*"
    result.stderr.fnmatch_lines([expected])
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.harrow(security="sasl_ssl", config={"listeners": "CLIENTS://127.0.0.1:0"})
        def test_it(harrow):
            harrow.bootstrap_servers
        """
    )
    result = pytester.runpytest_subprocess(*ALONE)
    result.stdout.fnmatch_lines(["*security=sasl_ssl:SCRAM-SHA-512 sets listeners: leave it out of config*"])
