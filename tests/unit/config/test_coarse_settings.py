"""Kafka's settings in hours and minutes (B6, B7): the name with the smallest unit wins, in any order."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import ConfigError

HOUR_MS = 3_600_000
WEEK_MS = 168 * HOUR_MS


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ({}, "log.roll.ms", WEEK_MS),
        ({"log.roll.hours": 2}, "log.roll.ms", 2 * HOUR_MS),
        ({"log.roll.hours": "2", "log.roll.ms": 7}, "log.roll.ms", 7),
        ({"log.roll.jitter.hours": 1}, "log.roll.jitter.ms", HOUR_MS),
        ({"log.retention.hours": 1}, "log.retention.ms", HOUR_MS),
        ({"log.retention.hours": 1, "log.retention.minutes": 5}, "log.retention.ms", 300_000),
        ({"log.retention.minutes": 5, "log.retention.ms": 9}, "log.retention.ms", 9),
        ({"log.retention.hours": -1}, "log.retention.ms", -1),
    ],
)
def test_the_setting_with_the_smallest_unit_wins(given: Mapping[str, object], name: str, expected: int) -> None:
    backwards = dict(reversed(list(given.items())))
    assert BrokerConfig.parse(given).number(name) == expected
    assert BrokerConfig.parse(backwards).number(name) == expected


def test_a_topic_inherits_a_setting_in_hours() -> None:
    topic = BrokerConfig.parse({"log.roll.hours": 3}).topic({})
    assert topic.number("segment.ms") == 3 * HOUR_MS


@pytest.mark.parametrize(("name", "value"), [("log.roll.hours", 0), ("log.roll.hours", "soon"), ("log.roll.hour", 1)])
def test_a_value_that_does_not_fit_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        BrokerConfig.parse({name: value})
