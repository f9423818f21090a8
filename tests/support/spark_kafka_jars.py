"""Spark's connector for Kafka: the jars that pyspark's wheel does not have.

`connector_jars()` returns them, or raises NoJarsError with the remedy. They lie in the folder that
`HARROW_SPARK_KAFKA_JARS` names, or in the cache. `python tests/support/spark_kafka_jars.py` downloads them from Maven
Central into the cache, each checked against its SHA-1, and fails with status 1 where Maven Central cannot be reached.

The connector has pyspark's version; a Spark that is newer than any connector in reach takes the next older one.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

MAVEN = os.environ.get("HARROW_MAVEN", "https://repo1.maven.org/maven2")
CACHE = Path.home() / ".cache" / "harrow"
VERSIONS = (version("pyspark"), "4.2.0")
SPARK, SCALA = "org/apache/spark", "_2.13"
CONNECTOR, TOKENS = f"spark-sql-kafka-0-10{SCALA}", f"spark-token-provider-kafka-0-10{SCALA}"
BESIDE = {"kafka-clients": "org/apache/kafka", "commons-pool2": "org/apache/commons"}
TIMEOUT_S = 60


class NoJarsError(Exception):
    """The connector is not here, or cannot be fetched."""


def connector_jars() -> list[Path]:
    """The jars, or NoJarsError."""
    named = os.environ.get("HARROW_SPARK_KAFKA_JARS")
    folders = [Path(named)] if named else [_folder(number) for number in VERSIONS]
    for folder in folders:
        jars = sorted(folder.glob("*.jar"))
        if any(jar.name.startswith(CONNECTOR) for jar in jars):
            return jars
    places = ", ".join(map(str, folders))
    raise NoJarsError(f"Spark's connector for Kafka is not in {places}: python tests/support/spark_kafka_jars.py")


def fetch() -> list[Path]:
    """Downloads the jars unless they are here; NoJarsError names what could not be had."""
    try:
        return connector_jars()
    except NoJarsError:
        failures: list[str] = []
    for number in VERSIONS:
        try:
            return _fetch_version(number)
        except (URLError, NoJarsError) as error:
            failures.append(f"{number}: {error}")
    raise NoJarsError(f"{MAVEN} gives no {CONNECTOR}: {'; '.join(failures)}")


def _folder(number: str) -> Path:
    return CACHE / f"spark-kafka-{number}"


def _fetch_version(number: str) -> list[Path]:
    place = f"{SPARK}/{CONNECTOR}/{number}/{CONNECTOR}-{number}"
    pom = _read(f"{place}.pom").decode()
    jars = {f"{CONNECTOR}-{number}.jar": f"{place}.jar"}
    jars[f"{TOKENS}-{number}.jar"] = f"{SPARK}/{TOKENS}/{number}/{TOKENS}-{number}.jar"
    for name, group in BESIDE.items():
        found = re.search(rf"<artifactId>{name}</artifactId>\s*<version>([^<]+)</version>", pom)
        if found is None:
            raise NoJarsError(f"{place}.pom names no version of {name}")
        jars[f"{name}-{found[1]}.jar"] = f"{group}/{name}/{found[1]}/{name}-{found[1]}.jar"
    contents = {name: _read(path) for name, path in jars.items()}
    folder = _folder(number)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in reversed(contents.items()):  # the connector last: it says that all are here
        part = folder / f"{name}.part-{os.getpid()}"
        part.write_bytes(content)
        part.replace(folder / name)
    return connector_jars()


def _read(path: str) -> bytes:
    with urlopen(f"{MAVEN}/{path}", timeout=TIMEOUT_S) as response:
        content: bytes = response.read()
    with urlopen(f"{MAVEN}/{path}.sha1", timeout=TIMEOUT_S) as response:
        wanted = response.read().decode().split()[0]
    if hashlib.sha1(content, usedforsecurity=False).hexdigest() != wanted:
        raise NoJarsError(f"{MAVEN}/{path} does not have the SHA-1 {wanted}")
    return content


if __name__ == "__main__":
    try:
        print(*fetch(), sep="\n")
    except NoJarsError as none:
        sys.exit(str(none))
