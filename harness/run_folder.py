"""The folder of one run: the names of its files, their formats and versions, for writers and readers.

cluster/            the processes' folders (`harrow.cluster.broker_folder`); a link where tests share a cluster
history/*.ops       what recording clients did, one row an operation      (`histories/format.py`, schema 1)
history/*.sent      the first bytes of what recorded producers sent       (`histories/sent_contents.py`)
drain/*.ops         what the final read found, the same rows
drain/contents*     the records of the final read, with contents      (`histories/contents.py`, schema 1)
promises/           what the application promised, for the joins      (`promises/expectations.py`), derived
history.index/      which rows of these and of the taps belong to which partition (`histories/layout.py`), derived
schedule.json       what was planned and resolved, replayable             (`faults/schedule.py`, schema 1)
schedule-<n>.json   the same of the n-th chaos block, from the second one on
faults.jsonl        what the nemesis did, one row an event                (`faults/fault_rows.py`, schema 1)
verdict.json        the first verdict                                     (`checks/verdict.py`)
verdict-<n>.json    the n-th verdict, from the second one on; promises-<n>.json and report-<n>.html belong to it
security/           certificates and keys of the cluster and its users (`security/cluster_security.py`)
programs/*/         the output of each of the user's programs     (`user_program.py`)
programs.json       how they ended until the verdict                  (`histories/program_ends.py`, schema 1)
jobs/*.log          what each process of `exactly_once/` logged
promises.json       what the checks of promises found                 (`checks/promise_findings.py`, schema 1)
groups.json         the states of consumer groups when it ended       (`histories/group_states.py`, schema 1)
report.html         the picture of the run                                (`reports/picture.py`)
run.json            what the run was: seed, brokers, settings, data folders, topics, bounds, its start (here, schema 1)

Times of a run are shown relative to its start (`RunTimes`): the cluster's first use, `started_ns` of run.json.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harrow.cluster import broker_folder
from harrow.cluster.argument_types import kind_of, wrong_value
from harrow.cluster.errors import ConfigError

CLUSTER = "cluster"
HISTORY = "history"
DRAIN = "drain"
PROMISES = "promises"
JOBS = "jobs"
PROGRAMS = "programs"
DEPENDENCIES = "dependencies"
SECURITY = "security"
PROGRAM_ENDS = "programs.json"
PROMISE_FINDINGS = "promises.json"
LAID_OUT = "history.index"
SCHEDULE = "schedule.json"
FAULTS = "faults.jsonl"
VERDICT = "verdict.json"
REPORT = "report.html"
RUN = "run.json"
GROUPS = "groups.json"
RUN_SCHEMA_VERSION = 1

_RUN_REMEDY = "run the test again, or take the file from a copy of the folder"
_Number = int | float
RUN_FIELDS: Mapping[str, Any] = {
    "schema_version": int,
    "started_ns": int,
    "seed": int,
    "brokers": int,
    "config": Mapping[str, object],
    "security": str,
    "log_dirs": Mapping[str, Sequence[str]],
    "unrecorded": Sequence[str],
    "topics": Sequence[str],
    "histories": int,
    "chaos_blocks": int,
    "promised": bool,
    "verdicts": Sequence[Mapping[str, object]],
    "replicas": Mapping[str, Mapping[str, Sequence[int]]],
    "progress": Mapping[str, _Number | Mapping[str, _Number] | None],
    "imported": Mapping[str, object],
}
"""The types of what `run.json` has."""

DATA_FOLDERS = (CLUSTER, HISTORY, LAID_OUT, DRAIN, PROMISES, SECURITY)
"""What is large, or of use while the cluster runs, and may be removed when the verdict is known."""
RESULT_FILES = (SCHEDULE, FAULTS, VERDICT, REPORT, RUN, PROMISE_FINDINGS, GROUPS, PROGRAM_ENDS)


def remove_data(run: Path) -> None:
    """Remove the large files of a run, if it has any."""
    for name in DATA_FOLDERS:
        path = run / name
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)


def remove_results(run: Path) -> None:
    """Remove what an earlier run in the same folder found."""
    for name in RESULT_FILES:
        for path in [run / name, *(file for _, file in numbered_files(run, name))]:
            path.unlink(missing_ok=True)


def numbered(name: str, number: int) -> str:
    """Return the name of the `number`-th file of a kind, from 1 up: `verdict.json`, `verdict-2.json`."""
    return name if number == 1 else name.replace(".", f"-{number}.")


def numbered_files(run: Path, name: str) -> list[tuple[int, Path]]:
    """Return the files of a kind that exist, in their order, each with its number."""
    found = [(1, run / name)] if (run / name).is_file() else []
    stem, _, suffix = name.partition(".")
    for path in run.glob(f"{stem}-*.{suffix}"):
        digits = path.name.removeprefix(f"{stem}-").removesuffix(f".{suffix}")
        if digits.isdecimal() and int(digits) > 1:
            found.append((int(digits), path))
    return sorted(found)


def schedule_name(block: int) -> str:
    """Return the name of the schedule of the `block`-th chaos block, from 1 up."""
    return numbered(SCHEDULE, block)


def verdict_files(run: Path) -> list[Path]:
    """Return the files of all verdicts on the run, the first one first."""
    return [path for _, path in numbered_files(run, VERDICT)]


def page_of(verdict: Path) -> Path:
    """Return the page that shows the verdict of a file `verdict.json` or `verdict-<n>.json`."""
    return verdict.with_name(verdict.name.replace(Path(VERDICT).stem, Path(REPORT).stem).replace(".json", ".html"))


def schedule_files(run: Path) -> list[Path]:
    """Return the schedules of all chaos blocks."""
    return sorted(run.glob(SCHEDULE.replace(".", "*.")))


def operation_files(folder: Path) -> list[Path]:
    """Return the history files of `history/` or `drain/`."""
    return sorted(folder.glob("*.ops"))


def trace_files(run: Path) -> list[Path]:
    """Return every broker's trace."""
    return broker_folder.broker_files(run / CLUSTER, broker_folder.TRACE)


