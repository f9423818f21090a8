"""`harrow chaos -- ./my-service ARGS`: a program of the user's beside a cluster under faults, and the verdict.

The run itself is `workloads/program.py`. What Harrow prints goes to stderr, because stdout belongs to the program.

Exit code 0: the verdict is valid, and the program succeeded or Harrow ended it. 1: the verdict is not valid, or a fault
did not take effect. Otherwise the exit code of the program.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import click
from harrow.faults.schedule import Schedule

from .. import out_folder
from ..backends.choice import ORIGIN_OPTIONS, origin_words
from ..backends.kinds import new_source
from ..checks.guarantees import parse
from ..programs.user_program import find_program
from ..run.harrow import Harrow, run_of
from ..seeds import fresh_seed
from ..workloads.program import ProgramResult, run_program
from ..workloads.scenario import kinds_of
from .live_counts import RunCounter
from .progress import ProgressLine
from .settings import parse_settings


def chaos_of_program(
    program: tuple[str, ...], recorded: Schedule | None, explicit: set[str], given: Mapping[str, Any]
) -> int:
    """Run the user's program under faults; return the exit code."""
    found = find_program(program)
    if given["guarantee"] is not None:
        parse(given["guarantee"])
    topics = [_topic(text) for text in given["topics"]]
    seed = given["seed"] if "seed" in explicit else fresh_seed()
    chaos: dict[str, Any] = {"schedule": recorded} if recorded else {}
    run = (given["out"] / out_folder.run_name()).absolute()
    out_folder.prepare(given["out"])
    repeat = repeat_program(program, seed, explicit, given)
    with Harrow(
        run / "program",
        seed=seed,
        brokers=given["brokers"],
        config=parse_settings(given["settings"]),
        plants=given["plants"],
        spark=given["spark"],
        repeat=repeat,
        clusters=new_source(given["backend"]),
    ) as harrow:
        if recorded is None:
            chaos["kinds"] = run_of(harrow).possible_kinds(kinds_of(given["faults"]))
        for name, partitions in topics:
            harrow.topic(name, partitions=partitions)
        counter = RunCounter(harrow.folder)
        progress = ProgressLine(lambda: str(counter.counts()))
        click.echo(f"seed {seed}, bootstrap.servers={harrow.bootstrap_servers}", err=True)

        def notify(text: str) -> None:
            with progress.hidden():
                click.echo(text, err=True)

        with progress:
            result = run_program(
                harrow,
                found,
                seconds=given["seconds"] if "seconds" in explicit else None,
                chaos=chaos,
                guarantee=given["guarantee"],
                notify=notify,
            )
        click.echo(program_text(result, harrow, str(counter.counts())), err=True)
    if not result.command_exit_code and not given["keep"]:
        run_of(harrow).remove_data()
    return result.command_exit_code


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if colon and not partitions.isdigit():
        raise click.BadParameter(f"{text!r}: expected NAME or NAME:PARTITIONS", param_hint="--topic")
    return name, int(partitions or 1)


def program_text(result: ProgramResult, harrow: Harrow, counts: str) -> str:
    """Return what happened, the verdict and the remedy, for the terminal."""
    ended = "was ended" if result.stopped else f"ended with exit code {result.exit_code}"
    lines = [f"the program {ended}; {counts}"]
    lines += [f"problem: {problem}" for problem in result.problems]
    if result.verdict is not None:
        lines += [f"topics: {', '.join(result.topics)}", str(result.verdict)]
        lines.append(f"report: {harrow.folder / 'report.html'}")
    if result.command_exit_code:
        lines.append(f"repeat with: {harrow.repeat}")
    return "\n".join(lines)


def repeat_program(program: tuple[str, ...], seed: int, explicit: set[str], given: Mapping[str, Any]) -> str:
    """Return the command that runs the program again with the same schedule."""
    words = ["harrow", "chaos", "--seed", str(seed)]
    flags = {"file": "schedule", "plants": "plant", "topics": "topic", "settings": "set"}
    spark, backend = given["spark"], given["backend"]
    parts: dict[str, object] = {
        "engine": spark.engine,
        "spark": spark.address,
        "spark_data": spark.data,
        "backend": backend.name,
        **dict(origin_words(backend)),
    }
    of_other_backends = set(ORIGIN_OPTIONS) - set(parts)
    for name in sorted(explicit - {"seed", "out"} - of_other_backends):
        several: Any = parts.get(name, given.get(name))
        for value in several if isinstance(several, tuple) else (several,):  # pyright: ignore[reportUnknownVariableType] - options of click
            words += [
                f"--{flags.get(name, name.replace('_', '-'))}",
                f"{value:g}" if isinstance(value, float) else str(value),  # pyright: ignore[reportUnknownArgumentType] - as above
            ]
    return shlex.join([*words, "--", *program])
