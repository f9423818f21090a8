"""Kafka's command line tools, unmodified, in one JVM for a worker: `tools.run("TopicCommand", "--list", …)`.

Owns: the JVM (`KafkaTools.java`), which runs a single tool at a time and ends with this process. `Tools` adds the
bootstrap address of one cluster; `Result.text` is the output without what differs between any two clusters: ports,
topic ids, data folders. May fail: OSError when the JVM has ended; the error names the file with its output.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from kafka_reference import ADMIN_PACKAGE, FAST_START, JARS

SOURCE = Path(__file__).with_name("KafkaTools.java")
PACKAGES = {
    "ConfigCommand": ADMIN_PACKAGE,
    "ConsoleConsumer": "org.apache.kafka.tools.consumer",
    "ConsoleShareConsumer": "org.apache.kafka.tools.consumer",
    "ConsumerGroupCommand": "org.apache.kafka.tools.consumer.group",
    "ReassignPartitionsCommand": "org.apache.kafka.tools.reassign",
    "ShareGroupCommand": "org.apache.kafka.tools.consumer.group",
}
_TOPIC_ID = re.compile(r"TopicId: [\w-]{22}")
OPENS = "--add-opens=java.base/java.lang=ALL-UNNAMED"
_NOISE = re.compile(r"^SLF4J: .*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one call of a tool gave: its exit status, its output, its error output."""

    status: int
    out: str
    err: str
    brokers: Mapping[int, int]
    """Node id to port."""

    @property
    def text(self) -> str:
        """The output with names instead of addresses, ids and folders, without spaces at the ends of lines."""
        text = _TOPIC_ID.sub("TopicId: ID", self.out)
        for node, port in self.brokers.items():
            text = text.replace(f"127.0.0.1:{port}", f"broker-{node}")
        return "\n".join(line.rstrip() for line in text.strip().splitlines())

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.text.splitlines() if line.strip()]

    def succeeded(self) -> Result:
        """This result; AssertionError unless the tool ended with status 0."""
        assert self.status == 0, f"status {self.status}\n{self.out}\n{self.err}"
        return self


class ToolsJvm:
    """The JVM. A context manager; ends with the process that has its standard input."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "kafka-tools.log"
        self._calls = ThreadPoolExecutor(1, "kafka-tools")
        options = [FAST_START["JDK_JAVA_OPTIONS"], "-Xmx192m", "-XX:+UseSerialGC", OPENS]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["java", *options, "-cp", f"{JARS}/*", str(SOURCE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def __enter__(self) -> ToolsJvm:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        self._calls.shutdown(wait=True)
        with self._process:
            pass  # closes its standard input, which ends it, and waits

    def call(self, *texts: str) -> Future[tuple[int, str, str]]:
        """Begins a call: the class, the text of the standard input, the arguments."""
        return self._calls.submit(self._call, texts)

    def _call(self, texts: tuple[str, ...]) -> tuple[int, str, str]:
        calls, results = self._process.stdin, self._process.stdout
        assert calls is not None
        assert results is not None
        encoded = [text.encode() for text in texts]
        calls.write(struct.pack(">i", len(encoded)))
        calls.write(b"".join(struct.pack(">H", len(text)) + text for text in encoded))
        calls.flush()
        status = self._int(results)
        out, err = (results.read(self._int(results)).decode() for _ in range(2))
        return status, out, _NOISE.sub("", err)

    def _int(self, results: IO[bytes]) -> int:
        read = results.read(4)
        if len(read) < 4:
            raise OSError(f"the JVM of Kafka's tools has ended; its output is in {self._log}")
        (number,) = struct.unpack(">i", read)
        return int(number)


class Running:
    """A tool that runs; `result()` waits for its end."""

    def __init__(self, call: Future[tuple[int, str, str]], brokers: Mapping[int, int]) -> None:
        self._call = call
        self._brokers = brokers

    @property
    def ended(self) -> bool:
        """The tool has ended."""
        return self._call.done()

    def result(self) -> Result:
        """Waits for the end of the tool."""
        status, out, err = self._call.result(timeout=180)
        return Result(status=status, out=out, err=err, brokers=self._brokers)


class Tools:
    """Kafka's tools on one cluster."""

    def __init__(self, jvm: ToolsJvm, brokers: Mapping[int, int]) -> None:
        self._jvm = jvm
        self._brokers = brokers
        self.servers = ",".join(f"127.0.0.1:{port}" for port in brokers.values())

    def begin(self, tool: str, *arguments: str, stdin: str = "") -> Running:
        """Starts `tool` with the cluster's address; the next tool waits for its end."""
        name = f"{PACKAGES.get(tool, 'org.apache.kafka.tools')}.{tool}"
        address = ["--bootstrap-server", self.servers]
        command = arguments[:1] if tool == "ClusterTool" else ()
        rest = arguments[len(command) :]
        call = self._jvm.call(name, stdin, *command, *address, *rest)
        return Running(call, self._brokers)

    def run(self, tool: str, *arguments: str, stdin: str = "") -> Result:
        """Runs `tool` with the cluster's address to its end."""
        return self.begin(tool, *arguments, stdin=stdin).result()
