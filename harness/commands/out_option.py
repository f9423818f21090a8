"""`--out DIR`, shared by the commands that write run folders."""

from __future__ import annotations

from pathlib import Path

import click

from ..out_folder import why_not_writable


def _writable(ctx: click.Context, parameter: click.Parameter, value: Path) -> Path:
    del ctx, parameter
    if why := why_not_writable(value):
        raise click.BadParameter(f"{value} cannot be written ({why}); name another folder: --out DIR")
    return value


out_option = click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("harrow-out"),
    show_default=True,
    callback=_writable,
    help="folder for the folders of runs",
)
"""A folder that cannot be written is a usage error, before anything starts."""
