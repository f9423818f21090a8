"""`harrow check FOLDER`: judge a run folder again, for example with another guarantee.

Without `--topic` the topics of the run's own verdict are judged, without `--guarantee` its guarantees. The command
prints its verdict and leaves `verdict.json` as the run wrote it, because the run knew more: the state of the cluster
when it ended, and what the test promised. Only a folder without a verdict gets one.

The data of a passed test is removed (`--harrow-keep` keeps it). Then the stored verdict is printed, and the command
says that the data is gone; another guarantee cannot be judged.

Exit code 0: the verdict is valid. 1: it is not, or nothing could be judged.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .. import run_folder
from ..checks import Verdict
from ..user_spark import UserSpark
from .spark_options import spark_options


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="a topic to judge; repeatable; default: those of the run",
)
@click.option(
    "--guarantee",
    help="one or several with commas, such as exactly-once,ordered; default: those of the run's verdict",
)
@spark_options
def command(
    folder: Path, topics: tuple[str, ...], guarantee: str | None, spark: str, spark_data: str
) -> None:
    """Judge a run folder again."""
    stored = stored_verdict(folder)
    missing = run_folder.missing_data(folder)
    if run_folder.CLUSTER in missing:
        sys.exit(_without_data(folder, stored, guarantee))
    names = list(topics) or run_folder.topics_of(folder)
    if not names:
        raise click.ClickException(f"{folder}: no topic was found; name one: --topic orders")
    if guarantee is None and stored is not None and stored.guarantee_reason is None:
        guarantee = ",".join(stored.guarantees)
    verdict = judge_again(folder, names, guarantee, UserSpark(spark, spark_data))
    click.echo(str(verdict))
    if stored is not None and stored.status is not verdict.status:
        click.echo(
            f"the verdict of the run itself is {stored.status.value}; verdict.json was not changed"
        )
    if missing:
        click.echo(
            f"the run folder has no {' and no '.join(missing)}: less could be judged than in the run"
        )
    sys.exit(0 if verdict.valid else 1)


def stored_verdict(folder: Path) -> Verdict | None:
    """Return the verdict of the run; None where there is none that this version of Harrow can read."""
    try:
        return Verdict.from_json((folder / run_folder.VERDICT).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def judge_again(
    folder: Path, topics: list[str], guarantee: str | None, spark: UserSpark
) -> Verdict:
    """Judge the run; a verdict that the run wrote stays in `verdict.json`."""
    from ..checks import judge
    from ..checks.partition_jobs import read_replicas
    from ..verdicts import spark_of_run

    path = folder / run_folder.VERDICT
    text = path.read_bytes() if stored_verdict(folder) is not None else None
    try:
        return judge(
            folder, topics=topics, guarantee=guarantee, spark=spark_of_run(folder.absolute().parent, spark),
            replicas=read_replicas(folder, topics) or None,
        )  # fmt: skip
    finally:
        if text is not None:
            path.write_bytes(text)


def _without_data(folder: Path, stored: Verdict | None, guarantee: str | None) -> int:
    """Print the stored verdict and that the data is gone; return the exit code."""
    from ..checks.guarantees import parse

    if stored is None:
        raise click.ClickException(
            f"{folder} is no folder of a run: it has neither the data of a cluster nor a verdict. "
            f"Name the folder that has a {run_folder.VERDICT}"
        )
    gone = "the data of this run is gone (a passed test removes it; --harrow-keep keeps it)"
    if guarantee is not None and set(parse(guarantee)) != set(stored.guarantees):
        raise click.ClickException(
            f"{gone}, so {guarantee!r} cannot be judged; the stored verdict is {stored.status.value} "
            f"({', '.join(stored.guarantees)})"
        )
    click.echo(str(stored))
    click.echo(f"{gone}: this is the stored verdict")
    return 0 if stored.valid else 1
