"""The decision by ACLs is that of a naive reading of Kafka's rules, whatever ACLs there are, and it is quick (A5)."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from harrow.cluster.authorizer import ANONYMOUS, CLUSTER, Operation, Principal, Resource, ResourceType
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import ConfigError, ErrorCode, KafkaError
from harrow.cluster.security.acls import (
    Acl,
    AclEntry,
    AclFilter,
    PatternType,
    Permission,
    ResourcePattern,
    check_acl,
    kafka_name,
)
from harrow.cluster.security.standard_authorizer import StandardAuthorizer, authorizer_of
from hypothesis import given
from hypothesis import strategies as st

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST = "10.0.0.7"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
CONCRETE = [operation for operation in Operation if operation > ALL]
IMPLYING = {READ, WRITE, Operation.DELETE, Operation.ALTER}


def authorizer_with(acls: Iterable[Acl], *super_users: str, allow_without_acl: bool = False) -> StandardAuthorizer:
    made = StandardAuthorizer(super_users, allow_without_acl=allow_without_acl)
    by_pattern: dict[ResourcePattern, list[AclEntry]] = {}
    for pattern, entry in acls:
        by_pattern.setdefault(pattern, []).append(entry)
    for pattern, entries in by_pattern.items():
        made.replace(pattern, entries)
    return made


def acl(
    name: str,
    operation: Operation = READ,
    permission: Permission = ALLOW,
    *,
    who: str = "User:alice",
    host: str = "*",
    kind: PatternType = LITERAL,
    of: ResourceType = TOPIC,
) -> Acl:
    return Acl(ResourcePattern(of, name, kind), AclEntry(who, host, operation, permission))


def naive(acls: Iterable[Acl], who: Principal, host: str, operation: Operation, resource: Resource) -> bool:
    """Kafka's rules in the order in which its documentation has them, over all ACLs."""

    def is_about(pattern: ResourcePattern) -> bool:
        if pattern.type is not resource.type:
            return False
        if pattern.pattern_type is PREFIXED:
            return resource.name.startswith(pattern.name)
        return pattern.name in (resource.name, "*")

    def is_of(entry: AclEntry) -> bool:
        return entry.principal in (str(who), "User:*") and entry.host in (host, "*")

    def is_granted(by: Operation) -> bool:
        if by in (operation, ALL):
            return True
        if operation is DESCRIBE:
            return by in IMPLYING
        return operation is Operation.DESCRIBE_CONFIGS and by is Operation.ALTER_CONFIGS

    mine = [entry for pattern, entry in acls if is_about(pattern) and is_of(entry)]
    if any(row.permission is DENY and row.operation in (operation, ALL) for row in mine):
        return False
    return any(row.permission is ALLOW and is_granted(row.operation) for row in mine)


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "abd"])
ACLS = st.lists(
    st.builds(
        acl,
        NAMES,
        st.sampled_from([ALL, *CONCRETE]),
        st.sampled_from([ALLOW, DENY]),
        who=st.sampled_from(["User:alice", "User:bob", "User:*"]),
        host=st.sampled_from([HOST, "10.0.0.8", "*"]),
        kind=st.sampled_from([LITERAL, PREFIXED]),
        of=st.sampled_from([TOPIC, GROUP]),
    ),
    max_size=12,
)


@given(
    acls=ACLS,
    who=st.sampled_from([ALICE, BOB]),
    operation=st.sampled_from(CONCRETE),
    name=st.sampled_from(["a", "ab", "abc", "abcd", "b", "c"]),
    of=st.sampled_from([TOPIC, GROUP]),
)
def test_the_decision_is_that_of_a_naive_reading_of_the_rules(
    acls: list[Acl], who: Principal, operation: Operation, name: str, of: ResourceType
) -> None:
    resource = Resource(of, name)
    expected = naive(acls, who, HOST, operation, resource)
    assert authorizer_with(acls).authorize(who, HOST, operation, resource) is expected
    lenient = authorizer_with(acls, allow_without_acl=True)
    has_acls = any(row.pattern.type is of and row.pattern.matches(name) for row in acls)
    assert lenient.authorize(who, HOST, operation, resource) is (expected if has_acls else True)


@given(acls=ACLS, then=ACLS)
def test_acls_that_were_removed_decide_nothing(acls: list[Acl], then: list[Acl]) -> None:
    changed = authorizer_with(acls)
    for pattern in {row.pattern for row in [*acls, *then]}:
        changed.replace(pattern, [row.entry for row in then if row.pattern == pattern])
    fresh = authorizer_with(then)
    assert set(changed.acls()) == set(fresh.acls()) == set(then)
    for name in ("a", "ab", "abcd", "b"):
        for operation in (READ, DESCRIBE, Operation.ALTER_CONFIGS):
            question = ALICE, HOST, operation, Resource(TOPIC, name)
            assert changed.authorize(*question) is fresh.authorize(*question)


