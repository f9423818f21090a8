"""The test suites of clients, as data: how each runs against brokers that are there already (tests/client_suites.py).

Owns: for each client the tag that docs/clients.md shows, what a checkout must contain, the programs that it needs, the
brokers' settings, the addresses of brokers in its tests, its commands, and how its results are read. Tests that need
TLS, SASL or an authorizer run in suites with `listeners`, and are left out of the others; so are those that need
Docker, a schema registry or share groups, and files whose tests reach no broker. A result is `passed`, `failed` or
`skipped`, by the test's name.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from secured_suites import SecuredListeners

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
NODE_REPORTER = Path(__file__).with_name("node_test_lines.mjs")
JEST_REPORTER = Path(__file__).with_name("jest_lines.cjs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What one command runs: every test of the suite, or the named ones alone, one after the other."""

    folder: Path
    """The copy of the checkout, where the command runs."""
    results: Path
    """The file that the command writes, or to which its output goes."""
    only: tuple[str, ...] = ()
    part: str = ""
    """A regular expression: names of Go tests, else paths of test files; everything by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One client's tests."""

    name: str
    repository: str
    version: str
    marker: tuple[str, str]
    """A file of the checkout, and a text in it."""
    tools: Mapping[str, str]
    """Program → where it is from."""
    node_major_min: int = 0
    brokers: int
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    """Broker settings by Kafka's name, over those of every suite."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    addresses: tuple[tuple[str, str, str], ...] = ()
    """(files, regular expression, what replaces it); `{1}` is the port of broker 1, `{0}` the one before; ids, too."""
    unchanged: tuple[str, ...] = ()
    """Files of these names keep their addresses: they test the addresses themselves."""
    prepare: tuple[tuple[str, ...], ...] = ()
    """Commands that fetch dependencies, once for a copy."""
    command: Callable[[Selection], Sequence[str]]
    read: Callable[[Selection], Iterator[tuple[str, str]]]
    missing: Callable[[Path, Mapping[str, str]], list[str]] = lambda folder, found: []
    """Of a copy and of results: the tests that did not begin, because the process of the tests ended early."""
    checkout: str = ""
    """The suite whose checkout it runs; by default its own."""
    variable: str = "BROKERS"
    """The environment variable that gets the bootstrap addresses."""
    listeners: SecuredListeners | None = None
    """The listeners with TLS and SASL, and the fixtures for them; the first broker alone has them."""

    @property
    def checkout_variable(self) -> str:
        """The environment variable that names the checkout."""
        return f"HARROW_{re.sub(r'[^A-Z]', '_', (self.checkout or self.name).upper())}"

    def outcomes(self, selection: Selection) -> dict[str, str]:
        """Return the result of each test; a name that several tests have is numbered."""
        found: dict[str, str] = {}
        for name, result in self.read(selection):
            number, numbered = 1, name
            while numbered in found:
                number += 1
                numbered = f"{name} #{number}"
            found[numbered] = result
        return found


def either(names: Sequence[str]) -> str:
    """Return a regular expression for exactly these names."""
    escaped = sorted({re.escape(bare(name)) for name in names})
    return f"^({'|'.join(escaped)})$"


def bare(name: str) -> str:
    """Return a test's name without its file and its number."""
    return re.sub(r" #\d+$", "", name.partition(": ")[2] or name)


def files_of(names: Sequence[str]) -> list[str]:
    """Return the files of tests that are named `FILE: NAME`."""
    return sorted({name.partition(": ")[0] for name in names})


GO_LEFT_OUT = ("ACL", "Acl", "Scram", "SASL", "Sasl")
GO_CANNOT_PASS = (
    "TestWriter/.*SASL",
    "TestDialerResolver/resolve_domain_to_ip",
    "TestReaderConsumerGroup/(verify_offset_committed|consumer_group_commits_on_close)",
)
"""One needs SASL; `TestDialerResolver` dials Kafka's usual port, 9092, which the systems under test do not have; the
others call a function that is nil (`getOffsets`), and end the process of the tests."""
GO_PACKAGES = (".", "./topics")
GO_TEST = re.compile(r"^func (Test(?!Main\b)\w+)\(", re.MULTILINE)


def go_command(selection: Selection) -> list[str]:
    tops = sorted({name.partition("/")[0] for name in selection.only})
    chosen = ["-run", f"^({'|'.join(tops)})$" if tops else selection.part]
    timeout = ["-timeout", "15m", "-count=1", "-p=1", "-skip", "|".join(GO_LEFT_OUT + GO_CANNOT_PASS)]
    return ["go", "test", "-mod=mod", "-json", *timeout, *chosen, *GO_PACKAGES]


