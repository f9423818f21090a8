"""`harrow check FOLDER`: judge a run folder again, for example with another guarantee.

Without `--topic` the topics of the run's own verdict are judged, without `--guarantee` its guarantees. The command
prints its verdict and leaves `verdict.json` as the run wrote it, because the run knew more: the state of the cluster
when it ended, and what the test promised. Only a folder without a verdict gets one.

A run with several verdicts (`verdict-2.json`, …) has each of them judged again, in their order, with its own topics,
guarantees and promises. A verdict whose topics the last final read did not read is printed as the run stored it.

The data of a passed test is removed (`--harrow-keep` keeps it). Then the stored verdict is printed, and the command
says that the data is gone; another guarantee cannot be judged.

`harrow check --history FILE` judges a file of operations that another tool wrote (`docs/histories.md`). It becomes a
run folder below `--out`, which can be judged again as any other.

Exit code 0: the verdict is valid. 1: it is not, or nothing could be judged.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from .. import run_folder
from ..checks import Verdict
from ..engines import engine_for
from ..user_spark import UserSpark, chosen_engine
from .out_option import out_option
from .spark_options import spark_options


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option(
    "--history",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="judge a file of operations instead of a run folder: .jsonl, .csv or .edn (Jepsen)",
)
@click.option(
    "--read-uncommitted",
    is_flag=True,
    help="of --history: the readers read uncommitted, so that they may receive records of aborted transactions",
)
@click.option(
    "--other-producers",
    is_flag=True,
    help="of --history: the file does not have every send, so that records of unknown origin are legal",
)
@click.option("--topic", "topics", multiple=True, help="a topic to judge; repeatable; default: those of the run")
@click.option(
    "--guarantee", help="one or several with commas, such as exactly-once,ordered; default: those of the run's verdict"
)
@out_option
@spark_options
def command(
    folder: Path | None,
    history: Path | None,
    read_uncommitted: bool,
    other_producers: bool,
    topics: tuple[str, ...],
    guarantee: str | None,
    out: Path,
    engine: str,
    spark: str,
    spark_data: str,
) -> None:
    """Judge a run folder again, or a history that another tool wrote."""
    used_spark = UserSpark(spark, spark_data, engine)
    chosen_engine("", used_spark)
    if (folder is None) == (history is None):
        raise click.UsageError("name a run folder, or a file of operations: --history FILE")
    if history is not None:
        sys.exit(
            _check_history(
                history,
                out,
                topics,
                guarantee,
                used_spark,
                complete=not other_producers,
                reads_committed=not read_uncommitted,
            )
        )
    assert folder is not None
    if read_uncommitted or other_producers:
        raise click.UsageError("--read-uncommitted and --other-producers say something of --history")
    sys.exit(_check_folder(folder, topics, guarantee, used_spark))


def _check_history(
    history: Path,
    out: Path,
    topics: tuple[str, ...],
    guarantee: str | None,
    spark: UserSpark,
    *,
    complete: bool,
    reads_committed: bool,
) -> int:
    """Judge the file in a new run folder; return the exit code."""
    from ..checks.imported import judge_history, read_history_file
    from ..verdict.verifier import spark_of_run

    found = read_history_file(history)
    out.mkdir(parents=True, exist_ok=True)
    run = Path(tempfile.mkdtemp(prefix=f"{history.stem}-", dir=out)).absolute()
    verdict = judge_history(
        found,
        run,
        guarantee=guarantee,
        topics=topics,
        complete=complete,
        reads_committed=reads_committed,
        spark=spark_of_run(run.parent, spark),
        engine=spark.engine,
    )
    click.echo(str(verdict))
    click.echo(f"run folder: {run}")
    return 0 if verdict.valid else 1


def _check_folder(folder: Path, topics: tuple[str, ...], guarantee: str | None, spark: UserSpark) -> int:
    """Judge a run folder again; return the exit code."""
    run_folder.check_run(folder)
    found = [number for number, _ in run_folder.numbered_files(folder, run_folder.VERDICT)] or [1]
    if len(found) > 1 and (topics or guarantee):
        found = [_number_of(folder, topics, found)]
    codes: list[int] = []
    for number in found:
        if len(found) > 1:
            click.echo(f"verdict {number} of {len(found)}:")
        stored_topics = run_folder.topics_of_verdict(folder, number)
        if number != found[-1] and not _was_read(folder, stored_topics, found[-1]):
            codes.append(_as_stored(folder, number))
            continue
        names = list(topics) or stored_topics
        codes.append(_check_verdict(folder, number, names, guarantee, spark))
    return max(codes)


def _number_of(folder: Path, topics: tuple[str, ...], numbers: list[int]) -> int:
    """Return the newest verdict on these topics; without topics, or without such a verdict, the newest of all."""
    wanted = set(topics)
    same = [n for n in numbers if set(run_folder.topics_of_verdict(folder, n)) == wanted]
    return (same or numbers)[-1]


def _was_read(folder: Path, topics: list[str], last: int) -> bool:
    """Whether the final read that is in the folder, that of the last verdict, read these topics."""
    return set(topics) <= set(run_folder.topics_of_verdict(folder, last))


def _as_stored(folder: Path, number: int) -> int:
    """Print a verdict that cannot be judged again; return the exit code."""
    stored, broken = read_verdict(folder, number)
    if stored is None:
        raise click.ClickException(f"{broken}; its topics cannot be judged again")
    click.echo(str(stored))
    click.echo("this is the stored verdict: the final read of a later verdict, on other topics, replaced its own")
    return 0 if stored.valid else 1


def _check_verdict(folder: Path, number: int, topics: list[str], guarantee: str | None, spark: UserSpark) -> int:
    """Judge the `number`-th verdict of a run folder again; return the exit code."""
    stored, broken = read_verdict(folder, number)
    missing = run_folder.missing_data(folder)
    if run_folder.CLUSTER in missing:
        if broken:
            raise click.ClickException(f"{broken}; the data of the run is gone, so it cannot be judged again")
        return _without_data(folder, stored, guarantee)
    if broken:
        click.echo(f"{broken}; it is judged again, and the file is replaced", err=True)
    names = topics or run_folder.topics_of(folder)
    if not names:
        raise click.ClickException(f"{folder}: no topic was found; name one: --topic orders")
    if guarantee is None and stored is not None and stored.guarantee_reason is None:
        guarantee = ",".join(stored.guarantees)
    verdict = judge_again(folder, names, guarantee, spark, keep=stored is not None, number=number)
    click.echo(str(verdict))
    if stored is not None and stored.status is not verdict.status:
        click.echo(
            f"the verdict of the run itself is {stored.status.value}; "
            f"{run_folder.numbered(run_folder.VERDICT, number)} was not changed"
        )
    if missing:
        click.echo(f"the run folder has no {' and no '.join(missing)}: less could be judged than in the run")
    return 0 if verdict.valid else 1


def read_verdict(folder: Path, number: int = 1) -> tuple[Verdict | None, str]:
    """Return the `number`-th verdict of the run, or what is wrong with its file; neither where there is none."""
    path = folder / run_folder.numbered(run_folder.VERDICT, number)
    try:
        return Verdict.from_json(path.read_text(encoding="utf-8")), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, f"{path}: {error}"


def judge_again(
    folder: Path, topics: list[str], guarantee: str | None, spark: UserSpark, *, keep: bool, number: int = 1
) -> Verdict:
    """Judge the run. `keep`: what the run wrote stays in the file of its `number`-th verdict."""
    from ..checks import judge
    from ..checks.partition_jobs import read_replicas
    from ..verdict.verifier import spark_of_run

    path = folder / run_folder.numbered(run_folder.VERDICT, number)
    text = path.read_bytes() if keep else None
    try:
        return judge(
            folder,
            topics=topics,
            guarantee=guarantee,
            spark=spark_of_run(folder.absolute().parent, spark),
            engine=engine_for(spark.engine, folder, topics),
            replicas=read_replicas(folder, topics) or None,
            number=number,
        )
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
