"""A broker of Harrow's and a proxy before one, each with a raw client and the control of its rules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from armed_requests import arm_request
from harrow.cluster.tap.layouts import PRODUCED
from harrow.faults.rule_kinds import ArmedRule
from proxied_cluster import batch_rows, proxied_cluster, where
from raw_kafka import RawKafka
from waiting import until


class Served(NamedTuple):
    """A broker, or the proxy before it."""

    port: int
    servers: str
    folder: Path
    call: Callable[..., dict[str, Any]]

    def raw(self) -> RawKafka:
        return RawKafka(self.port, client_id="raw")

    def topic(self) -> str:
        """Create a topic that broker 1 leads."""
        name = f"t-{uuid4().hex[:8]}"
        with self.raw() as client:
            controller = client.metadata()
            port = next(row.port for row in controller.brokers if row.node_id == controller.controller_id)
            with RawKafka(port, client_id="creates") as admin:
                assert not admin.create_topic(name, assignment=[[1]]).error_code
            until(lambda: not client.list_offset(name, 0, -1).error_code, f"{name} on broker 1")
        return name

    def arm(self, action: str, *, client: str = "raw", **fields: Any) -> ArmedRule:
        return arm_request(self.call, action=action, api_key=0, client=client, **fields)

    def rows(self, topic: str) -> list[tuple[int, int]]:
        """Base offset and flags of what the tap has of produced batches."""
        rows = where(batch_rows(self.folder), kind=PRODUCED, topic=topic)
        return sorted((dict(row)["base_offset"], dict(row)["flags"]) for row in rows.elements())


@contextlib.contextmanager
def served_by(folder: Path) -> Generator[dict[str, Served]]:
    """Start one broker and a proxy before it: `broker` and `proxy`."""
    with proxied_cluster(folder, brokers=1) as (cluster, proxy):
        broker = cluster.brokers[1]
        yield {
            "broker": Served(broker.port, cluster.bootstrap_servers, cluster.folder, partial(cluster.control, 1)),
            "proxy": Served(proxy.addresses[1].port, proxy.bootstrap_servers, proxy.folder, partial(proxy.control, 1)),
        }
