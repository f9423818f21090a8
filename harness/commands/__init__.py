"""The `harrow` command: a cluster in a terminal, the demo, chaos by seed, verdicts on folders.

Owns: the click group and its subcommands, one file each. Subcommands are loaded when called, so that
`harrow up` does not pay for Spark. A HarrowError ends with its message and exit code 1; a wrong
argument with click's usage and exit code 2.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click
from harrow.cluster import HarrowError

COMMANDS = {
    "up": "run a cluster in this terminal until Ctrl-C",
    "demo": "kill a leader under traffic, and prove that nothing was lost",
    "chaos": "the demo's scenario with random faults, for many seeds",
    "simulate": "whole clusters on a virtual clock under random faults, thousands of seeds",
    "check": "judge a run's folder again",
    "topics": "topics, leaders and ISRs of a running cluster",
    "failpoints": "the places in the broker's code that a fault can arm",
    "dump-log": "the files of a log folder, printed as Kafka's DumpLogSegments prints them",
}


class Commands(click.Group):
    """A group that imports a subcommand when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """The subcommand's module, imported now; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".{cmd_name.replace('-', '_')}", __name__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """The table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pytest-harrow", prog_name="harrow")
def cli() -> None:
    """What happens when Kafka breaks? A cluster to break, faults to break it with, verdicts from Spark."""


def main() -> None:
    """The entry point of the `harrow` command."""
    try:
        cli.main(standalone_mode=True)
    except HarrowError as error:
        click.echo(f"harrow: {error}", err=True)
        sys.exit(1)
