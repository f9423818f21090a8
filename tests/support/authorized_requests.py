"""Each request that a broker serves, and what it answers under ACLs that allow or deny single operations.

`SUBJECT` names a topic, a group, a user and a transactional id of the broker; requests that would remove something name
what does not exist, so that any order of ACLs gives the same responses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from authorized_kafka import Authorized, allow, deny
from harrow.cluster.authorizer import SUPPORTED_OPERATIONS, Operation, ResourceType
from harrow.cluster.errors import error_name
from harrow.cluster.security.acls import Acl
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import INTER_BROKER_APIS, ApiKey
from harrow.cluster.wire.topic_ids import UUID, text_of
from message_samples import errors_in, filled
from raw_kafka import RawKafka, batch
from waiting import until

SUBJECT = "a-name"
"""What `filled` gives every text."""
OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    **SUPPORTED_OPERATIONS,
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE),
}
CLUSTER = ResourceType.CLUSTER
LONG = messages.milliseconds(10_000)
BEFORE_AUTHORIZATION = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS}
SETTINGS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
}

_FIELDS: Mapping[int, Mapping[str, Any]] = {
    ApiKey.PRODUCE: {"records": batch(["x"]), "index": 0},
    ApiKey.FETCH: {"session_id": 0, "session_epoch": -1, "isolation_level": 0, "forgotten_topics_data": ()},
    ApiKey.LIST_OFFSETS: {"isolation_level": 0},
    ApiKey.CREATE_TOPICS: {
        "name": "fresh",
        "assignments": (),
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": (),
        "validate_only": True,
    },
    ApiKey.DELETE_TOPICS: {"name": "absent", "topic_names": ("absent",), "topic_id": None},
    ApiKey.DELETE_GROUPS: {"groups_names": ("absent",)},
    ApiKey.DESCRIBE_CLUSTER: {"endpoint_type": 1},
    ApiKey.CREATE_ACLS: {"principal": "User:other"},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {"member_epoch": 5, "topic_partitions": None, "subscribed_topic_regex": None},
    ApiKey.SHARE_GROUP_HEARTBEAT: {"member_epoch": 5},
    ApiKey.ELECT_LEADERS: {"election_type": 0},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"cursor": None},
    ApiKey.LIST_TRANSACTIONS: {
        "transactional_id_pattern": None,
        "state_filters": (),
        "producer_id_filters": (),
        "duration_filter": -1,
    },
    ApiKey.LIST_GROUPS: {"states_filter": (), "types_filter": ()},
    ApiKey.ALTER_CONFIGS: {"validate_only": True},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"validate_only": True, "config_operation": 0},
    ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": (2,)},
    ApiKey.ALTER_CLIENT_QUOTAS: {"validate_only": True},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {"entity_type": "user", "match_type": 0},
}
"""Values that make a request of `filled` ask for something sensible, by API."""


class Asked(NamedTuple):
    """A request as a test names it: `kind` tells requests of one version apart."""

    api: ApiKey
    version: int
    kind: str = ""


Outcome = dict[str, Any]
"""The errors of a response by their paths, how many items it lists, and its authorized operations."""


Matrix = dict[str, dict[Asked, Outcome]]
"""Outcomes by the name of the ACLs (`states`)."""


def with_fields(entity: Any, **fields: Any) -> Any:
    """The same entity, where every field of these names has these values, at whatever depth."""
    changed: dict[str, Any] = {}
    for row in dataclasses.fields(entity):
        value: Any = getattr(entity, row.name)
        if row.name in fields:
            changed[row.name] = fields[row.name]
        elif issubclass(type(value), tuple):
            changed[row.name] = tuple(
                with_fields(item, **fields) if dataclasses.is_dataclass(item) else item for item in value
            )
    return dataclasses.replace(entity, **changed)


def request_of(asked: Asked, topic_id: Any) -> Any:
    """The request; `topic_id` is that of the topic `SUBJECT`."""
    api, version, kind = asked
    entity = filled(messages.request_type(api, version))
    by_id = None if api is ApiKey.METADATA and kind != "by id" else topic_id
    fields = {"topic_id": by_id, "timeout": LONG, "max_wait": messages.milliseconds(0), **_FIELDS.get(api, {})}
    if kind == "all":
        fields |= {"topics": None if api is not ApiKey.DESCRIBE_TOPIC_PARTITIONS else ()}
    elif kind == "absent":
        fields |= {"name": f"absent-{version}", "allow_auto_topic_creation": False}
    elif kind == "of brokers":
        fields |= {"resource_type": 4, "resource_name": "1"}
    elif kind == "of groups":
        fields |= {"resource_type": 32}
    elif kind == "for transactions":
        fields |= {"key_type": 1}
    elif kind == "without transaction":
        fields |= {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
    elif kind == "in a transaction":
        fields |= {"records": batch(["x"], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)}
    return with_fields(entity, **fields)


OF_CLIENTS: Mapping[int, int] = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}
"""The newest version that clients send, where brokers have newer ones."""
_KINDS: Mapping[int, tuple[tuple[str, int], ...]] = {
    ApiKey.METADATA: (("all", 1), ("by id", 12), ("absent", 4)),
    ApiKey.OFFSET_FETCH: (("all", 2),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (("all", 0),),
    ApiKey.PRODUCE: (("in a transaction", 3),),
    ApiKey.DESCRIBE_CONFIGS: (("of brokers", 1), ("of groups", 1)),
    ApiKey.ALTER_CONFIGS: (("of brokers", 0),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (("of brokers", 0), ("of groups", 0)),
    ApiKey.FIND_COORDINATOR: (("for transactions", 1),),
    ApiKey.INIT_PRODUCER_ID: (("without transaction", 0),),
}
"""API → more kinds of requests, each with its first version."""


def served(broker: Authorized) -> dict[int, tuple[int, int]]:
    """The versions that the broker lists for clients, by API key."""
    s = messages.schema(ApiKey.API_VERSIONS, 3, "request")
    entity = s.root(client_software_name="test", client_software_version="1")
    return {
        row.api_key: (row.min_version, row.max_version)
        for row in broker.admin.ask(ApiKey.API_VERSIONS, 3, entity).api_keys
    }


def requests_of(versions: Mapping[int, tuple[int, int]], *, newest: bool = False) -> list[Asked]:
    """A request of each kind, API and version (`newest`: of the newest one only)."""
    found: list[Asked] = []
    for api in ApiKey:
        if api not in versions or api in BEFORE_AUTHORIZATION | INTER_BROKER_APIS:
            continue
        low, high = versions[api]
        known = [version for version in messages.versions_known(api) if low <= version <= high]
        for version in {known[-1], OF_CLIENTS.get(api, known[-1])} if newest else known:
            kinds = (kind for kind, first in _KINDS.get(api, ()) if version >= first)
            found += [Asked(api, version, kind) for kind in ("", *kinds)]
    return found


def prepare(broker: Authorized, subject: str = SUBJECT) -> Any:
    """Create what requests name, and wait for the coordinators; returns the id of the topic."""
    admin = broker.admin
    assert admin.create_topic(subject, version=7).error_code == 0

    def begun() -> bool:
        s = messages.schema(ApiKey.OFFSET_COMMIT, 8, "request")
        row = s.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
        entity = s.root(
            group_id=subject,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=(s.OffsetCommitRequestTopic(name=subject, partitions=(row,)),),
        )
        committed = admin.ask(ApiKey.OFFSET_COMMIT, 8, entity).topics[0].partitions[0].error_code
        s = messages.schema(ApiKey.INIT_PRODUCER_ID, 4, "request")
        entity = s.root(transactional_id=subject, transaction_timeout=LONG, producer_id=-1, producer_epoch=-1)
        return not committed and not admin.ask(ApiKey.INIT_PRODUCER_ID, 4, entity).error_code

    def located(key_type: int) -> bool:
        s = messages.schema(ApiKey.FIND_COORDINATOR, 4, "request")
        entity = s.root(key_type=key_type, coordinator_keys=(subject,))
        return not admin.ask(ApiKey.FIND_COORDINATOR, 4, entity).coordinators[0].error_code

    for key_type in (0, 1):
        until(lambda: located(key_type), "there is a coordinator")  # noqa: B023
    until(begun, "the coordinators are loaded")
    topic_id = admin.metadata(subject, version=12).topics[0].topic_id
    if ApiKey.INITIALIZE_SHARE_GROUP_STATE in served(broker):
        _begin_share(admin, subject, topic_id)
    return topic_id


def _begin_share(admin: RawKafka, subject: str, topic_id: UUID) -> None:
    """Store the state of a share-partition, so that the share coordinator is loaded."""
    key = f"{subject}:{text_of(topic_id)}:0"

    def located() -> bool:
        answer = admin.ask(ApiKey.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=[key])
        return not answer.coordinators[0].error_code

    def stored() -> bool:
        row = {"partition": 0, "state_epoch": 0, "start_offset": 0}
        topics = [{"topic_id": topic_id, "partitions": [row]}]
        answer = admin.ask(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, group_id=subject, topics=topics)
        return not answer.results[0].partitions[0].error_code

    until(located, "there is a share coordinator")
    until(stored, "the share coordinator is loaded")


def everything(*, but: Iterable[ResourceType] = ()) -> list[Acl]:
    """ACLs that allow every operation, except on resources of some types."""
    return [allow(kind, Operation.ALL) for kind in OPERATIONS if kind not in but]


def states() -> Iterator[tuple[str, list[Acl]]]:
    """ACLs by name: none, all, each operation alone, each denied; and the same without those on the cluster."""
    yield "none", []
    yield "all", everything()
    yield "all but CLUSTER", everything(but=(CLUSTER,))
    for kind, operations in OPERATIONS.items():
        for operation in operations:
            name = f"{operation.name} on {kind.name}"
            yield f"only {name}", [allow(kind, operation)]
            yield f"all but {name}", [*everything(), deny(kind, operation)]
            if kind is not CLUSTER:
                yield f"all but CLUSTER and {name}", [*everything(but=(CLUSTER,)), deny(kind, operation)]


def matrix(broker: Authorized, *, all_versions: bool = False, without: Container[int] = ()) -> Matrix:
    """The outcome of the newest version of each request under all ACLs; of `all_versions` under some of them."""
    topic_id = prepare(broker)
    versions = {api: row for api, row in served(broker).items() if api not in without}
    found: Matrix = {}
    for number, (name, acls) in enumerate(states()):
        broker.give(*acls)
        asked = requests_of(versions, newest=not all_versions or number >= 3)
        found[name] = outcomes(broker, asked, topic_id)
    return found


def outcomes(broker: Authorized, asked: Iterable[Asked], topic_id: Any) -> dict[Asked, Outcome]:
    """What each request is answered under the broker's ACLs."""
    with broker.client() as link:
        return {row: outcome(link.ask(*row[:2], request_of(row, topic_id))) for row in asked}


def outcome(response: Any) -> Outcome:
    """What a test compares of a response."""
    lists = {name: getattr(response, name, None) for name in ("topics", "groups", "transaction_states")}
    counts = {name: len(rows) for name, rows in lists.items() if rows is not None}
    described = [response, *(row for name in ("topics", "groups") for row in lists[name] or ())]
    operations = [
        getattr(row, f"{kind}authorized_operations", None) for row in described for kind in ("cluster_", "topic_", "")
    ]
    errors = {path: error_name(code) for path, code in sorted(errors_in(response).items())}
    return {"errors": errors, "items": counts, "operations": operations}
