"""The settings of ACLs: which authorizer decides, who may do everything, and what holds without an ACL.

Owns: `ACL_SETTINGS`, `AUTHORIZERS`.
Source: Apache Kafka's documentation of broker configurations, `StandardAuthorizer`.
"""

from __future__ import annotations

from .setting import Setting

__all__ = ["ACL_SETTINGS", "AUTHORIZERS"]

AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""The classes of Apache Kafka that decide by ACLs: since version 4, and before. Harrow has one authorizer for both."""

OF_AUTHORIZER = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
"""Kafka's broker hands them on to the authorizer: in DescribeConfigs they are settings that it does not know."""

ACL_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="authorizer.class.name",
        default="",
        doc="decides by ACLs who may do what; '': every client may do everything",
        choices=("", *AUTHORIZERS),
    ),
    Setting(
        name="super.users",
        default="",
        doc="principals that may do everything, as User:admin;User:CN=broker",
        pattern=r"(\s*|[^;]*:[^;]*)(;(\s*|[^;]*:[^;]*))*",
        internal=True,
    ),
    Setting(
        name="allow.everyone.if.no.acl.found",
        default=False,
        doc="without an ACL for a resource, every client may do everything to it",
        internal=True,
    ),
)
