"""Changes one field of a request to an edge value of its type and meaning.

Owns: which values count as edges: null, empty, 0, -1, -2, extremes, unknown, stale, twice, unsorted, illegal, not
UTF-8, internal; for a batch every field of the header and of its records, and a payload that is no records. `places`
lists the fields of a request in a version, `changes` a random change. A request can also be cut, or have bytes behind
it.

What would stop the run and not compare anything is left out: waits of many seconds, the deletion of internal topics,
and requests that really create thousands of partitions; so is what `NUMBERS` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from .batches import GZIP, NAMES, WIDTHS
from .cases import Case, Change, Json, Step, apply, is_rows, is_struct, look_up, with_step
from .message_files import Field, messages

Path = tuple[str | int, ...]

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}
NO_ID, UNKNOWN_ID, METADATA_ID = "0" * 32, "ab" * 16, "0" * 31 + "1"
NOT_UTF8 = {"$hex": "ff61", "$name": "%"}
TOPICS = ("", ".", "..", "a b", "x" * 250, "no-such%", "one~", "two~", "gone~", "compact~", NOT_UTF8, None)
INTERNAL = ("__consumer_offsets", "__cluster_metadata", "__transaction_state")
TEXTS = ("", "no-such%", " %", "%" + "a" * 300, "ü%", NOT_UTF8, None)
KEEP_INTERNAL = frozenset(
    {
        "DeleteTopics",
        "DeleteRecords",
        "CreatePartitions",
        "AlterPartitionReassignments",
        "AlterConfigs",
        "IncrementalAlterConfigs",
        "CreateTopics",
        "DescribeProducers",
        "Fetch",
        "ListOffsets",
        "OffsetForLeaderEpoch",
        "AlterShareGroupOffsets",
    }
)
"""Requests that could change an internal topic, which both systems need, or see what earlier cases left there."""
SETTING_NAMES: tuple[Json, ...] = (
    "retention.ms",
    "cleanup.policy",
    "segment.bytes",
    "min.insync.replicas",
    "no.such.setting",
    "RETENTION.MS",
    "",
    "compression.type",
    "message.timestamp.type",
    "unclean.leader.election.enable",
    "flush.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "remote.storage.enable",
    "follower.replication.throttled.replicas",
    "segment.ms",
    "delete.retention.ms",
    "min.cleanable.dirty.ratio",
    "index.interval.bytes",
    "preallocate",
    "retention.bytes",
    "message.timestamp.before.max.ms",
    "file.delete.delay.ms",
    "internal.segment.bytes",
    "segment.index.bytes",
)
SETTING_VALUES: tuple[Json, ...] = (
    "",
    " ",
    "-1",
    "-2",
    "0",
    "1",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1.5",
    "true",
    "TRUE",
    " 5 ",
    "abc",
    "compact",
    "delete",
    "compact,delete",
    "delete, compact",
    "delete,delete",
    "compact,",
    ",",
    "none",
    "gzip",
    "lz4",
    "producer",
    "0.5",
    "1e3",
    "0x10",
    "+5",
    None,
)
WAIT_FOR_REPLICAS = frozenset({"Produce", "DeleteRecords"})
WAIT_FOR_METADATA = frozenset(
    {"CreateTopics", "DeleteTopics", "CreatePartitions", "ElectLeaders", "AlterPartitionReassignments"}
)
"""Requests that a short timeout ends or does not end, as it happens."""
NO_WAITS = (0, -1, -2, -(2**31))
WAITS = (*NO_WAITS, 1, 50)
LONG_WAITS = (30_001, 2**31 - 1)


NUMBERS: dict[tuple[str, str], tuple[int, ...]] = {
    ("ShareFetch", "maxwaitms"): (50, 500),
    ("ShareFetch", "minbytes"): (2, 1_000_000),
    ("ShareFetch", "batchsize"): (1, 2, 3, 2**31 - 1),
    ("DescribeTopicPartitions", "partitionindex"): (0, -1, -2, 1, 2, -(2**31)),
    ("UnregisterBroker", "brokerid"): (0, -1, 4, 98, 2**31 - 1, -(2**31)),
}
"""The only edges of some fields. A ShareFetch must wait: Kafka reads the state of a share partition, or stores
acknowledgements, meanwhile; with a batch size of 0 Kafka adds a batch without records. The sum of a large partition
index and the limit overflows in Kafka, which forgets the address of a broker that is unregistered and runs."""


def places(step: Step) -> list[tuple[Path, Field]]:
    """Returns every field of a request in its version, with its path in the body; those inside rows for each row."""
    message = messages()[f"{step.api}Request"]
    return list(_fields(message.fields, step.body, step.version, ()))


def _fields(fields: tuple[Field, ...], body: Json, version: int, path: Path) -> Iterator[tuple[Path, Field]]:
    for field in fields:
        if version not in field.versions:
            continue
        here = (*path, field.name)
        value = body.get(field.name, field.default) if is_struct(body) else None
        yield here, field
        if field.is_array and is_rows(value) and value and field.fields:
            for index, row in enumerate(value):
                if is_struct(row):
                    yield from _fields(field.fields, row, version, (*here, index))
        elif field.fields and is_struct(value):
            yield from _fields(field.fields, value, version, here)


def change(case: Case, random: Random) -> Case:
    """Returns the case with one field of its target changed, or its bytes cut."""
    index = next(i for i, step in enumerate(case.steps) if step.role == "target")
    step = case.steps[index]
    if random.random() < 0.03:
        return _damaged(case, index, random)
    fields = places(step)
    if not fields:
        return _damaged(case, index, random)
    path, field = random.choice(fields)
    if field.kind == "records":
        return _lie(case, index, path, random)
    try:
        value = look_up(step.body, path)
    except (LookupError, TypeError):
        value = field.default
    edges = [each for each in edge_values(field, value, step.api) if each != value]
    if not edges:
        return case
    return apply(case, Change(step=index, path=path, value=random.choice(edges)))


def _damaged(case: Case, index: int, random: Random) -> Case:
    """Cuts the request's end, or adds bytes."""
    if random.random() < 0.5:
        return with_step(case, index, cut=random.choice((1, 2, 4, 8)))
    return with_step(case, index, tail=random.choice(("00", "ff", "00" * 8)))


