"""Property-based tests: `@given` and state machines on clusters, without suppressed health checks (J1, K9)."""

from __future__ import annotations

import pytest
from harrow.harness.plugin.shrinking_tests import ShrinkFailures
from long_runs import long_run

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "error")
TESTS = """
    import pytest
    from confluent_kafka import Producer
    from harrow import Topic
    from harrow.strategies import HarrowMachine, cluster_settings, faults
    from hypothesis import given, settings
    from hypothesis import strategies as st
    from hypothesis.stateful import rule

    pytestmark = pytest.mark.harrow(engine="inline", brokers=1)
    FAULTS = faults(kinds=["pause"], topics=[Topic(name="orders")], seconds=(0.5, 1.5))
    DRAWN = st.lists(FAULTS, min_size=1, max_size=3)
    # librdkafka looks at message.timeout.ms once a second
    LONGER = st.lists(
        faults(kinds=["pause"], topics=[Topic(name="orders")], seconds=(2.0, 2.5)), min_size=1, max_size=2
    )

    class Shop:
        def __init__(self, servers, **config):
            self.producer = Producer({"bootstrap.servers": servers, "log_level": 0, **config})
            self.placed = []
            self.number = 0

        def place(self):
            self.producer.produce("orders", '{"order": %d}' % self.number)
            self.placed.append(self.number)
            self.number += 1
            self.producer.poll(0.02)

    WRONG = {"message.timeout.ms": 200}    # and it does not look at the delivery reports

    def place_orders(harrow_examples, faults, **config):
        with harrow_examples() as harrow:
            orders = harrow.topic("orders")
            shop = Shop(harrow.bootstrap_servers, **config)
            with harrow.chaos(*faults) as chaos:
                while chaos.running:
                    shop.place()
                shop.producer.flush(30)
            harrow.verify(orders, guarantee="no-loss", record_id="order", expected=shop.placed)

    @settings(cluster_settings, max_examples=2)
    @given(DRAWN)
    def test_right(harrow_examples, faults):
        place_orders(harrow_examples, faults)

    @settings(cluster_settings, max_examples=5)
    @given(LONGER)
    def test_wrong(harrow_examples, faults):
        place_orders(harrow_examples, faults, **WRONG)

    class RightShop(HarrowMachine):
        kinds = ("pause",)
        guarantee = "no-loss"
        config = {}

        def begin(self):
            self.orders = self.topic("orders")
            self.shop = Shop(self.harrow.bootstrap_servers, **self.config)

        @rule(count=st.integers(1, 5))
        def place_orders(self, count):
            for _ in range(count):
                self.shop.place()
            self.shop.producer.flush(30)

        def judge(self):
            self.harrow.verify(guarantee="no-loss", record_id="order", expected=self.shop.placed)

    class WrongShop(RightShop):
        config = WRONG
        seconds = (1.0, 1.5)

    def test_machine_right(harrow_examples):
        RightShop.run(harrow_examples, settings(cluster_settings, max_examples=6, stateful_step_count=6))

    def test_machine_wrong(harrow_examples):
        WrongShop.run(harrow_examples, settings(cluster_settings, max_examples=20, stateful_step_count=5))

    class TestWithoutFixture(RightShop.TestCase):
        pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """The tests, run as a stranger would run them: with Hypothesis's plugin."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:faker")
    pytester.makepyfile(TESTS)
    return pytester


def test_given_makes_a_cluster_and_a_verdict_for_each_example(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(*QUIET, "-k", "test_right", "--junitxml=junit.xml")
    result.assert_outcomes(passed=1)
    assert 'name="harrow.examples" value="2 (2 valid)"' in (project.path / "junit.xml").read_text()
    assert len(list(project.path.glob("harrow-out/*/test_right-*"))) == 1


@long_run
def test_a_machine_without_the_fixture_says_what_to_write(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(*QUIET, "-k", "TestWithoutFixture")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*call RightShop.run(harrow_examples)*"])


def test_shrinking_of_schedules_leaves_examples_to_hypothesis(pytester: pytest.Pytester) -> None:
    item = pytester.getitem("def test_it(harrow_examples): raise ValueError", "test_it")
    assert ShrinkFailures(3).pytest_runtest_protocol(item, None) is None


@long_run
def test_a_wrong_application_is_found_and_shrunk_to_one_fault(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(*QUIET, "-k", "test_wrong")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines_random(  # a flaky example is printed the other way round
        ["*VerdictError: INVALID*", "*faults=[[]pause(leader('orders'), seconds=*)[]],*"]
    )


@long_run
def test_a_machine_is_valid_or_shrunk_to_a_fault_and_an_operation(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(*QUIET, "-k", "test_machine")
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert "VerdictError: INVALID" in text
    assert "state.inject(fault=pause(" in text
