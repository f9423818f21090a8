"""The ahead-of-time cache of Spark's JVM (issue 3: first verdict): found by what made it, never in the way."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

import pytest
from harrow.harness.checks import aot, jvm


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for caches of this test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(aot.SWITCH, raising=False)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def test_without_a_cache_the_jvm_gets_no_flags_and_a_cache_is_to_be_built() -> None:
    assert aot.flags() == []
    assert aot.wanted()


def test_no_cache_is_built_on_a_ci_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert not aot.wanted()


def test_an_existing_cache_is_used_until_it_is_discarded() -> None:
    aot.cache_file().parent.mkdir(parents=True)
    aot.cache_file().write_bytes(b"a cache")
    assert f"-XX:AOTCache={aot.cache_file()}" in aot.flags()
    assert not aot.wanted()
    aot.discard()
    assert aot.flags() == []


def test_the_environment_switch_disables_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    aot.cache_file().parent.mkdir(parents=True)
    aot.cache_file().write_bytes(b"a cache")
    monkeypatch.setenv(aot.SWITCH, "0")
    assert aot.flags() == []
    aot.discard()
    assert not aot.wanted()


def test_changed_jars_or_flags_use_another_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    before = aot.cache_file()
    monkeypatch.setattr(jvm, "FLAGS", (*jvm.FLAGS, "-Dother=1"))
    other_flags = aot.cache_file()
    found = jvm.jars()
    monkeypatch.setattr(jvm, "jars", lambda: found[1:])
    assert len({before, other_flags, aot.cache_file()}) == 3


def test_a_second_builder_does_nothing_while_the_first_one_builds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trained(_scratch: Path, _made: Path) -> None:
        raise AssertionError("two builders at a time")

    monkeypatch.setattr(aot, "_train", trained)
    aot.cache_file().parent.mkdir(parents=True)
    with open(aot.cache_file().with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not aot.build()


def test_building_a_cache_installs_it_atomically_and_removes_leftovers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trained(_scratch: Path, made: Path) -> None:
        assert not aot.cache_file().exists()
        made.write_bytes(b"made")

    monkeypatch.setattr(aot, "_train", trained)
    aot.cache_file().parent.mkdir(parents=True)
    dead = aot.cache_file().with_name(f"{aot.cache_file().stem}-1.tmp")
    dead.write_bytes(b"half")
    assert aot.build()
    assert aot.cache_file().read_bytes() == b"made"
    assert not dead.exists()
    assert not list(aot.cache_file().parent.glob("*.tmp"))


def test_a_failed_training_run_leaves_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(_scratch: Path, made: Path) -> None:
        made.write_bytes(b"half")
        raise RuntimeError("the JVM died")

    monkeypatch.setattr(aot, "_train", trained)
    with pytest.raises(RuntimeError):
        aot.build()
    assert not list(aot.cache_file().parent.glob("*.[at][om][tp]"))


def test_a_jvm_starts_with_a_corrupt_cache() -> None:
    aot.cache_file().parent.mkdir(parents=True)
    aot.cache_file().write_bytes(b"no cache at all" * 1000)
    done = subprocess.run(
        [jvm.java(), *jvm.FLAGS, *aot.flags(), "-version"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
