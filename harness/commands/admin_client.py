"""What `topics`, `groups`, `offsets` and `watch` share: an admin client for any Kafka cluster, and its errors.

librdkafka would write a line for each failed connection before the command's own error message, so it writes none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from importlib import import_module
from typing import Any, TypeVar

import click

T = TypeVar("T")

bootstrap_argument = click.argument("bootstrap_servers")
timeout_option = click.option(
    "--timeout", type=click.FloatRange(0.1, 300), default=10.0, show_default=True, help="seconds"
)
json_option = click.option("--json", "as_json", is_flag=True, help="print JSON")
INTERNAL = "__"


def open_admin(bootstrap_servers: str, name: str) -> Any:
    """Return an admin client; no connection is made yet."""
    from confluent_kafka.admin import AdminClient

    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap_servers,
        "client.id": f"harrow-{name}",
        "log_level": 0,
        "reconnect.backoff.max.ms": 500,
    }
    return AdminClient(settings)


def ask(bootstrap_servers: str, request: Callable[[], T]) -> T:
    """Return the result of `request`; an error of the cluster ends the command with its message."""
    from confluent_kafka import KafkaException

    try:
        return request()
    except (KafkaException, FutureTimeoutError, TimeoutError) as error:
        raise click.ClickException(
            f"{bootstrap_servers} does not respond: {reason_of(error)}. "
            "Is this the address of a running cluster? `harrow up` starts one and prints its address."
        ) from error


def reason_of(error: Exception) -> str:
    """Return what a Kafka error says, without its class and code."""
    cause: Any = error.args[0] if error.args else error
    return cause.str() if hasattr(cause, "str") else str(cause) or type(error).__name__


def latest_offsets(admin: Any, partitions: Sequence[tuple[str, int]], timeout_s: float) -> dict[tuple[str, int], Any]:
    """Return the result of ListOffsets for the high watermark of each partition that responds."""
    return _offsets(admin, partitions, "latest", timeout_s)


def earliest_offsets(admin: Any, partitions: Sequence[tuple[str, int]], timeout_s: float) -> dict[tuple[str, int], Any]:
    """Return the result of ListOffsets for the log start offset of each partition that responds."""
    return _offsets(admin, partitions, "earliest", timeout_s)


def _offsets(
    admin: Any, partitions: Sequence[tuple[str, int]], position: str, timeout_s: float
) -> dict[tuple[str, int], Any]:
    from confluent_kafka import KafkaException, TopicPartition

    if not partitions:
        return {}
    untyped: Any = import_module("confluent_kafka.admin")
    spec = getattr(untyped.OffsetSpec, position)()
    wanted = {TopicPartition(topic, number): spec for topic, number in partitions}
    found: dict[tuple[str, int], Any] = {}
    for place, future in admin.list_offsets(wanted, request_timeout=timeout_s).items():
        try:
            found[place.topic, place.partition] = future.result(timeout_s)
        except (KafkaException, FutureTimeoutError, TimeoutError):
            continue  # a partition without a leader
    return found


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=1))
