"""`harrow check FOLDER`: judge a run folder again, for example with another guarantee."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--topic", "topics", multiple=True, required=True, help="a topic to judge; repeatable"
)
@click.option(
    "--guarantee",
    help="best-effort, no-loss, at-least-once, exactly-once, ordered; several with commas",
)
@click.option("--spark", default="", help="your own Spark master or Connect address")
def command(folder: Path, topics: tuple[str, ...], guarantee: str | None, spark: str) -> None:
    """Judge a run folder again."""
    from ..checks import judge
    from ..verdicts import spark_of_run

    handle = spark_of_run(folder.absolute().parent, spark)
    verdict = judge(folder, topics=list(topics), guarantee=guarantee, spark=handle)
    click.echo(str(verdict))
    sys.exit(0 if verdict.valid else 1)
