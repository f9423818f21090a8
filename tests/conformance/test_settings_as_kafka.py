"""Settings on the wire are those of Apache Kafka 4.2: what is accepted, how it is described, the order (A4, A7)."""

from __future__ import annotations

from functools import partial
from typing import Any

from harrow.cluster.config import BROKER_SETTINGS, BrokerConfig, Change
from harrow.cluster.metadata.config_entries import broker_entries
from harrow.cluster.metadata.java_order import BROKER_CAPACITY, hash_order
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import RawKafka
from waiting import until

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
Described = tuple[Any, ...]


def value(raw: RawKafka, kind: int, name: str, key: str) -> Described | None:
    """Value, type, source, read-only, sensitive and the values of the synonyms; None without an entry."""
    for row in raw.settings(kind, name, (key,)).configs:
        given = [same.value for same in row.synonyms if same.source != 5]
        return (row.value, row.config_type, row.config_source, row.read_only, row.is_sensitive, given)
    return None


def altered(raw: RawKafka, kind: int, name: str, *changes: tuple[str, int, str | None]) -> int:
    return int(raw.change_settings(kind, name, *changes).error_code)


TOPIC_CHANGES: tuple[tuple[str, int, str | None, int, str | None], ...] = (
    ("cleanup.policy", SET, " delete , compact,delete", 0, "delete,compact"),
    ("cleanup.policy", SET, "", 0, ""),
    ("cleanup.policy", APPEND, "compact", 0, "compact"),
    ("cleanup.policy", APPEND, "", 40, "compact"),
    ("cleanup.policy", APPEND, "compact", 0, "compact"),
    ("cleanup.policy", SET, "compact,,delete", 40, "compact"),
    ("cleanup.policy", SUBTRACT, "foo", 0, "compact"),
    ("cleanup.policy", SUBTRACT, "compact", 0, ""),
    ("cleanup.policy", SET, None, 42, ""),
    ("cleanup.policy", DELETE, "x", 0, "delete"),
    ("cleanup.policy", APPEND, "compact", 0, "delete,compact"),
    ("retention.ms", SET, " 05 ", 0, "5"),
    ("retention.ms", SET, "+7", 0, "7"),
    ("retention.ms", SET, "5_0", 40, "7"),
    ("retention.ms", SET, "", 40, "7"),
    ("retention.ms", APPEND, "5", 40, "7"),
    ("retention.ms", SUBTRACT, "7", 40, "7"),
    ("preallocate", SET, " TRUE ", 0, "true"),
    ("min.cleanable.dirty.ratio", SET, "1", 0, "1.0"),
    ("min.cleanable.dirty.ratio", SET, "1e-4", 0, "1.0E-4"),
    ("min.cleanable.dirty.ratio", SET, ".5f", 0, "0.5"),
    ("compression.type", SET, " zstd ", 0, "zstd"),
    ("leader.replication.throttled.replicas", SET, " 0:1 , 1:2,", 0, "0:1,1:2,"),
    ("leader.replication.throttled.replicas", SET, "none", 40, "0:1,1:2,"),
    ("segment.bytes", SET, "1048575", 40, "1073741824"),
    ("segment.bytes", SET, "1048576", 0, "1048576"),
    ("internal.segment.bytes", SET, "1000", 0, "1000"),
    ("internal.segment.bytes", SET, "2", 0, "2"),
    ("internal.segment.bytes", SET, "-1", 0, "-1"),
    ("internal.segment.bytes", DELETE, None, 0, None),
    ("min.compaction.lag.ms", SET, "10", 0, "10"),
    ("max.compaction.lag.ms", SET, "9", 40, "9223372036854775807"),
    ("max.compaction.lag.ms", SET, "10", 0, "10"),
    ("min.compaction.lag.ms", SET, "11", 40, "10"),
    ("nonsense", SET, "1", 40, None),
    ("nonsense", DELETE, None, 0, None),
)


def test_changes_of_a_topic_are_accepted_and_described_as_parsed(kafka: Any) -> None:
    topic, raw = kafka.topic("changed", 1), kafka.raw(1)
    for name, operation, text, code, shown in TOPIC_CHANGES:
        step = (name, operation, text)
        assert altered(raw, TOPIC, topic, step) == code, step
        until(partial(is_shown, raw, topic, name, shown), str(step))
    assert altered(raw, TOPIC, topic, ("retention.ms", SET, "5"), ("retention.ms", DELETE, "")) == 42
    assert altered(raw, TOPIC, "", ("retention.ms", SET, "5")) == 42


