"""`--set name=value`, `--defaults`, `--as-version` and `--plant MODULE`, shared by commands that start a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import click

plant_option = click.option(
    "--plant",
    "plants",
    multiple=True,
    metavar="MODULE",
    help="start the brokers with a planted bug, such as harrow.faults.zoo.kip_101; repeatable",
)
"""Option of all commands that start brokers; the parameter `plants` is a tuple of module names."""

defaults_option = click.option(
    "--defaults",
    type=click.Choice(("harrow", "kafka")),
    default="harrow",
    show_default=True,
    help="whose defaults the broker settings have: Harrow's, which suit tests, or Apache Kafka's own",
)
"""Option of `harrow up`; the parameter `defaults` is a word of `harrow.cluster.defaults`."""
as_version_option = click.option(
    "--as-version",
    type=click.Choice(("3.9", "4.0", "4.2", "4.4")),
    help="list and serve to clients the requests, versions and features of this release of Kafka; all by default",
)
"""Option of `harrow up`; the parameter `as_version` is a value of the setting `harrow.as.version`, or None."""
_OF_ONE = re.compile(r"(\d+):(.*)", re.DOTALL)


def parse_settings_of_brokers(
    pairs: Iterable[str], brokers: int
) -> tuple[dict[str, str], dict[int, Mapping[str, str]]]:
    """Parse `["a.b=1", "2:c.d=3", …]` to the settings of all brokers and those of single brokers, by node id."""
    common: list[str] = []
    own: dict[int, list[str]] = {}
    for pair in pairs:
        found = _OF_ONE.fullmatch(pair)
        if found is None:
            common.append(pair)
            continue
        node = int(found[1])
        if not 1 <= node <= brokers:
            raise click.BadParameter(
                f"{pair!r}: there is no broker {node}; expected a number from 1 to {brokers}", param_hint="--set"
            )
        own.setdefault(node, []).append(found[2])
    return parse_settings(common), {node: parse_settings(rows) for node, rows in own.items()}


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """Parse `["a.b=1", …]` to a mapping; a pair without `=` is a usage error. The cluster checks the names."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r}: expected NAME=VALUE", param_hint="--set")
        settings[name.strip()] = value.strip()
    return settings
