"""ApiVersions of a client listener is Apache Kafka 4.4's, except what docs/compatibility.md lists (A2, A7)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.release_table import RELEASES
from kafka_versions import KAFKA_VERSIONS

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
ROW = re.compile(r"^\| (\d+) \| \w+ \| (\d+) to (\d+) \| (?:(\d+) to (\d+)|-) \| \S[^|]+ \|$", re.MULTILINE)
Ranges = dict[int, tuple[int, int]]
OF_PAGE = RELEASES["4.4"].apis
"""The release of the page."""


def listed(kafka: Any) -> Ranges:
    answer = kafka.raw().ask(ApiKey.API_VERSIONS, 4, client_software_name="t", client_software_version="1")
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


def differences_on_the_page() -> tuple[Ranges, Ranges]:
    """The ranges of Kafka and ours, of each request in the page's table."""
    rows = ROW.findall(PAGE.read_text())
    theirs = {int(key): (int(low), int(high)) for key, low, high, _, _ in rows}
    ours = {int(key): (int(low), int(high)) for key, _, _, low, high in rows if low}
    assert len(theirs) == len(rows) > 0, "the table has a key twice, or no row"
    return theirs, ours


def test_listed_versions_are_those_of_kafka_except_what_the_page_names(kafka: Any) -> None:
    theirs, ours = differences_on_the_page()
    assert theirs == {key: OF_PAGE[key] for key in theirs}, "the page's column of Kafka"
    assert all(ours.get(key) != OF_PAGE[key] for key in theirs), "no difference any more"
    if kafka.name == "apache":
        assert listed(kafka) == KAFKA_VERSIONS
        return
    expected = {key: ranges for key, ranges in OF_PAGE.items() if key not in theirs} | ours
    assert listed(kafka) == expected