# ------------------------------------------------------------------ values


def edge_values(field: Field, value: Json, api: str) -> list[Json]:
    """Returns the edge values of a field whose sensible value is `value`."""
    if field.is_array:
        return _of_array(field, value, api)
    if field.fields:
        return [None] if value is not None else []
    if field.kind in BITS:
        return _of_number(field, value, api)
    if field.kind == "bool":
        return [not value]
    if field.kind == "float64":
        return [0.0, -1.0, 1e308, float("inf"), float("-inf"), 0.5, 1.0]
    if field.kind == "uuid":
        ids = [{"$topicId": name} for name in ("one~", "two~", "gone~")]
        return [NO_ID, UNKNOWN_ID, METADATA_ID, "ff" * 16, *ids]
    if field.kind == "bytes":
        return [{"$hex": ""}, None, {"$hex": "00"}, {"$hex": "ff" * 20}]
    return _of_text(field, api)


def _of_array(field: Field, value: Json, api: str) -> list[Json]:
    found: list[Json] = [None, []]
    if is_rows(value) and value:
        found += [[*value, value[0]], [*reversed(value)]]
    if api == "DescribeShareGroupOffsets" and field.item in BITS:
        found.append([0, 0])  # Kafka does not answer for a partition that is not there
    elif not field.fields and field.item in BITS:
        found += [[0, 0], [1, 0], [-1], [99], [2**31 - 1], [-(2**31)], [3, 2, 1], [1, 1], [1, 99], [0, 1, 2]]
    elif field.item == "string":
        found += [[each] for each in ("", "no-such%", NOT_UTF8, None)] + [["a", "a"]]
    return found


def _of_number(field: Field, value: Json, api: str) -> list[Json]:
    bits, name = BITS[field.kind], field.name.lower()
    most = 2 ** (bits - 1) - 1
    if (api, name) in NUMBERS:
        return list(NUMBERS[api, name])
    if name in ("maxwaitms", "timeoutms", "timeout"):
        if api in WAIT_FOR_METADATA:
            return [*NO_WAITS, *LONG_WAITS]
        return list(LONG_WAITS if api in WAIT_FOR_REPLICAS else WAITS)
    if name in ("numpartitions", "count"):
        return [0, -1, -2, 1, 2, 3, 10_002, most, -most - 1]
    found: list[Json] = [0, -1, -2, 1, 2, most, -most - 1, most - 1]
    if isinstance(value, int):
        found += [value + 1, value - 1]
    if is_struct(value):
        found += [100, 1_000]
    if "time" in name or "offset" in name:
        found += [-3, -4, -5, -6, -7, 3, 10**15]
    if "timeout" in name:
        found += [99, 100, 999, 1_000, 5_999, 1_800_000, 1_800_001, 900_001]
    if bits <= 16:
        found += [3, 4, 5, 8, 16, 32, 64, 99]
    return [each for each in found if not isinstance(each, int) or -most - 1 <= each <= most]


