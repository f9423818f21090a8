"""`harrow extensions`: what other distributions add to Harrow here (J4)."""

from __future__ import annotations

import click
from harrow.faults.extensions import EXTENSIONS
from harrow.faults.fault_kinds import extension_kinds
from harrow.faults.targets import extension_roles

from ..backends.kinds import added_backends
from ..checks.guarantees import added_checks
from ..promises.relations import added_relations
from ..workloads.by_name import added_workloads


@click.command()
def command() -> None:
    """List the extensions that are installed here, and what they add."""
    found = EXTENSIONS.extensions()
    if not found:
        click.echo("no extension is installed here; docs/extending.md says how to write one")
    tables = {
        "fault": ("harrow_faults", extension_kinds()),
        "target": ("harrow_targets", extension_roles()),
        "check": ("harrow_checks", added_checks()),
        "relation": ("harrow_relations", added_relations()),
        "backend": ("harrow_backends", added_backends()),
        "workload": ("harrow_workloads", added_workloads()),
    }
    for extension in found:
        click.echo(extension.name)
        for what, (hook, table) in tables.items():
            names = [name for name in table if EXTENSIONS.owner(hook, name) == extension.name]
            if names:
                click.echo(f"    {what:<10}{', '.join(names)}")