def registry_trace(run: Path) -> Path:
    """Return the path of the registry's trace; clusters without Harrow's registry have none."""
    return run / CLUSTER / broker_folder.REGISTRY / broker_folder.TRACE


def tap_files(cluster: Path) -> list[Path]:
    """Return every broker's tap in the folder of a cluster."""
    return broker_folder.broker_files(cluster, broker_folder.TAP)


def write_run(
    run: Path,
    *,
    seed: int,
    brokers: int,
    config: Mapping[str, object],
    log_dirs: Mapping[int, Sequence[str]],
    started_ns: int,
    unrecorded: Sequence[str] = (),
    security: str = "",
) -> None:
    """Write `run.json`. `started_ns`: the cluster's first use, in nanoseconds of the monotonic clock.

    `unrecorded`: what the backend does not record, by the names of `histories.recordings.Recording`.
    `security`: of the clients' listener; empty without.
    """
    body: dict[str, object] = {
        "schema_version": RUN_SCHEMA_VERSION,
        "started_ns": started_ns,
        "seed": seed,
        "brokers": brokers,
        "config": dict(config),
        "log_dirs": {str(node): list(names) for node, names in log_dirs.items()},
        "unrecorded": list(unrecorded),
        **({"security": security} if security else {}),
    }
    (run / RUN).write_text(json.dumps(body, indent=1, default=str) + "\n", encoding="utf-8")


def add_topics(run: Path, topics: Sequence[str]) -> None:
    """Add the topics of a verdict to `run.json`: `harrow check` judges them again."""
    known: list[str] = read_run(run).get("topics", [])
    note(run, topics=[*known, *(name for name in topics if name not in known)])


def note(run: Path, **facts: object) -> None:
    """Write further facts into `run.json`, so that a missing file is noticed; nothing where there is no `run.json`.

    `histories`: how many recording clients there were; `chaos_blocks`: how many blocks of faults; `promised`: whether
    the application promised something; `replicas`: brokers and ISR of each judged partition when the run ended.
    """
    body = read_run(run)
    if not body or body == (new := {**body, **facts}):
        return
    partial = run / f"{RUN}.partial"
    partial.write_text(json.dumps(new, indent=1, default=str) + "\n", encoding="utf-8")
    partial.replace(run / RUN)