def is_shown(raw: RawKafka, topic: str, name: str, shown: str | None) -> bool:
    found = value(raw, TOPIC, topic, name)
    return (None if found is None else found[0]) == shown


def is_described(raw: RawKafka, node: str, name: str, shown: Described | None) -> bool:
    return value(raw, BROKER, node, name) == shown


UNLIKE: Described = ()
"""The two do not describe it alike."""
BROKER_CHANGES: tuple[tuple[str, str, str, int, Described | None], ...] = (
    ("1", "log.cleaner.threads", " 2 ", 0, ("2", 3, 2, False, False, [" 2 "])),
    ("1", "log.cleaner.threads", "99", 42, ("2", 3, 2, False, False, [" 2 "])),
    ("", "log.cleaner.threads", " 2 ", 0, (" 2 ", 3, 3, False, False, [" 2 "])),
    ("1", "num.io.threads", "17", 42, ("8", 3, 5, False, False, [])),
    ("1", "num.io.threads", "16", 0, ("16", 3, 2, False, False, ["16"])),
    ("1", "log.retention.ms", "x", 42, (None, 5, 5, False, False, [])),
    ("1", "log.retention.ms", " 500000 ", 0, ("500000", 5, 2, False, False, [" 500000 "])),
    ("1", "log.cleaner.dedupe.buffer.size", "1000", 42, ("134217728", 5, 5, False, False, [])),
    ("1", "log.cleaner.io.max.bytes.per.second", "12345678", 0, ("1.2345678E7", 6, 2, False, False, ["12345678"])),
    ("1", "max.connections", "0", 42, ("2147483647", 3, 5, False, False, [])),
    ("1", "max.connections", "5000", 0, ("5000", 3, 2, False, False, ["5000"])),
    ("1", "max.connections.per.ip.overrides", "10.0.0.1:3", 0, ("10.0.0.1:3", 2, 2, False, False, ["10.0.0.1:3"])),
    ("1", "producer.id.expiration.ms", "90000", 0, ("90000", 3, 2, False, False, ["90000"])),
    ("1", "sasl.jaas.config", "secret", 0, (None, 9, 2, False, True, [None])),
    ("", "sasl.jaas.config", "secret", 42, None),
    ("1", "ssl.key.password", "secret", 42, (None, 9, 5, False, True, [])),
    ("1", "an.unknown.name", "1", 0, (None, 0, 2, True, True, [None])),
    ("", "an.unknown.name", "1", 0, (None, 0, 3, True, True, [None])),
    ("1", "listener.name.plaintext.max.connections", "7", 0, ("7", 3, 2, True, False, ["7", "5000"])),
    ("", "listener.name.plaintext.foo", "7", 42, None),
    ("1", "broker.rack", "x", 42, (None, 2, 5, True, False, [])),
    ("1", "node.id", "7", 42, UNLIKE),
    ("1", "log.retention.hours", "7", 42, ("168", 3, 5, True, False, [])),
    ("1", "leader.replication.throttled.rate", "5", 0, ("5", 5, 2, False, False, ["5"])),
)


def test_dynamic_settings_of_brokers_are_accepted_and_described(kafka: Any) -> None:
    raw = kafka.raw(1)
    try:
        for node, name, text, code, shown in BROKER_CHANGES:
            step = (node, name, text)
            assert altered(raw, BROKER, node, (name, SET, text)) == code, step
            if shown is not UNLIKE:
                until(
                    partial(is_described, raw, node, name, shown),
                    f"{step} is described: {value(raw, BROKER, node, name)}",
                )
    finally:
        for node, name, _, code, _ in reversed(BROKER_CHANGES):
            assert code or altered(raw, BROKER, node, (name, DELETE, None)) == 0, name
    until(lambda: value(raw, BROKER, "1", "an.unknown.name") is None)


INTERNAL_OF_KAFKA = ".assignor.offload.enable"
"""Internal settings, which a broker describes where they are set: `support/apache_kafka.py` sets them."""


