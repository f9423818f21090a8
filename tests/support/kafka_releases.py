"""Makes `cluster/wire/release_table.py`: what a broker of each release lists to a client, asked of the real releases.

    PYTHONPATH=tests/support .venv/bin/python -m kafka_releases > cluster/wire/release_table.py

Each release runs as one KRaft node with the default settings (`kafka_reference.TOOL`), and has the metadata.version
that its formatting tool chooses. ApiVersions is asked in the newest version of the release, which has all features.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harrow.cluster.wire.api_keys import ApiKey
from kafka_reference import TOOL
from raw_kafka import RawKafka

RELEASES = {"3.9": "3.9.1", "4.0": "4.0.2", "4.2": "4.2.0", "4.4": "4.4.0"}
PORT = 23_290
HEAD = '''"""What a broker of each Apache Kafka release lists in ApiVersions. Made by `tests/support/kafka_releases.py`.

Of each release: API key -> (first version, last version); feature -> (lowest level, highest level, finalized level).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

__all__ = ["RELEASES", "Release"]


class Release(NamedTuple):
    """One release, as a KRaft broker of it with default settings answered."""

    version: str
    apis: Mapping[int, tuple[int, int]]
    features: Mapping[str, tuple[int, int, int]]
'''


@contextmanager
def running(version: str) -> Generator[RawKafka]:
    """One node of a release."""
    environment = {**os.environ, "KAFKA_VERSION": version, "KAFKA_PORT": str(PORT), "KAFKA_HEAP": "256m"}
    environment.pop("KAFKA_JARS", None)
    with tempfile.TemporaryDirectory() as folder:
        where = str(Path(folder) / "kafka")
        try:
            subprocess.run([TOOL, "up", where, "1"], env=environment, check=True, stdout=sys.stderr)
            with RawKafka(PORT + 1) as link:
                yield link
        finally:
            subprocess.run([TOOL, "down", where], check=False)


def newest_answer(link: RawKafka) -> Any:
    """The response to ApiVersions of the newest version that the broker and Harrow know."""
    newest = next(row for row in link.ask(ApiKey.API_VERSIONS, 0).api_keys if row.api_key == ApiKey.API_VERSIONS)
    version = min(newest.max_version, 4)
    return link.ask(ApiKey.API_VERSIONS, version, client_software_name="harrow", client_software_version="1")


def lines(name: str, version: str, answer: Any) -> Iterator[str]:
    """The table of one release, as lines of the module."""
    finalized = {row.name: row.max_version_level for row in answer.finalized_features}
    yield f'    "{name}": Release('
    yield f'        version="{version}",'
    yield "        apis={"
    for row in sorted(answer.api_keys, key=lambda row: row.api_key):
        yield f"            {row.api_key}: ({row.min_version}, {row.max_version}),"
    yield "        },"
    yield "        features={"
    for row in sorted(answer.supported_features, key=lambda row: row.name):
        yield f'            "{row.name}": ({row.min_version}, {row.max_version}, {finalized.get(row.name, 0)}),'
    yield "        },"
    yield "    ),"


def main() -> None:
    """Print the module."""
    found: list[str] = []
    for name, version in RELEASES.items():
        with running(version) as link:
            found += lines(name, version, newest_answer(link))
    print(HEAD)
    print("\nRELEASES: Mapping[str, Release] = {")
    print("\n".join(found))
    print("}")


if __name__ == "__main__":
    main()