@given(acls=ACLS, operation=st.sampled_from([READ, WRITE, DESCRIBE]))
def test_an_operation_is_allowed_to_some_resource_when_one_can_be_named(acls: list[Acl], operation: Operation) -> None:
    """KIP-679: only ACLs for the operation itself count, and a prefix that is denied as a whole does not."""
    found = authorizer_with(acls).authorize_any(ALICE, HOST, operation, TOPIC)
    own = [row for row in acls if row.entry.permission is DENY or row.entry.operation in (operation, ALL)]
    names = {row.pattern.name + suffix for row in own for suffix in ("", "~", "~~")} | {"hardcode"}
    literal = {row.pattern.name for row in own if row.pattern.pattern_type is LITERAL}
    possible = {name for name in names if name in literal or name.endswith("~") or name == "hardcode"}
    can_be_named = any(naive(own, ALICE, HOST, operation, Resource(TOPIC, name)) for name in possible)
    assert found or not can_be_named


def test_super_users_and_brokers_may_do_everything() -> None:
    everything_denied = [acl("*", ALL, DENY, who="User:*"), acl(CLUSTER.name, ALL, DENY, of=CLUSTER.type, who="User:*")]
    made = authorizer_with(everything_denied, "User:admin")
    for operation in CONCRETE:
        for resource in (Resource(TOPIC, "t"), CLUSTER):
            assert made.authorize(Principal("User", "admin"), HOST, operation, resource)
            assert made.authorize(Principal("Broker", "1"), HOST, operation, resource)
            assert not made.authorize(ANONYMOUS, HOST, operation, resource)
    assert made.authorize_any(Principal("User", "admin"), HOST, WRITE, TOPIC)
    assert not made.authorize_any(ANONYMOUS, HOST, WRITE, TOPIC)


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl("t", WRITE)], True),
        ([acl("t", ALL)], True),
        ([acl("t", READ)], False),
        ([acl("t", WRITE, who="User:bob")], False),
        ([acl("t", WRITE, host="10.0.0.8")], False),
        ([acl("t", WRITE), acl("t", WRITE, DENY)], False),
        ([acl("t", WRITE), acl("*", WRITE, DENY)], False),
        ([acl("*", WRITE), acl("t", WRITE, DENY)], True),
        ([acl("team-a", WRITE, kind=PREFIXED), acl("team-", WRITE, DENY, kind=PREFIXED)], False),
        ([acl("team-", WRITE, kind=PREFIXED), acl("team-a", WRITE, DENY, kind=PREFIXED)], True),
        ([acl("team-a", WRITE), acl("team-", WRITE, DENY, kind=PREFIXED)], False),
        ([acl("team-a", WRITE, kind=PREFIXED), acl("team-a", WRITE, DENY)], True),
    ],
)
def test_what_a_producer_may_write_to_some_topic(acls: list[Acl], allowed: bool) -> None:
    assert authorizer_with(acls).authorize_any(ALICE, HOST, WRITE, TOPIC) is allowed


def test_an_ipv6_host_is_the_same_in_javas_form_and_in_the_short_one() -> None:
    for host in ("0:0:0:0:0:0:0:1", "::1"):
        assert authorizer_with([acl("t", host=host)]).authorize(ALICE, "::1", READ, Resource(TOPIC, "t"))