def test_settings_of_brokers_have_kafkas_types_and_order(kafka: Any) -> None:
    result = kafka.raw(1).settings(BROKER, "1", ())
    ours = {entry.name: entry for entry in broker_entries(BrokerConfig.parse({}))}
    found = {row.name: (row.config_type, row.read_only, row.is_sensitive) for row in result.configs if row.name in ours}
    assert result.error_message == ""
    assert len(found) > 150
    assert found == {name: (ours[name].type, ours[name].read_only, ours[name].is_sensitive) for name in found}
    assert list(found) == [name for name in hash_order(ours, BROKER_CAPACITY) if name in found]
    dynamic = {row.name for row in result.configs if not row.read_only and not row.name.endswith(INTERNAL_OF_KAFKA)}
    assert dynamic == {row.name for row in BROKER_SETTINGS if row.is_dynamic and not row.internal}
    assert len(dynamic) == 104


def test_each_dynamic_setting_accepts_its_default(kafka: Any) -> None:
    """For one broker, for all brokers, or for neither, as in Kafka."""
    raw = kafka.raw(1)
    skipped = {"listeners", "listener.security.protocol.map", "min.insync.replicas"}
    for row in BROKER_SETTINGS:
        if not row.is_dynamic or row.internal or row.unset or row.name in skipped:
            continue
        text = "true" if row.default is True else str(row.default)
        text = "false" if row.default is False else text
        codes: list[int] = []
        for node in ("1", ""):
            codes.append(altered(raw, BROKER, node, (row.name, SET, text)))
            assert altered(raw, BROKER, node, (row.name, DELETE, None)) == 0
        accepted = {Change.LISTENER: [42, 42], Change.BROKER: [0, 42]}
        assert codes == accepted.get(row.change, [0, 0]), row.name


# a topic without overrides, as Apache Kafka 4.4 lists it
TOPIC_ORDER = [
    "compression.type",
    "errors.deadletterqueue.group.enable",
    "remote.copy.lag.bytes",
    "remote.log.delete.on.disable",
    "leader.replication.throttled.replicas",
    "remote.storage.enable",
    "min.insync.replicas",
    "segment.jitter.ms",
    "remote.log.copy.disable",
    "local.retention.ms",
    "cleanup.policy",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "compression.lz4.level",
    "segment.bytes",
    "retention.ms",
    "compression.gzip.level",
    "remote.copy.lag.ms",
    "flush.messages",
    "compression.zstd.level",
    "max.compaction.lag.ms",
    "file.delete.delay.ms",
    "max.message.bytes",
    "min.compaction.lag.ms",
    "message.timestamp.type",
    "local.retention.bytes",
    "preallocate",
    "index.interval.bytes",
    "min.cleanable.dirty.ratio",
    "unclean.leader.election.enable",
    "retention.bytes",
    "delete.retention.ms",
    "message.timestamp.after.max.ms",
    "max.decompressed.message.bytes",
    "message.timestamp.before.max.ms",
    "segment.ms",
    "segment.index.bytes",
]


def test_no_list_and_an_empty_list_of_keys_ask_for_all_settings(kafka: Any) -> None:
    topic, raw = kafka.topic("all", 1), kafka.raw(1)
    for keys in (None, ()):
        assert [row.name for row in raw.settings(TOPIC, topic, keys).configs] == TOPIC_ORDER
    two = raw.settings(TOPIC, topic, ("retention.ms", "segment.bytes", "nonsense")).configs
    assert [row.name for row in two] == ["segment.bytes", "retention.ms"]


QUOTAS: tuple[tuple[tuple[str, str | None], ...], ...] = (
    (("user", "ü"),),
    (("user", "erin"),),
    (("client-id", "heidi"),),
    (("client-id", "c2"), ("user", None)),
    (("client-id", "grace"),),
    (("user", "bob"),),
    (("client-id", "judy"),),
    (("client-id", "mallory"),),
    (("client-id", "olivia"),),
    (("client-id", "c1"),),
    (("user", "alice"),),
    (("client-id", "ivan"),),
    (("user", None),),
    (("client-id", None),),
    (("user", "dave"),),
    (("client-id", None), ("user", None)),
)
KEYS = ["producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate", "request_percentage"]


def change_quotas(raw: RawKafka, *, remove: bool) -> None:
    entries = tuple(
        {
            "entity": tuple({"entity_type": kind, "entity_name": name} for kind, name in entity),
            "ops": tuple({"key": key, "value": 5.0, "remove": remove} for key in reversed(KEYS)),
        }
        for entity in sorted(QUOTAS, key=str)
    )
    result = raw.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)
    assert {row.error_code for row in result.entries} == {0}


def quotas(raw: RawKafka) -> list[tuple[tuple[tuple[str, str | None], ...], list[str]]]:
    result = raw.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=(), strict=False)
    return [
        (tuple((part.entity_type, part.entity_name) for part in row.entity), [pair.key for pair in row.values])
        for row in result.entries
    ]


