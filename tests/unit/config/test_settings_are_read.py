"""Every setting that a broker accepts is read by the broker, or listed here with the reason why not.

A setting is read where its name, or its topic-level name, is a string in a module of `cluster/` outside of
`cluster/config/`. Docstrings and keys of dictionaries (overrides of an internal topic) do not count.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from harrow.cluster.config import (
    BY_NAME,
    BY_TOPIC_NAME,
    SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    Setting,
    validate_topic_config,
)
from harrow.cluster.errors import ConfigError

CLUSTER = Path(__file__).parents[3] / "cluster"

NOT_READ: dict[str, str] = {}
"""Name of a setting -> why accepting it is no promise that a broker breaks."""


def strings_read(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    keys = {key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys}
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    skipped = keys | docs
    for node in ast.walk(tree):
        if node not in skipped and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@functools.cache  # not at import: every worker imports this module, and one runs these tests
def names_read() -> set[str]:
    config = CLUSTER / "config"
    paths = [path for path in sorted(CLUSTER.rglob("*.py")) if config not in path.parents]
    assert len(paths) > 100, f"{CLUSTER} is not the cluster"
    return {name for path in paths for name in strings_read(path)}


def is_read(setting: Setting) -> bool:
    return any(name in names_read() for name in (setting.name, setting.topic) if name)


@pytest.mark.xdist_group("settings")  # one worker parses the cluster's modules
@pytest.mark.parametrize("setting", [*SETTINGS, *TOPIC_SETTINGS], ids=lambda setting: setting.name)
def test_an_accepted_setting_is_read_or_only_its_default_is_accepted(setting: Setting) -> None:
    ignored = not is_read(setting) and not setting.only_default and not setting.stored
    assert ignored == (setting.name in NOT_READ), (
        f"{setting.name}: {'no module reads it' if ignored else 'a module reads it'}; "
        "implement it, refuse it (`Setting.only_default`, `REFUSED`), or correct NOT_READ"
    )


def test_a_setting_that_only_a_dictionary_names_is_not_read(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""doc"""\nOVERRIDES = {"a.key": "a.value"}\nread("a.name")\n')
    assert set(strings_read(module)) == {"a.value", "a.name"}


@pytest.mark.parametrize(
    ("name", "value", "default"), [("log.preallocate", "true", "false"), ("compression.type", "gzip", "producer")]
)
def test_a_value_that_no_broker_implements_is_refused_with_the_remedy(name: str, value: str, default: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}={value}: .*do not implement.*set it to {default}"):
        BrokerConfig.parse({name: value})
    topic = BY_NAME[name].topic
    assert validate_topic_config({topic: value}), "a topic stores it (docs/compatibility.md)"
    assert BrokerConfig.parse({name: default}).overrides() == {name: BY_NAME[name].default}


def test_the_broker_id_is_refused_because_the_supervisor_numbers_brokers() -> None:
    with pytest.raises(ConfigError, match=r"broker\.id=7: the supervisor numbers its brokers"):
        BrokerConfig.parse({"broker.id": 7})


def test_a_setting_that_apache_kafka_does_not_have_is_unknown() -> None:
    with pytest.raises(ConfigError, match=r"create\.topic\.timeout\.ms: no such broker setting"):
        BrokerConfig.parse({"create.topic.timeout.ms": 1})


def test_tiered_storage_of_a_topic_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"remote\.storage\.enable=true: .*no tiered storage"):
        validate_topic_config({"remote.storage.enable": "true"})
    assert validate_topic_config({"remote.storage.enable": "false"}) == {"remote.storage.enable": False}


def test_topic_settings_without_an_effect_are_those_that_the_page_lists() -> None:
    page = (CLUSTER.parent / "docs" / "compatibility.md").read_text()
    (section,) = re.findall(r"## Topic settings that change nothing\n(.*?)\n## ", page, re.DOTALL)
    listed = {name for row in section.splitlines() if row.startswith("| `") for name in re.findall(r"`(.+?)`", row)}
    assert listed == {name for name, row in BY_TOPIC_NAME.items() if row.stored}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "cleanup.policy",
            ("compact,delete", " compact , delete,compact", "delete", ""),
            ("foo", "compact;delete", ",", "compact,,delete", "compact,"),
        ),
        ("compression.gzip.level", ("-1", "1", "9"), ("0", "10", "x")),
        ("compression.lz4.level", ("1", "17"), ("0", "18")),
        ("compression.zstd.level", ("-131072", "22"), ("-131073", "23")),
        (
            "leader.replication.throttled.replicas",
            ("", "*", "0:1", " 0:1 , 2:3", "0:1,"),
            ("0", "a:b", "*,0:1", "none"),
        ),
        ("message.timestamp.after.max.ms", ("0", "5"), ("-1", "x")),
        ("local.retention.ms", ("-2", "-1", "0"), ("-3",)),
    ],
)
def test_values_of_topic_settings_are_checked_as_in_kafka(
    name: str, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    for value in good:
        assert name in validate_topic_config({name: value})
    for value in bad:
        with pytest.raises(ConfigError, match=re.escape(name)):
            validate_topic_config({name: value})
