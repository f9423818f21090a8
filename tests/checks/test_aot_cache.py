"""The class cache of Spark's JVM (issue 29: first verdict): found by what made it, bounded, never in the way."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harrow.harness.checks import aot, jvm, own_spark, spark_server
from long_runs import long_run


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for caches of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(aot.SWITCH, raising=False)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(aot, "FREE_BYTES_LEAST", 0)
    return tmp_path


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """A list of classes, as a JVM that was killed leaves it."""
    aot.cache_folder().mkdir(parents=True)
    listed = tmp_path / "classes"
    listed.write_bytes(b"java/lang/Object id: 0\njava/lang/String id: 1\njava/la")
    return listed


def archive(name: str = "", *, used: int = 0) -> Path:
    path = aot.cache_folder() / name if name else aot.cache_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"an archive")
    if used:
        os.utime(path, (used, used))
    return path


def test_without_an_archive_the_jvm_lists_its_classes(tmp_path: Path) -> None:
    assert aot.flags(tmp_path) == [f"-XX:DumpLoadedClassList={tmp_path / aot.CLASS_LIST}"]
    assert aot.wanted()


def test_no_archive_is_built_on_a_ci_machine_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", "true")
    assert not aot.wanted()
    assert aot.flags(tmp_path) == []
    monkeypatch.setenv(aot.SWITCH, "1")
    assert aot.wanted()


def test_an_existing_archive_is_used_until_it_is_discarded(tmp_path: Path) -> None:
    cache = archive(used=1)
    chosen = aot.flags(tmp_path)
    assert f"-XX:SharedArchiveFile={cache}" in chosen
    assert aot.uses_archive(chosen)
    assert cache.stat().st_mtime > 1, "its use is noted, by which the archives to keep are chosen"
    assert not aot.wanted()
    aot.discard()
    assert not aot.uses_archive(aot.flags(tmp_path))


def test_the_environment_switch_disables_the_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive()
    monkeypatch.setenv(aot.SWITCH, "0")
    assert aot.flags(tmp_path) == []
    aot.discard()
    assert not aot.wanted()


def test_changed_jars_or_flags_use_another_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    before = aot.cache_file()
    monkeypatch.setattr(jvm, "FLAGS", (*jvm.FLAGS, "-Dother=1"))
    other_flags = aot.cache_file()
    found = jvm.jars()
    monkeypatch.setattr(jvm, "jars", lambda: found[1:])
    assert len({before, other_flags, aot.cache_file()}) == 3


def test_environments_with_the_same_jars_share_an_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = aot.cache_file()
    links: list[str] = []
    for jar in map(Path, jvm.jars()):
        link = tmp_path / jar.name
        link.symlink_to(jar)
        links.append(str(link))
    monkeypatch.setattr(jvm, "jars", lambda: links)
    assert aot.cache_file() == before


@pytest.mark.parametrize("home", ["a file", "no folder", "full"])
def test_a_home_that_takes_no_archive_changes_nothing(
    home: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if home == "a file":
        (tmp_path / "harrow").write_text("")
    elif home == "no folder":
        monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nothing")
    else:
        monkeypatch.setattr(aot, "FREE_BYTES_LEAST", 1 << 62)
    (tmp_path / aot.CLASS_LIST).write_text("")
    assert not aot.wanted()
    assert aot.flags(tmp_path) == []
    assert not aot.build_later(tmp_path)


def test_a_list_that_cannot_be_kept_on_a_full_disk_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(_from: Path, to: Path) -> None:
        to.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / aot.CLASS_LIST).write_text("")
    monkeypatch.setattr("shutil.copyfile", full)
    assert not aot.build_later(tmp_path)
    assert not list(aot.cache_folder().iterdir())


def test_a_second_builder_does_nothing_while_the_first_one_builds(monkeypatch: pytest.MonkeyPatch, names: Path) -> None:
    def dumped(_names: Path, _made: Path) -> None:
        raise AssertionError("two builders at a time")

    monkeypatch.setattr(aot, "_dump", dumped)
    with open(aot.cache_file().with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not aot.build(names)


def test_an_archive_is_installed_atomically_and_leftovers_and_old_archives_are_removed(
    monkeypatch: pytest.MonkeyPatch, names: Path
) -> None:
    def dumped(_names: Path, made: Path) -> None:
        assert not aot.cache_file().exists()
        made.write_bytes(b"made")

    monkeypatch.setattr(aot, "_dump", dumped)
    dead = aot.cache_file().with_name(f"{aot.cache_file().stem}-1.tmp")
    dead_list = dead.with_suffix(".tmp.lst")
    dead.write_bytes(b"half")
    dead_list.write_bytes(b"")
    oldest, newer = archive("spark-1.jsa", used=1), archive("spark-2.jsa", used=2)
    former = archive("spark-3.aot", used=3)
    assert aot.build(names)
    assert aot.cache_file().read_bytes() == b"made"
    gone = (dead, dead_list, oldest, former)
    assert not [path for path in gone if path.exists()]
    assert newer.exists(), f"{aot.KEPT} archives stay"


def test_a_builder_that_fails_leaves_nothing_but_its_lock(monkeypatch: pytest.MonkeyPatch, names: Path) -> None:
    def dumped(_names: Path, made: Path) -> None:
        made.write_bytes(b"half")
        raise RuntimeError("the JVM died")

    monkeypatch.setattr(aot, "_dump", dumped)
    with pytest.raises(RuntimeError):
        aot.main([str(names)])
    assert not names.exists()
    assert [path.suffix for path in aot.cache_folder().iterdir()] == [".lock"]


@pytest.mark.parametrize("content", [b"no archive at all" * 1000, b""], ids=["other", "empty"])
def test_a_jvm_starts_with_a_broken_archive(content: bytes, tmp_path: Path) -> None:
    archive().write_bytes(content)
    done = subprocess.run([jvm.java(), *jvm.FLAGS, *aot.flags(tmp_path), "-version"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"rchive" not in done.stderr + done.stdout


@long_run
def test_the_command_builds_an_archive_that_the_jvm_accepts_in_whole_and_in_half(
    cache_home: Path, tmp_path: Path
) -> None:
    """The JVM says where a class is from; half an archive, as a disk error leaves it, is ignored."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "HARROW_RENDEZVOUS": "", "CI": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "harrow.harness.checks.aot"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(temporary.iterdir())
    cache = aot.cache_file()
    assert cache.stat().st_size < 120e6, "the page on CI says 85 MB"

    def loaded() -> str:
        command = [
            jvm.java(),
            "-cp",
            os.pathsep.join(jvm.jars()),
            f"-Xmx{jvm.HEAP}",
            *jvm.FLAGS,
            *aot.flags(tmp_path),
            "-Xlog:class+load",
            *jvm.GATEWAY,
        ]
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        ).stdout

    assert "source: shared objects file" in loaded()
    cache.write_bytes(cache.read_bytes()[: cache.stat().st_size // 2])
    assert "py4j.GatewayServer source: file:" in loaded()


def test_a_killed_owners_folders_are_removed_by_the_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as ended:
        ended.send_signal(signal.SIGKILL)
    killed = tmp_path / f"{jvm.SCRATCH}{ended.pid}-x"
    (killed / "local").mkdir(parents=True)
    (killed / aot.CLASS_LIST).write_text("")
    assert spark_server.make_scratch().parent == tmp_path
    assert not killed.exists()


def test_the_messages_of_the_jvm_are_shown_without_its_stack() -> None:
    class Java:
        def __init__(self, message: str, cause: Java | None = None) -> None:
            self.getMessage = lambda: message
            self.getCause = lambda: cause

    first = Java("Traceback:\n  File x\nFileNotFoundError: y\n\tat org.apache.spark.Task")
    shown = own_spark.said_by(Java("Job aborted\n\tat org.apache.spark.Job", first))
    assert shown == "Traceback:\n  File x\nFileNotFoundError: y"