def test_quotas_are_listed_in_the_order_of_kafka(kafka: Any) -> None:
    raw = kafka.raw(1)
    change_quotas(raw, remove=False)
    try:
        until(lambda: len(quotas(raw)) == len(QUOTAS))
        found = quotas(raw)
        assert {tuple(keys) for _, keys in found} == {tuple(KEYS)}
        assert [entity for entity, _ in found] == list(QUOTAS)
    finally:
        change_quotas(raw, remove=True)


def test_an_unknown_type_refuses_all_resources_and_client_metrics_have_no_synonyms(kafka: Any) -> None:
    raw = kafka.raw(1)
    rows = tuple(
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((BROKER, "1"), (0, ""))
    )
    found = raw.ask(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=rows, include_synonyms=True, include_documentation=False
    ).results
    assert sorted((row.resource_type, int(row.error_code)) for row in found) == [(0, 42), (BROKER, 42)]
    assert [row.synonyms for row in raw.settings(16, "any").configs] == [()] * 3


def test_operations_are_checked_before_the_name_of_the_resource(kafka: Any) -> None:
    raw, unlisted = kafka.raw(1), ("retention.ms", SUBTRACT, "1")
    for kind, name in ((TOPIC, ""), (TOPIC, "a b"), (32, ""), (16, ""), (16, "any")):
        assert altered(raw, kind, name, unlisted) == 40, (kind, name)
        assert altered(raw, kind, name, ("retention.ms", SET, None)) == 42, (kind, name)
    assert altered(raw, TOPIC, "", ("retention.ms", SET, "1")) == 42
    assert altered(raw, TOPIC, "a b", ("retention.ms", SET, "1")) == 17
    assert altered(raw, TOPIC, "a b", *[("retention.ms", SET, "1")] * 2) == 42
    assert altered(raw, 16, "any", ("interval.ms", DELETE, None)) == 0
    assert altered(raw, 16, "", ("interval.ms", DELETE, None)) == 42
    assert altered(raw, 16, "any", ("no.such", SET, "1")) == 42
    assert altered(raw, BROKER, "99", unlisted) == 42


def altered_quotas(
    raw: RawKafka, *keys: str, remove: bool = False, more: tuple[str, ...] = ()
) -> list[list[tuple[str, str | None]]]:
    """Set or remove quotas of a user with a client id, and of other users; return the entities as responded."""
    pair = (
        {"entity_type": "user", "entity_name": "order"},
        {"entity_type": "client-id", "entity_name": "order"},
    )
    others = (({"entity_type": "user", "entity_name": name},) for name in more)
    entries = tuple(
        {"entity": entity, "ops": tuple({"key": key, "value": 5.0, "remove": remove} for key in keys)}
        for entity in (pair, *others)
    )
    result = raw.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)
    assert {row.error_code for row in result.entries} == {0}
    return [[(part.entity_type, part.entity_name) for part in row.entity] for row in result.entries]


def has_keys(raw: RawKafka, count: int) -> bool:
    """Whether one entity has quotas, and so many keys."""
    return [len(keys) for _, keys in quotas(raw)] == [count]


def test_quotas_whose_hashes_meet_are_listed_in_the_order_of_the_changes(kafka: Any) -> None:
    raw, (produce, consume, _, percentage) = kafka.raw(1), KEYS
    entity = (("client-id", "order"), ("user", "order"))
    for steps, wanted in (
        ([(produce, consume, percentage)], [consume, percentage, produce]),
        ([(produce,), (percentage, consume)], [consume, produce, percentage]),
    ):
        for count, step in enumerate(steps, 1):
            assert altered_quotas(raw, *step) == [list(entity)]
            until(partial(has_keys, raw, sum(map(len, steps[:count]))))
        assert quotas(raw) == [(entity, wanted)]
        altered_quotas(raw, produce, consume, percentage, remove=True)
        until(lambda: quotas(raw) == [])


def test_results_of_changed_quotas_have_the_order_of_kafka(kafka: Any) -> None:
    raw, names = kafka.raw(1), ("alice", "bob", "dave", "erin")
    found = altered_quotas(raw, KEYS[0], remove=True, more=names)
    users = [[("user", name)] for name in ("erin", "alice", "bob", "dave")]
    assert found == [*users, [("client-id", "order"), ("user", "order")]]
