"""The image of `containers/Dockerfile` for tests, built from what is here: HARROW_BASE, or this machine's own Python.

Where no registry can be reached, `docker import` makes the base of a tar with the interpreter that runs the tests, its
standard library, /bin/sh, and the shared libraries that all of these need. The wheels are made of this source tree and
of the distributions that are installed here, so `docker build` needs no network either.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from local_image import add_file, add_link, add_programs, add_shared_libraries, local_image, missing, run

ROOT = Path(__file__).parents[2]
CONTAINERS = ROOT / "containers"
LAYERS = ("cluster", "faults", "harness", "package")
PROGRAMS = ("sh", "mkdir", "ls")
UNUSED = ("site-packages", "test", "idlelib", "tkinter", "turtledemo", "lib2to3", "__pycache__")
INDIRECT = ("typing-extensions",)
"""Distributions that those of requirements.txt need."""


MISSING = missing()


@functools.cache
def harrow_image() -> str:
    """Return the name of the image: HARROW_BROKERS_IMAGE, or one that the first call of a process builds."""
    if given := os.environ.get("HARROW_BROKERS_IMAGE"):
        return given
    base = os.environ.get("HARROW_BASE") or python_base()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(CONTAINERS / "Dockerfile", folder)
        shutil.copy(CONTAINERS / "requirements.txt", folder)
        wheels = folder / "wheels"
        wheels.mkdir()
        build_wheel(folder / "source", wheels)
        for needed in (*requirements(), *INDIRECT):
            installed_wheel(needed, wheels)
        tag = "harrow-brokers:test"
        words = ["--build-arg", f"BASE={base}", "--build-arg", "PIP_OPTIONS=--no-index"]
        run("docker", "build", "--quiet", "--network", "none", *words, "-t", tag, str(folder))
    return tag


def requirements() -> list[str]:
    """Return the names of the distributions in requirements.txt."""
    lines = (CONTAINERS / "requirements.txt").read_text().splitlines()
    return [line.partition(">=")[0] for line in lines if line and not line.startswith("#")]


def build_wheel(source: Path, wheels: Path) -> None:
    """Build Harrow's wheel from a copy of the source tree."""
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, source / layer, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    run(sys.executable, "-c", build, str(wheels), cwd=source)


def installed_wheel(name: str, wheels: Path) -> None:
    """Make a wheel of an installed distribution."""
    found = distribution(name)
    tags = [
        line.partition(":")[2].strip()
        for line in (found.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag:")
    ]
    stem = f"{found.name.replace('-', '_')}-{found.version}"
    with zipfile.ZipFile(wheels / f"{stem}-{max(tags)}.whl", "w") as wheel:
        for file in found.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                wheel.write(str(file.locate()), str(file))


# ------------------------------------------------------------------ a base image of this machine's Python


def python_base() -> str:
    """Return the name of an image with this interpreter and pip, made when the daemon has none."""
    home = Path(sys.base_prefix)
    return local_image("harrow-python-base", add_python, recipe=f"{home} {sys.version}", programs=home / "bin")


def add_python(tar: tarfile.TarFile) -> None:
    """Add the interpreter, its library, a shell, and the shared libraries of these."""
    home = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib", vars={"base": str(home)}))
    number = f"{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = home / "bin" / f"python{number}"
    add_file(tar, interpreter)
    for name in ("python", "python3"):
        add_link(tar, home / "bin" / name, interpreter.name)
    binaries = [interpreter, *add_programs(tar, PROGRAMS)]
    for path in sorted(library.rglob("*")):
        if path.is_file() and not set(UNUSED) & set(path.relative_to(library).parts):
            add_file(tar, path)
            if path.suffix == ".so":
                binaries.append(path)
    # pip's own wheel is outside the library in a Python of Debian or Fedora
    if wheels := sysconfig.get_config_var("WHEEL_PKG_DIR"):
        for path in sorted(Path(wheels).glob("*.whl")):
            add_file(tar, path)
    # wheels of other distributions need the C++ library
    binaries += [
        Path(str(file.locate()))
        for name in requirements()
        for file in distribution(name).files or ()
        if file.suffix == ".so"
    ]
    add_shared_libraries(tar, binaries, below=library)


if __name__ == "__main__":
    print(harrow_image())