def go_missing(folder: Path, found: Mapping[str, str]) -> list[str]:
    """Return the tests that did not begin: a panic ends the process, and with it all tests after it."""
    files = [path for package in GO_PACKAGES for path in (folder / package).glob("*_test.go")]
    listed = {name for path in files for name in GO_TEST.findall(path.read_text())}
    left_out = re.compile("|".join(GO_LEFT_OUT))
    begun = {name.partition("/")[0] for name in found}
    return sorted(name for name in listed - begun if not left_out.search(name))


def go_results(selection: Selection) -> Iterator[tuple[str, str]]:
    """Read the JSON lines of `go test`; a test that has subtests is left to them, unless it failed by itself."""
    said = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
    found: dict[str, str] = {}
    begun: dict[str, str] = {}
    for line in selection.results.read_text().splitlines():
        event: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        if (name := event.get("Test")) is None:
            continue
        begun.setdefault(name, FAILED)
        if event.get("Action") in said:
            found[name] = said[event["Action"]]
    results = begun | found
    for name, result in results.items():
        inner = [other for other in results if other.startswith(f"{name}/")]
        if not inner or (result == FAILED and all(results[other] != FAILED for other in inner)):
            yield name, result


FRANZ_SHARES = "^TestShareGroup"
"""The tests of share groups that reach a broker; records in each topic of the large one: see `KGO_TEST_RECORDS`."""


def franz_command(selection: Selection) -> list[str]:
    tops = sorted({name.partition("/")[0] for name in selection.only})
    chosen = f"^({'|'.join(tops)})$" if tops else selection.part or FRANZ_SHARES
    return ["go", "test", "-mod=mod", "-json", "-timeout", "15m", "-count=1", "-run", chosen, "./pkg/kgo"]


JEST_LEFT_OUT = (
    r"^(?!.*(SASL|SSL|TLS|SCRAM|OAUTH|PLAIN|mechanism|[aA]cls|re-?authenticat|Re-authenticat"
    r"|trigger rebalance if partitions change after metadata update))"
)
"""The last of them adds partitions by a script that calls Docker."""
JEST_BROKER_IDS = (
    ("src/broker/__tests__/list*.spec.js", r"replicas: \[0, 1, 2\]", "replicas: [1, 2, 3]"),
    ("src/*/__tests__/*Reassignments.spec.js", r"(eplicas: \[[^\]]*)\b0\b(?!, 'a')", r"\g<1>3"),
    ("src/*/__tests__/createTopics.spec.js", r"(replicas: \[[^\]]*)\b0\b", r"\g<1>3"),
    ("src/broker/__tests__/createTopics.spec.js", r"name: '0'", "name: '1'"),
    ("src/broker/__tests__/deleteRecords.spec.js", r"partitionLeader = 0", "partitionLeader = 1"),
    ("src/cluster/__tests__/findBroker.spec.js", r"nodeId = 0", "nodeId = 1"),
    ("src/cluster/__tests__/findGroupCoordinator.spec.js", r"brokers\[2\]", "brokers[3]"),
    ("src/cluster/__tests__/findGroupCoordinator.spec.js", r"brokers\[1\]", "brokers[2]"),
    ("src/cluster/__tests__/findGroupCoordinator.spec.js", r"brokers\[0\]", "brokers[1]"),
    ("src/cluster/__tests__/findGroupCoordinator.spec.js", r"nodeId: 2\b", "nodeId: 3"),
    ("src/producer/__tests__/idempotent*.spec.js", r"of \[0, 1, 2\]", "of [1, 2, 3]"),
)
"""Tests name brokers 0, 1 and 2; those of both systems are 1, 2 and 3."""
JEST_FILES = r"src/(admin|broker|cluster|consumer|producer|instrumentation)/"


def jest_command(selection: Selection) -> list[str]:
    files = files_of(selection.only) or [selection.part or JEST_FILES]
    names = either(selection.only) if selection.only else JEST_LEFT_OUT
    workers = ["--runInBand"] if selection.only else ["--maxWorkers=2"]
    report = ["--reporters=default", f"--reporters={JEST_REPORTER}"]
    return ["npx", "jest", "--ci", "--no-watchman", "--forceExit", *workers, *report, "-t", names, *files]


