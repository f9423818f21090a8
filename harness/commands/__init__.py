"""The `harrow` command: a cluster in the terminal, the demo, chaos and simulation by seed, verdicts on run folders.

Owns: the click group. Each subcommand is one file and is imported when it is called, so `harrow up` does not import
Spark. A HarrowError ends the command with its message and exit code 1; a wrong argument with click's usage and exit
code 2.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click
from harrow.cluster import HarrowError

from ..plain_text import write_plainly

COMMANDS = {
    "up": "run a cluster in this terminal until Ctrl-C",
    "demo": "a shop that loses orders, its correct twin, and the verdicts on both",
    "chaos": "a small application, or a program of yours, under random faults",
    "simulate": "clusters on a virtual clock with random faults, for thousands of seeds",
    "zoo": "how surely bugs that Kafka really had are found, and which of them your tests would notice",
    "mutants": "which bugs of Kafka clients your tests would notice in your services",
    "shrink": "the smallest schedule with which a failed simulation still fails, as a test to paste",
    "check": "judge a run folder again",
    "topics": "show topics, leaders and ISRs of a running cluster",
    "groups": "show consumer groups of a running cluster and their members",
    "offsets": "show log start offsets, high watermarks, committed offsets and lag",
    "watch": "watch leaders, ISRs and high watermarks of a running cluster",
    "backends": "list where the brokers of a test can run here, and what faults can do there",
    "extensions": "list what other distributions add to Harrow here",
    "failpoints": "list the failpoints of the broker's code",
    "dump-log": "print the files of a log folder like Kafka's DumpLogSegments",
}


class Commands(click.Group):
    """A group that imports a subcommand when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        """Import the subcommand's module; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".{cmd_name.replace('-', '_')}", __name__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the table without importing a subcommand."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pytest-harrow", prog_name="harrow")
def cli() -> None:
    """What happens when Kafka breaks? Start a cluster, inject faults, get a verdict from Spark."""


def main() -> None:
    """Run the `harrow` command."""
    for stream in (sys.stdout, sys.stderr):
        write_plainly(stream)
    try:
        cli.main(standalone_mode=True)
    except HarrowError as error:
        click.echo(f"harrow: {error}", err=True)
        sys.exit(1)
