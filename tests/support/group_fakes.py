"""A group coordinator without a cluster: requests in, decoded responses out."""

from __future__ import annotations

from typing import Any, cast

from coordinator_fakes import (
    FakeCache,
    FakeHost,
    FakePartition,
    FakeReplicas,
    FakeTopicAdmin,
    Sent,
)
from harrow.cluster.config import BrokerConfig
from harrow.cluster.coordinators import CoordinatorType, FindCoordinator
from harrow.cluster.groups import GroupCoordinator
from harrow.cluster.host.seam import Peer
from harrow.cluster.internal_topics import OFFSETS
from harrow.cluster.wire import messages
from harrow.cluster.wire.request import Request


class GroupTestBed:
    """A coordinator that leads every offsets partition of one broker."""

    def __init__(self, **settings: object) -> None:
        self.host = FakeHost()
        self.replicas = FakeReplicas(self.host)
        self.cache = FakeCache()
        self.admin = FakeTopicAdmin(self.cache)
        defaults: dict[str, object] = {"group.initial.rebalance.delay.ms": 0}
        config = BrokerConfig.parse(
            {**defaults, **{name.replace("_", "."): value for name, value in settings.items()}}
        )
        host, replicas, cache, admin = cast(
            "Any", (self.host, self.replicas, self.cache, self.admin)
        )
        self.coordinator = GroupCoordinator(host, config, replicas, cache)
        finder = FindCoordinator(host, config, cache, admin, {CoordinatorType.GROUP: OFFSETS})
        rows = (*self.coordinator.handlers(), *finder.handlers())
        self.handlers = {int(row.api_key): row for row in rows}

    def lead(self, number: int, *, high_watermark: int | None = None) -> FakePartition:
        """Begin to lead a partition of `__consumer_offsets`."""
        return self.replicas.lead(number, high_watermark=high_watermark)

    def resign(self, number: int) -> None:
        """Stop leading it."""
        self.replicas.resign(number)

    def send(self, api_key: int, version: int, **fields: Any) -> Sent:
        """Encode, decode and handle a request as a connection would."""
        s = messages.schema(api_key, version, "request")
        row = self.handlers[api_key]
        assert row.low <= version <= row.high
        body = messages.encode_request(api_key, version, s.root(**fields))
        sent = Sent(api_key, version)
        request = Request(
            api_key, version, 1, "app", body, 0, Peer("client", "app"), 0, sent.complete
        )
        assert row.handler(request) is None
        self.host.run_due()
        return sent

    def nested(self, api_key: int, version: int, kind: str, /, **fields: Any) -> Any:
        return getattr(messages.schema(api_key, version, "request"), kind)(**fields)