def note_progress(run: Path, facts: Mapping[str, object]) -> None:
    """Replace what `run.json` says about standing still, for `harrow check` too (`checks/progress/reading.py`).

    `ended_ns`: when the verdict was asked for, on the monotonic clock. `min_insync_replicas`: by topic. Bounds in
    seconds: `recovers_within_s` of the verdict, `recovers_within_s_of_faults` by the number of a fault.
    """
    if facts or read_run(run).get("progress"):
        note(run, progress=dict(facts))


def note_verdict(run: Path, number: int, topics: Sequence[str], *, promised: bool) -> None:
    """Write into `run.json` what the `number`-th verdict judges: its topics, and whether it has promises."""
    before: list[Mapping[str, object]] = read_run(run).get("verdicts", [])[: number - 1]
    before += [{} for _ in range(number - 1 - len(before))]
    rows = [*before, {"topics": list(topics), "promised": promised}]
    note(run, verdicts=rows, promised=any(row.get("promised") for row in rows))


def topics_of_verdict(run: Path, number: int) -> list[str]:
    """Return the topics that the `number`-th verdict judged; empty where `run.json` does not say it."""
    rows: list[dict[str, Any]] = read_run(run).get("verdicts", [])
    return list(rows[number - 1].get("topics", ())) if len(rows) >= number else []


def topics_of(run: Path) -> list[str]:
    """Return the topics that a verdict of the run judged; without one, those of which a broker has a log."""
    named: list[str] = read_run(run).get("topics", [])
    if named:
        return named
    found = {
        log.name.rpartition("-")[0]
        for folders in replica_folders(run).values()
        for folder in folders
        if folder.is_dir()
        for log in folder.iterdir()
        if log.is_dir() and log.name.rpartition("-")[2].isdigit()
    }
    return sorted(name for name in found if not name.startswith("__"))


def missing_data(run: Path) -> list[str]:
    """Return which data folders of a run do not exist; also a link to a shared cluster that was removed.

    The folder of a history from elsewhere never had a cluster.
    """
    needed = (HISTORY, DRAIN) if read_run(run).get("imported") else (CLUSTER, DRAIN)
    return [name for name in needed if not (run / name).exists()]


def read_run(run: Path) -> dict[str, Any]:
    """Read `run.json`; empty where there is none, or it is another schema's."""
    try:
        body: dict[str, Any] = json.loads((run / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return body if body.get("schema_version") == RUN_SCHEMA_VERSION else {}


def check_run(run: Path) -> None:
    """Raise ConfigError for a `run.json` that is damaged: no JSON object, or a value of a wrong type."""
    path = run / RUN
    try:
        body: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}; {_RUN_REMEDY}") from None
    problem = kind_of(Mapping[str, Any]).find(body)
    rows: dict[str, Any] = {"it": body} if problem is not None else body
    for name, value in rows.items():
        problem = problem or kind_of(RUN_FIELDS.get(name, object)).find(value)
        if problem is not None:
            raise ConfigError(f"{path}: {wrong_value(name + problem.place, problem)}; {_RUN_REMEDY}")


def shown(path: Path) -> str:
    """Return the path as a user reads it: relative to the current folder if it is below it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Shows times relative to the start of the run; `started_ns`: `histories/origin.py`."""

    started_ns: int = 0

    def text(self, at_ns: int) -> str:
        """Return "1.20 s" for a time of the monotonic clock."""
        return f"{(at_ns - self.started_ns) / 1e9:.2f} s"


def replica_folders(run: Path) -> dict[int, list[Path]]:
    """Return each broker's data folders, by node id, as its `log.dirs` names them."""
    names: dict[str, list[str]] = read_run(run).get("log_dirs", {})
    found: dict[int, list[Path]] = {}
    for folder in broker_folder.broker_folders(run / CLUSTER):
        node = broker_folder.node_id_of(folder)
        found[node] = broker_folder.data_folders(folder, names.get(str(node), []))
    return found
