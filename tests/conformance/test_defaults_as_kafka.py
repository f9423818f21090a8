"""A broker's defaults are Apache Kafka's, except those that `docs/compatibility.md` names (A4)."""

from __future__ import annotations

from typing import Any

import pytest
from apache_kafka import MISSING
from harrow.cluster.config import BY_NAME, Setting
from harrow.cluster.metadata.java_text import text_of

BROKER, DEFAULT_SOURCE = 4, 5
OF_LISTENERS = {"listeners", "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name"}
WITHOUT_A_REGISTRY = {"leader.imbalance.per.broker.percentage"}


def defaults_of(kafka: Any) -> dict[str, str]:
    """Kafka's own default of each broker setting, below what the tests set; "" for null."""
    node = str(next(iter(kafka.ports)))
    rows = kafka.raw(int(node)).settings(BROKER, node).configs
    assert rows, "the broker describes no setting"
    found: dict[str, str] = {}
    for row in rows:
        own = [same.value for same in row.synonyms if same.source == DEFAULT_SOURCE]
        if own or row.config_source == DEFAULT_SOURCE:
            found[row.name] = (own[0] if own else row.value) or ""
    return found


def text(setting: Setting) -> str:
    return "" if setting.unset else text_of(setting.default)


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")
@pytest.mark.parametrize("kafka", ["apache"], indirect=True)
def test_the_defaults_of_brokers_are_kafkas(kafka: Any) -> None:
    theirs = defaults_of(kafka)
    skipped = OF_LISTENERS | WITHOUT_A_REGISTRY
    compared = {
        name: (theirs[name], text(setting))
        for name, setting in BY_NAME.items()
        if name in theirs and name not in skipped
    }
    assert len(compared) > 140, sorted(compared)
    assert {name: row for name, row in compared.items() if row[0] != row[1]} == {}
