"""`harrow groups BOOTSTRAP [GROUP…]`: shows the consumer, share and streams groups of any running Kafka cluster.

With `--json`: a list of `{"group", "state", "assignor", "coordinator", "members"}`; a member is
`{"member_id", "client_id", "host", "partitions"}`, a partition `{"topic", "partition"}`. A member of a streams group
has no partitions, but its active `tasks`: `{"subtopology", "partition"}`. A share group has `share_partitions`, too:
`{"topic", "partition", "start_offset", "lag"}`, null where `kafka-share-groups --describe` shows "-".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click
from harrow.cluster.errors import HarrowError
from harrow.cluster.listeners import Address
from rich.console import Console
from rich.table import Table

from ..requests.groups_by_type import ListedGroup, groups_of_types
from ..requests.share_groups import SHARE_TYPE, share_row
from ..requests.streams_groups import STREAMS_TYPE, streams_row
from ..topics import listed_groups
from .admin_client import ask, bootstrap_argument, json_option, open_admin, print_json, timeout_option

ROW_OF_TYPE: Mapping[str, Callable[[ListedGroup, float], dict[str, Any]]] = {
    SHARE_TYPE: share_row,
    STREAMS_TYPE: streams_row,
}
"""Protocol type of a group -> its row in the list, asked of its coordinator."""


@click.command()
@bootstrap_argument
@click.argument("groups", nargs=-1)
@timeout_option
@json_option
def command(bootstrap_servers: str, groups: tuple[str, ...], timeout: float, as_json: bool) -> None:
    """Show the consumer, share and streams groups of a running cluster, and their members."""
    admin = open_admin(bootstrap_servers, "groups")

    def described() -> list[dict[str, Any]]:
        existing = listed_groups(admin, timeout)
        nodes = admin.describe_cluster(request_timeout=timeout).result(timeout).nodes
        brokers = [(node.id, Address(node.host, node.port)) for node in nodes]
        others: dict[str, dict[str, Any]] = {}
        try:
            for group in groups_of_types(brokers, timeout):
                if group.type in ROW_OF_TYPE:
                    others[group.name] = ROW_OF_TYPE[group.type](group, timeout)
        except HarrowError as error:
            click.echo(f"the share and streams groups could not be listed: {error}", err=True)
        known = sorted({*existing, *others})
        for name in groups:
            if name not in known:
                raise click.ClickException(f"no group {name!r}; the cluster has: {', '.join(known) or 'none'}")
        wanted = list(groups) or known
        consumers = [name for name in wanted if name not in others]
        found = admin.describe_consumer_groups(consumers, request_timeout=timeout) if consumers else dict[str, Any]()
        return [others[name] if name in others else row_of(found[name].result(timeout)) for name in wanted]

    rows = ask(bootstrap_servers, described)
    if as_json:
        print_json(rows)
    else:
        show(rows)


def row_of(group: Any) -> dict[str, Any]:
    """Return one group as plain values."""
    return {
        "group": group.group_id,
        "state": group.state.name.lower(),
        "assignor": group.partition_assignor,
        "coordinator": None if group.coordinator is None else group.coordinator.id,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [
                    {"topic": place.topic, "partition": place.partition}
                    for place in (member.assignment.topic_partitions if member.assignment else ())
                ],
            }
            for member in group.members
        ],
    }


def show(rows: list[dict[str, Any]]) -> None:
    """Print one table row for each member, and one for a group without members; then the share-partitions."""
    table = Table("group", "state", "coordinator", "client", "host", "partitions or tasks")
    for row in rows:
        front = (row["group"], row["state"], str(row["coordinator"]))
        for member in row["members"]:
            held = [f"{p['topic']}-{p['partition']}" for p in member["partitions"]]
            # Kafka Streams writes a task as subtopology_partition
            held += [f"{task['subtopology']}_{task['partition']}" for task in member.get("tasks", ())]
            places = ", ".join(held)
            table.add_row(*front, member["client_id"], member["host"], places)
        if not row["members"]:
            table.add_row(*front, "no members", "", "")
    if not rows:
        click.echo("the cluster has no consumer, share or streams groups")
        return
    Console().print(table)
    shares = Table("share group", "topic", "partition", "start offset", "lag")
    for row in rows:
        for place in row.get("share_partitions", ()):
            offsets = ("-" if place[name] is None else str(place[name]) for name in ("start_offset", "lag"))
            shares.add_row(row["group"], place["topic"], str(place["partition"]), *offsets)
    if shares.row_count:
        Console().print(shares)
