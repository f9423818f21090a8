"""The image with Apache Kafka for the tests of the backend `docker`.

It is HARROW_IMAGE, else apache/kafka where the daemon has that, else an image of what is here: Kafka's jars, this
machine's Java, /bin/sh, and the shared libraries that these need. `tests/support/kafka_image.py` prints its name.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tarfile
from pathlib import Path

import local_image
from harrow.faults.errors import CapabilityError
from harrow.harness.backends.apache.installation import KafkaInstallation, find_kafka
from harrow.harness.backends.docker import daemon
from kafka_reference import HAS_JARS, JARS, TOOL
from local_image import add_file, add_programs, add_shared_libraries

GIVEN = os.environ.get(daemon.VARIABLE, "")
PULLED = "apache/kafka:4.2.0"
JAVA_PARTS = ("bin", "conf", "lib", "release")
"""What a Java needs of its folder to run programs."""
UNUSED = ("src.zip", "ct.sym")


def missing() -> str:
    """Return why no container of the image can be started here; empty when it can."""
    try:
        if _is_here(GIVEN or PULLED):
            return ""
        if GIVEN:
            return f"Docker does not have the image {GIVEN}: docker pull {GIVEN}, or another HARROW_IMAGE=…"
        return local_image.missing() or _lacking()
    except CapabilityError as error:
        return str(error)


def _lacking() -> str:
    """Return why no image can be made of what is here."""
    otherwise = f"or docker pull {PULLED}, or HARROW_IMAGE=…"
    if not HAS_JARS:
        return f"no image with Apache Kafka, and no jars for one: fetch them once with `{TOOL} jars`, {otherwise}"
    try:
        find_kafka(str(JARS))
    except CapabilityError as error:
        return f"no image with Apache Kafka, and none can be made: {error}; {otherwise}"
    return ""


def _is_here(image: str) -> bool:
    with contextlib.closing(daemon.connect()) as client:
        return daemon.has_image(client, image)


MISSING = missing()


@functools.cache
def kafka_image() -> str:
    """Return the name of the image, made when the daemon has none."""
    if GIVEN or _is_here(PULLED):
        return GIVEN or PULLED
    kafka = find_kafka(str(JARS))
    java = _java_home(kafka)
    files = [f"{path.name} {path.stat().st_size}" for path in sorted(JARS.glob("*.jar"))]
    changed = (java / "lib" / "modules").stat().st_mtime_ns
    recipe = "\n".join([f"{java} {changed}", *files])
    return local_image.local_image("harrow-apache-kafka", add_kafka, recipe=recipe, programs=java / "bin")


def add_kafka(tar: tarfile.TarFile) -> None:
    """Add Kafka's jars, Java, a shell, and the shared libraries of these."""
    kafka = find_kafka(str(JARS))
    java = _java_home(kafka)
    for jar in sorted(kafka.jars.glob("*.jar")):
        add_file(tar, jar, Path(daemon.JARS) / jar.name)
    binaries = [java / "bin" / "java", *add_programs(tar, ["sh"])]
    for part in JAVA_PARTS:
        for path in sorted([java / part, *(java / part).rglob("*")]):
            if path.is_file() and path.name not in UNUSED:
                add_file(tar, path)
                if path.suffix == ".so":
                    binaries.append(path)
    add_shared_libraries(tar, binaries, below=java)


def _java_home(kafka: KafkaInstallation) -> Path:
    return Path(kafka.java).resolve().parents[1]


if __name__ == "__main__":
    print(kafka_image())
