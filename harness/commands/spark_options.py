"""The options `--engine`, `--spark` and `--spark-data` of commands that ask for a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..engines import CHOICES, SPARK
from ..user_spark import data_folder

C = TypeVar("C", bound=Callable[..., Any])


def _folder(context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if text and not context.params.get("spark"):
        raise click.UsageError("--spark-data: Harrow's own Spark reads the run folder; name yours too: --spark ADDRESS")
    try:
        return data_folder(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def spark_options(command: C) -> C:
    """Add the options; the parameters are `engine`, `spark` and `spark_data`."""
    data = click.option(
        "--spark-data",
        default="",
        metavar="URL",
        callback=_folder,
        help="a folder or URL that executors of --spark can read, when they cannot read the run folder",
    )
    address = click.option("--spark", default="", is_eager=True, help="your own Spark master or Connect address")
    engine = click.option(
        "--engine",
        default=SPARK,
        type=click.Choice(CHOICES),
        help="what judges: Spark, the same checks in this process, or one of them by the size of the run",
    )
    return engine(address(data(command)))
