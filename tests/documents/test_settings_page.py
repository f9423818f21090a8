"""`docs/settings.md` has every broker setting with Apache Kafka's default and Harrow's, as the code has them.

`python tests/documents/test_settings_page.py` writes the table.
"""

from __future__ import annotations

import re
from pathlib import Path

from harrow.cluster.config import BROKER_SETTINGS, THROTTLE_RATES, Change, Setting
from harrow.cluster.defaults import KAFKA_SESSION_TIMEOUT_MS, OF_TESTS, cluster_defaults, kafka_defaults, kafka_value
from harrow.cluster.metadata.java_text import text_of

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
BEGIN, END = "<!-- settings: generated -->", "<!-- end of settings -->"
HEAD = ("| setting | Apache Kafka | Harrow | fixture | changed | effect |", "| --- | --- | --- | --- | --- | --- |")
OF_KAFKA = {
    "listeners": "`PLAINTEXT://:9092`",
    "listener.security.protocol.map": "each protocol under its own name",
    "zookeeper.session.timeout.ms": f"`{KAFKA_SESSION_TIMEOUT_MS}` (`broker.session.timeout.ms`)",
    **{rate.name: "null" for rate in THROTTLE_RATES},
}
CHANGES = {
    Change.RESTART: "restart",
    Change.CLUSTER: "run time",
    Change.BROKER: "run time, one broker",
    Change.LISTENER: "run time, one listener",
}


def shown(value: object) -> str:
    text = text_of(value) if isinstance(value, bool | int | float | str) else str(value)
    return f"`{text}`" if text else "empty"


def kafkas(setting: Setting) -> str:
    """The cell of Apache Kafka."""
    name = setting.name
    if name in OF_KAFKA:
        return OF_KAFKA[name]
    if name.startswith(("harrow.", "zookeeper.")):
        return "none"
    return "null" if setting.unset else shown(kafka_value(name))


def row(setting: Setting) -> str:
    name = setting.name
    own = cluster_defaults(3).get(name, setting.default)
    of_test = {"harrow.tap": True, **OF_TESTS}.get(name, own)
    ours, test = ("null", "null") if setting.unset else (shown(own), shown(of_test))
    change = "run time" if setting.topic else CHANGES[setting.change]
    effect = f"none: {setting.stored}" if setting.stored else setting.doc
    return f"| `{name}` | {kafkas(setting)} | {ours} | {test} | {change} | {effect} |"


def table() -> list[str]:
    rows = sorted((*BROKER_SETTINGS, *THROTTLE_RATES), key=lambda setting: setting.name)
    return [*HEAD, *(row(setting) for setting in rows)]


def test_the_page_has_each_setting_with_both_defaults() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    found, _, after = rest.partition(END)
    assert before and after, f"{PAGE.name} has no place for the table"
    assert found.split("\n") == ["", *table(), ""], "run: python tests/documents/test_settings_page.py"


def test_kafkas_own_defaults_name_each_default_that_differs() -> None:
    """The word `kafka` gives back what the page shows in the first column."""
    given = kafka_defaults()
    for setting in BROKER_SETTINGS:
        own = {**cluster_defaults(3), **OF_TESTS}.get(setting.name, setting.default)
        if own != kafka_value(setting.name):
            assert given[setting.name] == kafka_value(setting.name), setting.name
    assert given["replica.lag.time.max.ms"] == 30_000
    assert given["harrow.replica.silence.max.ms"] == 0


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    lines = "\n".join([BEGIN, *table(), END])
    PAGE.write_text(pattern.sub(lambda _: lines, text), encoding="utf-8")
