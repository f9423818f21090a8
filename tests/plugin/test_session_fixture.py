"""`harrow_session`: one cluster for the tests of a worker and for the user's own session fixtures (J1)."""

from __future__ import annotations

import re

import pytest
from long_runs import long_run

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider")
SHOP = """
    import os
    import time

    import pytest
    from confluent_kafka import Producer
    from harrow import Harrow, kill, leader

    class Shop:
        def __init__(self, servers, topic):
            self.topic = topic
            self.producer = Producer({"bootstrap.servers": servers, "linger.ms": 1, "enable.idempotence": True,
                                      "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 200})

        def place_orders(self, running):
            number = 0
            while running():
                self.producer.produce(self.topic, f"order {number}", key=str(number % 7))
                self.producer.poll(0)
                time.sleep(0.01)
                number += 1
            assert self.producer.flush(60) == 0

    @pytest.fixture(scope="session")
    def shop(harrow_session: Harrow):
        print("shop was started")
        return Shop(harrow_session.bootstrap_servers, harrow_session.topic("orders", partitions=2).name)

    @pytest.mark.parametrize("number", [1, 2])
    def test_orders(harrow_session: Harrow, shop, number):
        assert harrow_session.topic("orders", partitions=2).name == "orders"
        print("drawn", number, harrow_session.random.random())
        if "ONLY_DRAWS" in os.environ:
            return
        with harrow_session.chaos(kill(leader("orders"), seconds=0.5)) as chaos:
            shop.place_orders(lambda: chaos.running)
        harrow_session.verify("orders", guarantee="no-loss")
"""


def test_tests_share_the_cluster_and_the_service_and_each_has_its_verdict(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(SHOP)
    result = pytester.runpytest_subprocess(*QUIET, "-p", "no:xdist", "-s", "--harrow-seed=8", "--junitxml=junit.xml")
    result.assert_outcomes(passed=2)
    text = result.stdout.str()
    assert text.count("shop was started") == 1
    for number in (1, 2):
        assert re.search(rf"^\S+::test_orders\[{number}\]: valid \(no-loss\)", text, re.MULTILINE)
    assert (pytester.path / "junit.xml").read_text().count('name="harrow.verdict"') == 2
    (folder,) = pytester.path.glob("harrow-out/*/harrow_session")
    assert not (folder / "cluster").exists()
    values = dict(re.findall(r"drawn (\d) (\S+)", text))
    assert len(set(values.values())) == 2

    monkeypatch.setenv("ONLY_DRAWS", "1")
    alone = pytester.runpytest_subprocess(*QUIET, "-p", "no:xdist", "-s", "--harrow-seed=8", "-k", "orders and 2")
    assert dict(re.findall(r"drawn (\d) (\S+)", alone.stdout.str())) == {"2": values["2"]}


@long_run
def test_a_failure_of_one_test_shows_its_verdict_and_keeps_the_data(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        SHOP.replace("            shop.place_orders(lambda: chaos.running)\n", BREAKS_IN_THE_SECOND_TEST)
    )
    result = pytester.runpytest_subprocess(*QUIET, "-p", "no:xdist")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*- harrow verdict (harrow_session) -*", "repeat with: pytest *::test_orders[[]2[]]'*"]
    )
    (folder,) = pytester.path.glob("harrow-out/*/harrow_session")
    assert (folder / "cluster").exists()


BREAKS_IN_THE_SECOND_TEST = """\
            shop.place_orders(lambda: chaos.running)
        if number == 2:
            raise ValueError("my own bug")
"""


def test_arguments_and_options_choose_the_cluster_of_a_session_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from harrow import harrow_session_fixture

        small = harrow_session_fixture(brokers=1, seed=4)

        def test_it(small, harrow_session):
            assert (small.brokers, small.seed) == (1, 4)
            assert (harrow_session.brokers, harrow_session.seed) == (2, 9)
            assert not small.folder.exists()
        """
    )
    pytester.runpytest_inprocess(
        *QUIET, "-p", "no:xdist", "-o", "harrow_brokers=2", "-o", "harrow_seed=9"
    ).assert_outcomes(passed=1)


@long_run
def test_clusters_without_a_verdict_belong_to_their_test_in_the_index(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from harrow import harrow_fixture, harrow_session_fixture

        small = harrow_fixture(brokers=1)
        shared = harrow_session_fixture(brokers=1)

        def test_it(small, shared):
            small.topic("orders")
            shared.topic("orders")
        """
    )
    pytester.runpytest_subprocess(*QUIET, "-p", "no:xdist").assert_outcomes(passed=1)
    index = (pytester.path / "harrow-out" / "index.html").read_text()
    assert "::test_it" in index
    assert "interrupted" not in index.split("</style>")[-1]
