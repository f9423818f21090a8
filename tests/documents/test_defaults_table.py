"""`docs/compatibility.md` lists every default that differs from Apache Kafka's, with the values that the code has."""

from __future__ import annotations

from pathlib import Path

from harrow.cluster.config import BY_NAME
from harrow.cluster.defaults import cluster_defaults
from harrow.harness.backends.clusters import TEST_DEFAULTS

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
SECTION = "## Defaults that differ"
SIZES = (1, 2, 3)


def documented() -> dict[str, tuple[str, str, str]]:
    """The table's rows: name -> Kafka's default, that of a cluster, that of a test."""
    section = PAGE.read_text(encoding="utf-8").partition(SECTION)[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    assert all(len(row) == 7 and row[5].strip().endswith(".") for row in rows), rows
    return {row[1].strip(" `"): (row[2].strip(), row[3].strip(), row[4].strip()) for row in rows}


def written(values: list[object]) -> str:
    """One value, or those of one, two, and three or more brokers."""
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def in_code() -> dict[str, tuple[str, str, str]]:
    up = {size: cluster_defaults(size) for size in SIZES}
    test = {size: {**up[size], **TEST_DEFAULTS} for size in SIZES}
    found: dict[str, tuple[str, str, str]] = {}
    for name in test[3]:
        kafka = BY_NAME[name].default
        own = [up[size].get(name, kafka) for size in SIZES]
        row = written([kafka]), written(own), written([test[size][name] for size in SIZES])
        if len(set(row)) > 1:
            found[name] = row
    return found


def test_the_table_has_each_default_that_differs_and_no_other() -> None:
    assert documented() == in_code()


def test_more_than_three_brokers_have_the_defaults_of_three() -> None:
    assert cluster_defaults(9) == cluster_defaults(3)
