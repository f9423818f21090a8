"""Where Apache Kafka and Java are on this machine.

A folder of Kafka is an unpacked release (its jars are in `libs/`) or a folder that holds the jars. It is named by the
option `--harrow-kafka`, else by the environment: HARROW_KAFKA, KAFKA_HOME. Java is JAVA_HOME's, or the first `java` of
the path; Kafka 4 needs Java 17.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harrow.faults.errors import CapabilityError

VARIABLES = ("HARROW_KAFKA", "KAFKA_HOME")
SERVER_JAR = re.compile(r"kafka_2\.\d+-(?P<version>[\w.-]+?)\.jar")
OLDEST = (3, 7)
"""KRaft without `--ignore-formatted` surprises, and DescribeQuorum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaInstallation:
    """A Kafka that can be started here."""

    jars: Path
    version: str
    java: str

    def command(self, main_class: str, *arguments: str, heap: str = "256m", options: Sequence[str] = ()) -> list[str]:
        """Return the command that runs a class of Kafka's; `options` are the JVM's."""
        return [
            self.java,
            f"-Xmx{heap}",
            f"-Xms{heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            *options,
            "-cp",
            f"{self.jars}/*",
            main_class,
            *arguments,
        ]


def find_kafka(folder: str = "", environment: Mapping[str, str] | None = None) -> KafkaInstallation:
    """Return the installation in `folder`, or that of the environment; CapabilityError says what is missing."""
    env = os.environ if environment is None else environment
    named = [("--harrow-kafka", folder), *((name, env.get(name, "")) for name in VARIABLES)]
    source, path = next(((name, value) for name, value in named if value), ("", ""))
    if not path:
        raise CapabilityError(
            "no Apache Kafka is named: unpack a release and give its folder, as --harrow-kafka=/opt/kafka or KAFKA_HOME"
        )
    for jars in (Path(path) / "libs", Path(path)):
        for jar in sorted(jars.glob("kafka_2.*.jar")):
            if match := SERVER_JAR.fullmatch(jar.name):
                return _checked(jars.absolute(), match["version"], source, env)
    raise CapabilityError(
        f"{source}={path}: no Apache Kafka there: expected libs/kafka_2.13-<version>.jar; give the folder of a release"
    )


def _checked(jars: Path, version: str, source: str, env: Mapping[str, str]) -> KafkaInstallation:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        raise CapabilityError(
            f"{source}: Apache Kafka {version} is too old for this backend; it needs {OLDEST[0]}.{OLDEST[1]} or later"
        )
    home = env.get("JAVA_HOME", "")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=env.get("PATH"))
    if not java or not os.access(java, os.X_OK):
        raise CapabilityError(
            f"Apache Kafka {version} needs Java, and there is none"
            + (f" in JAVA_HOME={home}" if home else " on the path")
            + "; install a JDK or JRE 17 or later"
        )
    return KafkaInstallation(jars=jars, version=version, java=java)
