"""Sensible requests about ACLs, delegation tokens and features; see `requests.py`.

Both systems have an authorizer, and the user of all cases is a super user. Connections have no user that may own a
delegation token, so the requests about tokens show which refusal comes first.
"""

from __future__ import annotations

from typing import Any

from .requests import Body, Maker, base

ANY, TOPIC, LITERAL = 1, 2, 3
OWNER = {"principalType": "User", "principalName": "u%"}


def acl(make: Maker) -> Body:
    return {
        "resourceType": make.random.choice((TOPIC, 3, 5, 6, 7)),
        "resourceName": "a%",
        "resourcePatternType": make.random.choice((LITERAL, LITERAL, 4)),
        "principal": "User:u%",
        "host": make.random.choice(("*", "127.0.0.1")),
        "operation": make.random.choice((2, 3, 8)),
        "permissionType": make.random.choice((2, 3)),
    }


def filter_of(**fields: Any) -> Body:
    return {
        "resourceTypeFilter": ANY,
        "resourceNameFilter": "a%",
        "patternTypeFilter": ANY,
        "principalFilter": None,
        "hostFilter": None,
        "operation": ANY,
        "permissionType": ANY,
        **fields,
    }


def created(make: Maker) -> None:
    make.setup("CreateAcls", {"creations": [acl(make), acl(make)]}, node=make.controller)


def probe_acls(make: Maker) -> None:
    make.probe("DescribeAcls", filter_of(), most=3)


@base
def CreateAcls(make: Maker) -> None:  # noqa: N802 - the name of the request
    make.target("CreateAcls", {"creations": [acl(make)]}, node=make.some_node())
    probe_acls(make)


@base
def DescribeAcls(make: Maker) -> None:  # noqa: N802
    created(make)
    principal = make.random.choice((None, "User:u%"))
    make.target("DescribeAcls", filter_of(principalFilter=principal))


@base
def DeleteAcls(make: Maker) -> None:  # noqa: N802
    created(make)
    make.target("DeleteAcls", {"filters": [filter_of()]}, node=make.some_node())
    probe_acls(make)


@base
def CreateDelegationToken(make: Maker) -> None:  # noqa: N802
    owner = {"ownerPrincipalType": "User", "ownerPrincipalName": "u%"} if make.random.random() < 0.5 else {}
    none = {"ownerPrincipalType": None, "ownerPrincipalName": None}
    body = {**none, **owner, "renewers": [OWNER], "maxLifetimeMs": make.random.choice((-1, 60_000))}
    make.target("CreateDelegationToken", body, node=make.some_node())


@base
def RenewDelegationToken(make: Maker) -> None:  # noqa: N802
    make.target("RenewDelegationToken", {"hmac": {"$hex": "0102"}, "renewPeriodMs": -1}, node=make.some_node())


@base
def ExpireDelegationToken(make: Maker) -> None:  # noqa: N802
    make.target("ExpireDelegationToken", {"hmac": {"$hex": "0102"}, "expiryTimePeriodMs": -1}, node=make.some_node())


@base
def DescribeDelegationToken(make: Maker) -> None:  # noqa: N802
    make.target("DescribeDelegationToken", {"owners": make.random.choice((None, [OWNER]))})


@base
def UpdateFeatures(make: Maker) -> None:  # noqa: N802
    row = {"feature": "no.such%", "maxVersionLevel": 1, "allowDowngrade": False, "upgradeType": 1}
    make.target("UpdateFeatures", {"timeoutMs": 1_000, "featureUpdates": [row], "validateOnly": True})


@base
def UnregisterBroker(make: Maker) -> None:  # noqa: N802
    make.target("UnregisterBroker", {"brokerId": 99})


@base
def DescribeQuorum(make: Maker) -> None:  # noqa: N802
    rows = [{"partitionIndex": make.random.choice((1, 7))}]
    make.target("DescribeQuorum", {"topics": [{"topicName": "__cluster_metadata", "partitions": rows}]})
