"""Keeps and compares the results of a client's tests on Apache Kafka and on Harrow (tests/client_suites.py).

Results are JSON objects, from the name of a test to `passed`, `failed` or `skipped`. The results of parts of a suite
join on disk, so that one table shows all of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from suites_of_clients import FAILED, PASSED, SKIPPED, Suite

KAFKA, HARROW = SYSTEMS = ("kafka", "harrow")


def store(path: Path, found: Mapping[str, str], *, part: str) -> None:
    """Write the results of a run; those of a part join the results of earlier parts."""
    earlier: dict[str, str] = json.loads(path.read_text()) if part and path.exists() else {}
    path.write_text(json.dumps({**earlier, **found}, indent=1))


def counted(found: Mapping[str, str]) -> str:
    """Return the numbers of results as words."""
    results = list(found.values())
    return ", ".join(f"{results.count(result)} {result}" for result in (PASSED, FAILED, SKIPPED))


def report(suite: Suite, results: Mapping[str, Mapping[str, str]]) -> bool:
    """Print the row of docs/clients.md and each test whose results differ; return whether none does.

    The row counts the tests that ended on both systems; where one has no results, those of the other.
    """
    kafka, ours = results.get(KAFKA, {}), results.get(HARROW, {})
    shared = kafka.keys() & ours.keys()
    compared = {name: {test: found[test] for test in shared or found} for name, found in results.items()}
    said = [counted(compared[name]) if name in results else "not run" for name in SYSTEMS]
    differ = sorted(name for name in shared if kafka[name] != ours[name])
    both = sum(kafka[name] == ours[name] == FAILED for name in shared)
    print(f"| {suite.name} | {suite.version} | {' | '.join(said)} | {both} fail on both |")
    if differ:
        print("\n| test | Kafka | Harrow |\n| --- | --- | --- |")
    for name in differ:
        print(f"| `{name}` | {kafka[name]} | {ours[name]} |")
    alone = sorted(kafka.keys() ^ ours.keys()) if len(results) == len(SYSTEMS) else []
    if alone:
        print(
            f"\n{len(alone)} tests ran on one system only, such as {alone[0]}: give the tests more `--minutes`,"
            " and both systems the same `--part`."
        )
    return not differ and not alone