def jest_results(selection: Selection) -> Iterator[tuple[str, str]]:
    """Read the lines of the reporter; a test that `-t` leaves out is `pending` there, so it is no result."""
    said = {"passed": PASSED, "failed": FAILED}
    for line in selection.results.read_text().splitlines():
        row = json.loads(line)
        path = Path(row["file"]).relative_to(selection.folder)
        if row["error"]:
            yield f"{path}: (file)", FAILED
        for test in row["tests"]:
            if test["status"] in said:
                yield f"{path}: {test['fullName']}", said[test["status"]]


NODE_LEFT_OUT = "SASL|TLS|ACL|Acls|Scram|SCRAM|GSSAPI|[Kk]erberos|[Rr]egistry|OAUTH|DelegationToken"
NODE_ADDRESSES = (
    *(
        (files, rf"localhost({between}){port}\b", rf"127.0.0.1\g<1>{{{broker}}}")
        for files in ("test/helpers.ts", "test/clients/*/*.test.ts")
        for between in (":", "', port: ")
        for port, broker in ((9001, 1), (9011, 1), (9012, 2), (9013, 3))
    ),
    ("test/clients/admin/admin.test.ts", r"port! - 9010\b", "port! - {0}"),
)
NODE_REACHES = re.compile(r"\b(create(Base|Admin|Producer|Consumer)\w*|kafka\w*BootstrapServers)\b")
NODE_NOT = re.compile(r"sasl|registr|memory")


def node_files(folder: Path) -> list[str]:
    """The files of tests that reach brokers, without those of SASL and of the schema registry."""
    found = (path.relative_to(folder) for path in sorted(folder.glob("test/**/*.test.ts")))
    return [
        str(path)
        for path in found
        if not NODE_NOT.search(str(path)) and NODE_REACHES.search((folder / path).read_text())
    ]


def node_command(selection: Selection) -> list[str]:
    chosen = [file for file in node_files(selection.folder) if re.search(selection.part, file)]
    files = files_of(selection.only) or chosen
    report = [f"--test-reporter={NODE_REPORTER}", f"--test-reporter-destination={selection.results}"]
    some = ["--test-concurrency=1" if selection.only else "--test-concurrency=2"]
    named = [f"--test-name-pattern=/{either(selection.only)}/"] if selection.only else []
    words = ["--test-force-exit", f"--test-skip-pattern=/{NODE_LEFT_OUT}/", *named]
    return ["node", "--test", *some, *words, *report, *files]


def node_results(selection: Selection) -> Iterator[tuple[str, str]]:
    """Read the lines of the reporter; a file is a result only if it failed before a test of it ended."""
    rows = [json.loads(line) for line in selection.results.read_text().splitlines()]
    tests = [row for row in rows if not row["file"].endswith(row["name"])]
    files = {row["file"] for row in tests}
    for row in rows:
        file = Path(row["file"])
        path = file.relative_to(selection.folder) if file.is_absolute() else file
        if row in tests:
            yield f"{path}: {row['name']}", SKIPPED if row["skip"] else row["result"]
        elif row["result"] == FAILED and row["file"] not in files:
            yield f"{path}: (file)", FAILED


PYTEST_LEFT_OUT = ("test_user_scram_credentials.py", "test_describe_operations.py")
"""SCRAM is not served; the other starts a cluster with SASL of its own."""


def pytest_command(selection: Selection) -> list[str]:
    files = (selection.folder / "tests" / "integration").glob("[acp]*/test_*.py")
    paths = sorted(str(path.relative_to(selection.folder)) for path in files if path.name not in PYTEST_LEFT_OUT)
    chosen = [*selection.only] or [path for path in paths if re.search(selection.part, path)]
    words = ["-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit2", "--timeout=300"]
    run = [".suite/bin/python", "-m", "pytest", *words]
    return [*run, f"--junitxml={selection.results}", *chosen]


AIOKAFKA_TESTS = ("tests/test_sasl.py", "tests/test_consumer.py", "tests/test_producer.py")
AIOKAFKA_CHOSEN = "(TestKafkaSASL and not gssapi) or test_ssl_consume or test_producer_ssl"
"""The last two are all tests with the mark `ssl`."""


def aiokafka_command(selection: Selection) -> list[str]:
    chosen = [*selection.only] or [path for path in AIOKAFKA_TESTS if re.search(selection.part, path)]
    words = ["-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit2", "--docker-image=kafka:4.4.0", "--no-pull"]
    run = [".suite/bin/python", "-m", "pytest", *words, *([] if selection.only else ["-k", AIOKAFKA_CHOSEN])]
    return [*run, f"--junitxml={selection.results}", *chosen]


