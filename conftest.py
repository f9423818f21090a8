"""The project's own suite uses the plugin as any user would: by its entry point, with no private fixtures.

The small projects and commands that its tests run in processes of their own share the suite's Spark: one JVM
for the whole run, which ends with this process. The JVM starts as on a machine that has no cache for it yet,
and makes none beside the tests. Their pytest loads no plugins that none of them uses, which would take a third
of its start. All processes of a run keep bytecode: where an image says PYTHONDONTWRITEBYTECODE, each process that
imports the brokers would compile them and kio again, which takes 3 to 4 times the CPU time of a short test.

Temporary files are in memory where there is enough of it: tests make, sync and remove some 65,000 files of logs, and
where the disk is slow they wait for it two thirds of their time. `TMPDIR=/tmp make test` has them on the disk.
"""

import functools
import gc
import os
import shutil
import signal
import sys
import tempfile
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = ["pytester"]
# it must be installed; tests/plugin/test_example_extension.py does that
collect_ignore = ["examples/shop_extension"]


SHARED_MEMORY = "/dev/shm"  # noqa: S108 - as a folder for temporary files
SPACE, MEMORY = 8 << 30, 12 << 30
"""So many bytes must be free in the shared memory, and in the machine, for temporary files in memory."""


def pytest_configure(config: pytest.Config) -> None:
    """Name the suite's rendezvous before xdist's workers and any process of a test begin.

    No property test has a deadline: it would assert an absolute time. `make long` draws as many examples as hypothesis
    does by default; the suite draws fewer, others in each run.
    """
    examples = 100 if os.environ.get("HARROW_LONG") == "1" else 40
    settings.register_profile("suite", deadline=None, max_examples=examples)
    settings.load_profile("suite")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of a job in the background of a script
        signal.signal(signal.SIGINT, signal.default_int_handler)  # processes of tests would ignore Ctrl-C, too
    is_worker, begins = hasattr(config, "workerinput"), "HARROW_RENDEZVOUS" not in os.environ
    if begins and not is_worker:
        keep_temporary_files_in_memory(config)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        folder = tempfile.mkdtemp(prefix="harrow-suite-")
        os.environ["HARROW_RENDEZVOUS"] = os.path.join(folder, "spark.sock")
        os.environ["HARROW_CONTROLLER"] = str(os.getpid())
        os.environ.setdefault("HARROW_AOT", "0")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    if (begins or is_worker) and "HARROW_SUITE_OUT" in os.environ and config.getoption("--harrow-out") is None:
        config.option.harrow_out = os.environ["HARROW_SUITE_OUT"]


def keep_temporary_files_in_memory(config: pytest.Config) -> None:
    """Let temporary files of this run be in memory, where there is enough of it and the user chose no other folder.

    So is the out folder of a run by several workers.
    """
    if "TMPDIR" in os.environ or not os.path.isdir(SHARED_MEMORY) or not os.access(SHARED_MEMORY, os.W_OK):
        return
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    if shutil.disk_usage(SHARED_MEMORY).free >= SPACE and available >= MEMORY:
        os.environ["TMPDIR"] = tempfile.tempdir = SHARED_MEMORY
        if config.getoption("numprocesses", None):
            os.environ["HARROW_SUITE_OUT"] = os.path.join(SHARED_MEMORY, f"harrow-out-{os.getuid()}")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Name the options of the processes that tests start; xdist's workers have begun without them.

    The runs inside of tests write nothing into the summary of a step of GitHub Actions.
    """
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"):
        os.environ.pop(name, None)
    if hasattr(session.config, "workerinput") or not session.config.getoption("numprocesses", None):
        os.environ.setdefault("PYTEST_ADDOPTS", "-p no:faker -p no:hypothesispytest")


@pytest.hookimpl(tryfirst=True)  # xdist's own hook adds the groups to the ids of the tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run the tests of a module that share a cluster, or another fixture: else each worker makes it."""
    for item in items:
        if shares_a_fixture(item) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0].replace("/", ".")))


def shares_a_fixture(item: pytest.Item) -> bool:
    """Whether a test uses a fixture that lives for its module, or one of its module that lives for the session."""
    mark = item.get_closest_marker("harrow")
    if mark is not None and mark.kwargs.get("scope") == "session":
        return True
    module = item.nodeid.partition("::")[0]
    known: dict[str, Any] = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    used = [fixtures[-1] for fixtures in known.values()]
    return any(one.scope == "module" or (one.scope == "session" and one.baseid == module) for one in used)


def pytest_collection_finish() -> None:
    """Take 8,000 collected tests and their modules out of the collector's sight: walking them is a sixth of a test."""
    know_selectors_of_kafka_python()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_signal_stays_blocked() -> Iterator[None]:
    """Fail a test that leaves signals blocked: the processes of later tests inherit the mask, and SIGTERM ends none."""
    yield
    left = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    assert not left, f"the test leaves {sorted(left)} blocked"


open_selectors = weakref.WeakSet[object]()
"""The event loops of kafka-python that are not collected yet; each has a pair of sockets."""


def know_selectors_of_kafka_python() -> None:
    """Let each event loop of kafka-python that is made from now on be in `open_selectors`."""
    module = sys.modules.get("kafka.net.selector")
    if module is None:
        return
    initialize = module.NetworkSelector.__init__

    @functools.wraps(initialize)
    def initialize_and_add(self: object, *args: object, **options: object) -> None:
        open_selectors.add(self)
        initialize(self, *args, **options)

    module.NetworkSelector.__init__ = initialize_and_add


def collect_sockets_of_kafka_python() -> None:
    """Collect the sockets that kafka-python leaves open, without their warnings."""
    if open_selectors:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture(autouse=True)
def unclosed_sockets_of_kafka_python() -> Iterator[None]:
    """Blame no later test for the sockets that kafka-python leaves open in a test, or in a fixture of its module."""
    collect_sockets_of_kafka_python()
    yield
    collect_sockets_of_kafka_python()
