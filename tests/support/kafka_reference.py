"""Apache Kafka as the reference: runs Kafka's own DumpLogSegments on our files.

Owns: the release that judges (`KAFKA_VERSION`, 4.4.0 without it), the place of the tool (`HARROW_APACHE_KAFKA`, or
`../shared/tools/apache-kafka` beside the project), the check whether it can run here without the network, and the call.
A test that needs it has the mark `needs_kafka`; one that needs only the message files in the jar of Kafka's clients has
`needs_jar`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

TOOL = os.environ.get("HARROW_APACHE_KAFKA", str(Path(__file__).parents[3] / "shared" / "tools" / "apache-kafka"))
VERSION = os.environ.setdefault("KAFKA_VERSION", "4.4.0")
"""The release that judges; the tool and everything that a test starts reads the variable, too."""
RELEASE = ".".join(VERSION.split(".")[:2])
SINCE_4_4 = tuple(map(int, RELEASE.split("."))) >= (4, 4)
TOOLS_PACKAGE = "org.apache.kafka.tools" if SINCE_4_4 else "kafka.tools"
"""Of DumpLogSegments."""
ADMIN_PACKAGE = "org.apache.kafka.tools" if SINCE_4_4 else "kafka.admin"
"""Of ConfigCommand."""
ASSIGNED_AT_ONCE: dict[str, object] = {
    f"group.{kind}.{name}": value
    for kind in ("consumer", "streams", "share")
    for name, value in (("assignment.interval.ms", 0), ("assignor.offload.enable", False))
    if SINCE_4_4
}
"""KIP-1263: else a target assignment is a second old before it is computed again, and answers depend on time."""
JARS = Path(os.environ.get("KAFKA_JARS", Path.home() / ".cache" / "harrow" / f"kafka-{VERSION}"))
HAS_JARS = (JARS / ".complete").exists()


def _missing() -> str | None:
    if os.environ.get("HARROW_APACHE") == "0":
        return "HARROW_APACHE=0: Apache Kafka is the judge of this test"
    if shutil.which("java") is None:
        return "Apache Kafka is the judge of this test, and there is no java"
    if not Path(TOOL).exists():
        return f"Apache Kafka is the judge of this test, and there is no {TOOL}"
    if not HAS_JARS:
        return f"Apache Kafka is the judge of this test; fetch it once with `{TOOL} jars`"
    return None


needs_kafka = pytest.mark.skipif(_missing() is not None, reason=_missing() or "")
needs_jar = pytest.mark.skipif(not HAS_JARS, reason="no jar of Kafka's clients: `apache-kafka jars` fetches it")


FAST_START = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""Halves the processor time of a JVM that runs for a second only."""

_NOISE = (b"SLF4J: ", b"NOTE: ")


def dump(files: Sequence[str], *options: str, folder: Path) -> tuple[bytes, bytes]:
    """Runs Kafka's DumpLogSegments on `files` (relative to `folder`); returns its output and its error output."""
    command = [TOOL, "run", "-", f"{TOOLS_PACKAGE}.DumpLogSegments", *options]
    command += ["--files", ",".join(files)]
    environment = {**os.environ, **FAST_START, "KAFKA_HEAP": "128m", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=60, check=False)
    lines = done.stderr.splitlines(keepends=True)
    return done.stdout, b"".join(line for line in lines if not line.startswith(_NOISE))