def kafka_python_command(selection: Selection) -> list[str]:
    paths = [
        f"test/integration/test_{name}_integration.py" for name in ("sasl", "ssl", "admin", "consumer", "producer")
    ]
    chosen = [*selection.only] or [path for path in paths if re.search(selection.part, path)]
    words = ["-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit2", "-o", "log_level=INFO"]
    run = [".suite/bin/python", "-m", "pytest", *words]
    return [*run, f"--junitxml={selection.results}", *chosen]


def is_module(selection: Selection, words: Sequence[str]) -> bool:
    """Whether dotted words are the name of a test file."""
    return selection.folder.joinpath(*words).with_suffix(".py").exists()


def pytest_results(selection: Selection) -> Iterator[tuple[str, str]]:
    """Read the JUnit file of pytest; names are node ids."""
    for case in ET.parse(selection.results).iter("testcase"):
        words = case.get("classname", "").split(".")
        file = next((n for n in range(len(words), 0, -1) if is_module(selection, words[:n])), 1)
        name = "::".join([f"{'/'.join(words[:file])}.py", *words[file:], case.get("name", "")])
        bad = case.find("failure") is not None or case.find("error") is not None
        yield name, FAILED if bad else SKIPPED if case.find("skipped") is not None else PASSED


GO = {"go": "https://go.dev/dl/"}
NODE = {"node": "https://nodejs.org (20 or later)", "npm": "https://nodejs.org (20 or later)"}
NPM = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--legacy-peer-deps")
UV = str(Path(sys.executable).with_name("uv"))
PIP = (UV, "pip", "install", "--quiet", "--system-certs", "--python", ".suite/bin/python")
FOR_TESTS = (
    "pytest<9",
    "pytest-timeout",
    "pytest-asyncio",
    "requests-mock",
    "respx",
    "async-timeout",
    "attrs",
    "cachetools",
    "httpx",
    "authlib",
    "fastavro",
    "avro",
    "protobuf",
    "googleapis-common-protos",
    "jsonschema",
    "requests",
    "orjson",
    "certifi",
    "cel-python",
    "pyyaml",
    "hkdf",
    "jsonata-python",
    "tink",
    "google-re2",
    "boto3",
)

CONFLUENT_KAFKA = "confluent-kafka==2.16.1"
"""Administers the broker for suites of other clients."""
KAFKA_PYTHON_CODECS = ("crc32c", "lz4", "python-snappy", "xxhash", "zstandard")

