"""Long waits of a test are lines on the real stderr, and end with the cause and the remedy (J1, J9)."""

from __future__ import annotations

import pytest
from harrow import Harrow, HarrowError
from harrow.cluster import wait_notes
from harrow.harness import topics

USER = """
    import time

    import pytest
    from confluent_kafka import Producer
    from harrow import Harrow, leader, pause
    from harrow.cluster import wait_notes

    @pytest.mark.harrow(brokers=1)
    def test_orders(harrow: Harrow, monkeypatch) -> None:
        monkeypatch.setattr(wait_notes, "AFTER_S", 0.1)
        orders = harrow.topic("orders")
        producer = Producer({"bootstrap.servers": harrow.bootstrap_servers})
        with harrow.chaos(pause(leader(orders), seconds=0.1)):
            time.sleep(1)  # what a user's slow start is
            producer.produce("orders", "1")
            assert producer.flush(20) == 0
        print("printed by the test")
"""


def test_a_block_that_waits_for_its_first_traffic_says_so_although_output_is_captured(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(USER)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=1)
    said = result.stderr.str()
    assert "::test_orders waits for the first traffic: no record was acknowledged or delivered" in said
    assert "printed by the test" not in said


@pytest.mark.harrow(brokers=1)
def test_a_topic_without_a_leader_says_which_broker_is_paused_and_what_to_do(
    harrow: Harrow, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(topics, "CREATE_TIMEOUT_S", 2.0)
    monkeypatch.setattr(wait_notes, "AFTER_S", 0.2)
    harrow.cluster.brokers[1].pause()
    before = wait_notes.listen(notes.append)
    with pytest.raises(HarrowError, match=r"could not be created: .*broker 1 is paused; .*resume\(\)"):
        harrow.topic("orders")
    wait_notes.listen(before)
    assert "broker 1 is paused" in topics.not_running(harrow.cluster)  # as a verdict says it
    harrow.cluster.brokers[1].resume()
    assert "waits for topic orders to be created: broker 1 is paused" in notes[0]
    assert topics.not_running(harrow.cluster) == ""