MEANINGS: dict[str, tuple[Json, ...]] = {
    "protocoltype": ("consumer", "connect"),
    "protocolname": ("consumer", "roundrobin"),
    "subscribedtopicregex": ("no-such%.*", "[", "(?=a)", "no-such%|[^[:ascii:]]", "\\C"),
    "serverassignor": ("uniform", "range", "RANGE"),
    "groupid": ("g%", "h%"),
    "coordinatorkeys": ("g%", "t%"),
    "statesfilter": ("Stable", "stable", "Empty"),
    "statefilters": ("Ongoing", "ongoing", "Empty"),
    "typesfilter": ("consumer", "Classic"),
    "entitytype": ("user", "client-id", "ip", "USER"),
    "clientsoftwarename": ("-a", "a-", "a b", "a_b", "a.b"),
    "key": ("g%", "consumer_byte_rate", "request_percentage", "connection_creation_rate", "controller_mutation_rate"),
}
"""Strings that mean something in a field, by its name in lower case."""
RESOURCES: tuple[Json, ...] = (
    "",  # AlterConfigs of all brokers is refused by Kafka: it would remove min.insync.replicas, which has a row
    "1",
    "2",
    "99",
    "-1",
    "abc",
    "no-such%",
    "one~",
    "gone~",
    "g%",
    NOT_UTF8,
    None,
)


def _of_text(field: Field, api: str) -> list[Json]:
    name = field.name.lower()
    of_settings = "Config" in api or api == "CreateTopics"
    if field.entity == "topicName" or (name == "name" and "Topic" in api and not of_settings):
        return [*TOPICS, "__cluster_metadata", *(() if api in KEEP_INTERNAL else INTERNAL)]
    if of_settings and name in ("value", "name", "resourcename"):
        values = {
            "value": SETTING_VALUES,
            "name": (*SETTING_NAMES, NOT_UTF8, None),
            "resourcename": RESOURCES if api != "AlterConfigs" else RESOURCES[1:],
        }
        return list(values[name])
    return [*TEXTS, *MEANINGS.get(name, ())]


# ------------------------------------------------------------------ batches


def _lie(case: Case, index: int, path: Path, random: Random) -> Case:
    """Changes the records of a request: a field of the header, of a record, or the bytes as a whole."""
    records = look_up(case.steps[index].body, path)
    if not is_struct(records) or "$batches" not in records:
        return case
    batches: list[dict[str, Any]] = [dict(each) for each in records["$batches"]]
    batch = batches[0]
    kind = random.choice(("header", "header", "record", "record", "whole"))
    if kind == "whole":
        value = _whole(batch, batches, random)
    else:
        if kind == "header":
            name = random.choice(NAMES)
            batch[name] = _header_value(name, batch, random)
        else:
            batch["records"], name = _lying_records(batch.get("records", [{}]), random)
            if name == "offsetDelta":  # Kafka looks at it in compressed batches only
                batch["codec"] = GZIP
            elif name in ("length", "tail"):  # and at these in plain ones only
                batch.pop("codec", None)
        value = {"$batches": batches}
    return apply(case, Change(step=index, path=path, value=value))


def _whole(batch: dict[str, Any], batches: list[dict[str, Any]], random: Random) -> Json:
    forms: list[Json] = [None, {"$hex": ""}, {"$hex": "00" * 61}, {"$batches": [*batches, *batches]}]
    forms += [{"$batches": batches, "tail": tail} for tail in ("00", "00" * 70)]
    forms += [{"$batches": [{**batch, "payload": {"$hex": payload}}]} for payload in ("", "ff" * 30)]
    forms += [{"$batches": [{**batch, "records": []}]}]
    forms += [{"$batches": [{**batch, "codec": 0, "attributes": codec}]} for codec in range(1, 8)]
    return random.choice(forms)


def _header_value(name: str, batch: dict[str, Any], random: Random) -> int:
    width = WIDTHS[name]
    most = 2 ** (width - 1) - 1
    count = len(batch.get("records", [{}]))
    if name == "attributes":
        return random.choice([1 << bit for bit in range(15)]) | int(batch.get("codec", 0))
    if name == "magic":
        return random.choice((0, 1, 3, -1, 127))
    near = {"lastOffsetDelta": count - 1, "count": count, "length": 60}.get(name, 0)
    return random.choice((0, -1, -2, 1, 2, most, -most - 1, near + 1, near - 1, near + 2, 10**6))


def _lying_records(records: list[dict[str, Any]], random: Random) -> tuple[list[dict[str, Any]], str]:
    """Returns the records, one of which lies, and in which field."""
    changed = [dict(each) for each in records]
    record = random.choice(changed)
    name, values = random.choice(RECORD_LIES)
    record[name] = random.choice(values)
    return changed, name


RECORD_LIES: tuple[tuple[str, tuple[Json, ...]], ...] = (
    ("length", (0, -1, 1, 5, 1_000, 2**31 - 1)),
    ("offsetDelta", (0, 1, 2, -1, 5, 2**31 - 1)),
    ("timestampDelta", (-1, -(10**13), 10**13, 2**62, -(10**12), 10**4)),
    ("attributes", (1, 8, 255)),
    ("headerCount", (-1, 1, 5, 2**31 - 1)),
    ("headers", ([["", "x"]], [[None, "x"]], [["h", None]], [[{"$hex": "ff"}, "x"]])),
    ("key", (None, "")),
    ("value", (None, "")),
    ("tail", ({"$hex": "00"}, {"$hex": "ffff"})),
)