CONFLUENT = Suite(
    name="confluent-kafka-python",
    repository="https://github.com/confluentinc/confluent-kafka-python",
    version="v2.15.0",
    marker=("pyproject.toml", 'name = "confluent-kafka"'),
    tools={},
    brokers=1,
    prepare=(
        (UV, "venv", "--quiet", "--python", sys.executable, ".suite"),
        (*PIP, "confluent-kafka==2.15.0", "tests/trivup/trivup-0.14.0.tar.gz", *FOR_TESTS),
    ),
    command=pytest_command,
    read=pytest_results,
)
SUITES = (
    Suite(
        name="kafka-go",
        repository="https://github.com/segmentio/kafka-go",
        version="v0.4.50",
        marker=("go.mod", "github.com/segmentio/kafka-go"),
        tools=GO,
        brokers=1,
        settings={"message.max.bytes": 200_000_000},
        environment={"KAFKA_SKIP_NETTEST": "1", "KAFKA_VERSION": "4.0.0"},
        addresses=(
            ("**/*_test.go", r"localhost:9092", "127.0.0.1:{1}"),
            ("**/*_test.go", r"\b9092\b", "{1}"),
            ("**/*_test.go", r'TCP\("localhost"\)', 'TCP("127.0.0.1:{1}")'),
            ("**/*_test.go", r'Host(:| !=) "localhost"', r'Host\1 "127.0.0.1"'),
        ),
        unchanged=("address_test.go", "protocol_test.go"),
        prepare=(("go", "mod", "download"),),
        command=go_command,
        read=go_results,
        missing=go_missing,
    ),
    Suite(
        name="franz-go-shares",
        checkout="franz-go",
        repository="https://github.com/twmb/franz-go",
        version="v1.22.3",
        marker=("go.mod", "module github.com/twmb/franz-go"),
        tools=GO,
        brokers=3,
        environment={"KGO_TEST_RECORDS": "50000", "KGO_TEST_RF": "3"},
        prepare=(("go", "mod", "download"),),
        command=franz_command,
        read=go_results,
        variable="KGO_SEEDS",
    ),
    Suite(
        name="kafkajs",
        repository="https://github.com/tulios/kafkajs",
        version="v2.2.4",
        marker=("package.json", '"name": "kafkajs"'),
        tools=NODE,
        brokers=3,
        settings={"default.replication.factor": 2, "num.partitions": 2, "min.insync.replicas": 1},
        environment={"KAFKA_VERSION": "2.4", "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1", "NODE_ENV": "test"},
        addresses=(
            ("testHelpers/index.js", r"'localhost'", "'127.0.0.1'"),
            ("testHelpers/index.js", r"\b9092\b", "{1}"),
            ("testHelpers/index.js", r"\b9095\b", "{2}"),
            ("testHelpers/index.js", r"\b9098\b", "{3}"),
            ("src/broker/__tests__/[fm]*.spec.js", r"host: 'localhost'", "host: '127.0.0.1'"),
            *JEST_BROKER_IDS,
        ),
        prepare=(NPM,),
        command=jest_command,
        read=jest_results,
    ),
    Suite(
        name="platformatic-kafka",
        repository="https://github.com/platformatic/kafka",
        version="v2.9.0",
        marker=("package.json", '"name": "@platformatic/kafka"'),
        tools=NODE,
        brokers=3,
        node_major_min=22,
        settings={
            "default.replication.factor": 1,
            "min.insync.replicas": 1,
            "group.consumer.heartbeat.interval.ms": 200,
            "group.consumer.min.heartbeat.interval.ms": 100,
            "transaction.partition.verification.enable": "false",
        },
        environment={"KAFKA_VERSION": "8.1.0"},
        addresses=NODE_ADDRESSES,
        prepare=(NPM,),
        command=node_command,
        read=node_results,
    ),
    CONFLUENT,
    replace(
        CONFLUENT,
        name="confluent-kafka-python-consumer",
        checkout=CONFLUENT.name,
        environment={"TEST_CONSUMER_GROUP_PROTOCOL": "consumer"},
    ),
    Suite(
        name="aiokafka-security",
        checkout="aiokafka",
        repository="https://github.com/aio-libs/aiokafka",
        version="v0.14.0",
        marker=("pyproject.toml", 'name = "aiokafka"'),
        tools={},
        brokers=1,
        settings={"num.partitions": 2},
        environment={"AIOKAFKA_NO_EXTENSIONS": "1"},
        prepare=(
            (UV, "venv", "--quiet", "--python", sys.executable, ".suite"),
            (*PIP, "aiokafka==0.14.0", "cramjam", "docker", "pytest==9.0.2", "pytest-asyncio==1.3.0", CONFLUENT_KAFKA),
        ),
        command=aiokafka_command,
        read=pytest_results,
        listeners=SecuredListeners(
            users={"test": "test", "test2": "test2"},
            client_auth="required",
            overlay=("tests/conftest.py", "from suite_overlay import *"),
        ),
    ),
    Suite(
        name="kafka-python-security",
        checkout="kafka-python",
        repository="https://github.com/dpkp/kafka-python",
        version="3.0.11",
        marker=("pyproject.toml", 'name = "kafka-python"'),
        tools={},
        brokers=1,
        settings={"num.partitions": 4, "group.min.session.timeout.ms": 1000, "offsets.topic.num.partitions": 2},
        environment={"KAFKA_VERSION": "4.3.0", "KAFKA_ROOT": "/"},
        addresses=(("test/integration/test_admin_integration.py", r"\[\[0\], \[0\]\]", "[[1], [1]]"),),
        prepare=(
            (UV, "venv", "--quiet", "--python", sys.executable, ".suite"),
            (*PIP, "py", "pytest<9", "pytest-mock", "pytest-timeout", *KAFKA_PYTHON_CODECS, CONFLUENT_KAFKA),
        ),
        command=kafka_python_command,
        read=pytest_results,
        listeners=SecuredListeners(
            users={"alice": "alice-secret"},
            client_auth="none",
            overlay=(
                "test/integration/fixtures.py",
                "import suite_overlay\n\nKafkaFixture = suite_overlay.running(KafkaFixture, KafkaAdminClient)",
            ),
        ),
    ),
)
BY_NAME = {suite.name: suite for suite in SUITES}