@pytest.mark.parametrize(
    ("host", "inside", "outside"),
    [
        ("10.0.0.0/8", ("10.0.0.0", "10.255.255.255"), ("11.0.0.0", "::1")),
        ("10.1.2.3/24", ("10.1.2.0", "10.1.2.255"), ("10.1.3.0",)),
        ("10.0.0.7/32", ("10.0.0.7",), ("10.0.0.6",)),
        ("2001:db8::/32", ("2001:db8::7",), ("2001:db9::", "10.0.0.7")),
    ],
)
def test_a_host_that_is_a_range_has_every_address_in_it(
    host: str, inside: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    """A range denies as an address does."""
    check_acl(acl("t", host=host))
    allows = authorizer_with([acl("t", host=host)])
    denies = authorizer_with([acl("t"), acl("t", host=host, permission=DENY)])
    topic = Resource(TOPIC, "t")
    for address in (*inside, *outside):
        assert allows.authorize(ALICE, address, READ, topic) is (address in inside)
        assert denies.authorize(ALICE, address, READ, topic) is (address in outside)
        assert allows.authorize_any(ALICE, address, READ, TOPIC) is (address in inside)


@pytest.mark.parametrize("host", ["10.0.0.0/33", "10.0.0.0/", "10/8", "10.0.0.0/255.0.0.0", "host/8", "::/129"])
def test_a_host_that_is_no_range_is_refused(host: str) -> None:
    with pytest.raises(KafkaError, match="Invalid CIDR notation"):
        check_acl(acl("t", host=host))


def test_a_decision_does_not_scan_the_acls_of_a_topic() -> None:
    crowded = [acl("t", WRITE, who=f"User:u{number}") for number in range(10_000)]
    crowded += [acl(f"p{number}", kind=PREFIXED) for number in range(10_000)]
    made = authorizer_with([*crowded, acl("t")])
    begun = time.process_time()
    for _ in range(1_000):
        assert made.authorize(ALICE, HOST, READ, Resource(TOPIC, "t"))
        assert not made.authorize(BOB, HOST, READ, Resource(TOPIC, "t"))
    assert time.process_time() - begun < 1


# ------------------------------------------------------------------- filters


@pytest.mark.parametrize(
    ("wanted", "matched"),
    [
        (AclFilter(), {"foo", "fo*", "*"}),
        (AclFilter(type=GROUP), set[str]()),
        (AclFilter(name="foo"), {"foo"}),
        (AclFilter(name="foo", pattern_type=PatternType.MATCH), {"foo", "fo*", "*"}),
        (AclFilter(name="bar", pattern_type=PatternType.MATCH), {"*"}),
        (AclFilter(name="fo", pattern_type=PREFIXED), {"fo*"}),
        (AclFilter(name="fo", pattern_type=LITERAL), set[str]()),
        (AclFilter(name="*", pattern_type=LITERAL), {"*"}),
        (AclFilter(pattern_type=PREFIXED), {"fo*"}),
        (AclFilter(pattern_type=PatternType.MATCH), {"foo", "fo*", "*"}),
        (AclFilter(principal="User:bob"), set[str]()),
        (AclFilter(host=HOST), set[str]()),
        (AclFilter(operation=READ, permission=ALLOW), {"foo", "fo*", "*"}),
        (AclFilter(operation=WRITE), set[str]()),
        (AclFilter(permission=DENY), set[str]()),
    ],
)
def test_filters_choose_as_in_kafka(wanted: AclFilter, matched: set[str]) -> None:
    rows = {"foo": acl("foo"), "fo*": acl("fo", kind=PREFIXED), "*": acl("*")}
    assert {name for name, row in rows.items() if wanted.matches(row)} == matched


FILTERS = st.builds(
    AclFilter,
    type=st.sampled_from([TOPIC, GROUP, ResourceType.ANY]),
    name=st.none() | NAMES,
    pattern_type=st.sampled_from([LITERAL, PREFIXED, PatternType.ANY, PatternType.MATCH]),
    principal=st.sampled_from([None, "User:alice", "User:bob"]),
    host=st.sampled_from([None, HOST, "*"]),
    operation=st.sampled_from([READ, ALL, Operation.ANY]),
    permission=st.sampled_from([ALLOW, DENY, Permission.ANY]),
)


@given(wanted=FILTERS, acls=ACLS)
def test_a_filter_that_is_exact_chooses_what_it_names_alone(wanted: AclFilter, acls: list[Acl]) -> None:
    for row in acls:
        if wanted.exact_pattern is not None:
            assert wanted.matches_pattern(row.pattern) is (row.pattern == wanted.exact_pattern)
        if wanted.exact_entry is not None:
            assert wanted.matches_entry(row.entry) is (row.entry == wanted.exact_entry)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (acl("other", of=ResourceType.CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (acl(""), "Invalid empty resource name"),
        (acl("t", of=ResourceType.ANY), "Invalid resourceType ANY"),
        (acl("t", kind=PatternType.MATCH), "Invalid patternType MATCH"),
        (acl("t", Operation.ANY), "Invalid operation ANY"),
        (acl("t", permission=Permission.ANY), "Invalid permissionType ANY"),
        (acl("t", who="alice"), "Could not parse principal from `alice`"),
        (acl("t", host=""), "Host pattern cannot be null or empty"),
    ],
)
def test_an_acl_that_cannot_be_is_refused_with_kafkas_words(wrong: Acl, message: str) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        check_acl(wrong)
    assert refused.value.code is ErrorCode.invalid_request


def test_names_are_written_as_kafka_writes_them() -> None:
    assert kafka_name(ResourceType.TRANSACTIONAL_ID) == "TransactionalId"
    assert kafka_name(Operation.DESCRIBE_CONFIGS) == "DescribeConfigs"
    assert kafka_name(DENY) == "Deny"


# ------------------------------------------------------------------ settings


def test_the_authorizer_is_made_of_kafkas_settings() -> None:
    assert authorizer_of(BrokerConfig.parse({})) is None
    for name in ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", "kafka.security.authorizer.AclAuthorizer"):
        config = {"authorizer.class.name": name, "super.users": "User:admin; User:CN=a,O=b;"}
        made = authorizer_of(BrokerConfig.parse(config))
        assert made is not None
        for user in ("admin", "CN=a,O=b"):
            assert made.authorize(Principal("User", user), HOST, READ, Resource(TOPIC, "t"))
        assert not made.authorize(ALICE, HOST, READ, Resource(TOPIC, "t"))


@pytest.mark.parametrize("wrong", ["admin", "User:a;b", "User"])
def test_a_super_user_without_a_type_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"super\.users"):
        BrokerConfig.parse({"super.users": wrong})
