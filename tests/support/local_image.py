"""Images of files of this machine, for tests where no registry can be reached: `docker import` of a tar."""

from __future__ import annotations

import hashlib
import inspect
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from harrow.faults.errors import CapabilityError

FOLDERS = {"tmp": 0o1777, "proc": 0o755, "dev": 0o755, "etc": 0o755}
USERS = b"root:x:0:0::/tmp:/bin/sh\n"


def missing() -> str:
    """Return why no image can be made here; empty when one can."""
    from harrow.harness.backends.docker.daemon import connect

    try:
        connect().close()
    except CapabilityError as error:
        return str(error)
    return "" if shutil.which("docker") else "no `docker` command, which makes the image"


def run(*command: str, cwd: Path | None = None) -> str:
    """Run a command; AssertionError with its output when it fails."""
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def local_image(repository: str, add: Callable[[tarfile.TarFile], None], *, recipe: str, programs: Path) -> str:
    """Return the name of the image that `add` fills, made when the daemon has none of this recipe.

    `recipe` says which files `add` takes; `programs` is a folder of the image, the first of its path.
    """
    text = recipe + inspect.getsource(add) + Path(__file__).read_text()
    name = f"{repository}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if not run("docker", "images", "--quiet", name):
        # of a pipe that ends too early, docker would make an image
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                add_system(tar)
                add(tar)
            file.flush()
            run("docker", "import", "-c", f"ENV PATH={programs}:/usr/bin:/bin", file.name, name)
    return name


def add_system(tar: tarfile.TarFile) -> None:
    """Add the folders and the user that programs expect."""
    for name, mode in FOLDERS.items():
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        tar.addfile(entry)
    add_link(tar, Path("/bin"), "usr/bin")
    entry = tarfile.TarInfo("etc/passwd")
    entry.size = len(USERS)
    tar.addfile(entry, io.BytesIO(USERS))


def add_programs(tar: tarfile.TarFile, names: Iterable[str]) -> list[Path]:
    """Add programs of the path; return where they are."""
    found = [Path(place) for name in names if (place := shutil.which(name))]
    for path in found:
        add_file(tar, path, Path("/usr/bin") / path.name)
    return found


def add_file(tar: tarfile.TarFile, path: Path, place: Path | None = None) -> None:
    """Add a file, at its own path or at `place`, with the contents that its links lead to."""
    entry = tarfile.TarInfo(str(place or path.absolute()).lstrip("/"))
    found = path.stat()
    entry.size, entry.mode = found.st_size, found.st_mode & 0o777
    with path.open("rb") as file:
        tar.addfile(entry, file)


def add_link(tar: tarfile.TarFile, path: Path, target: str) -> None:
    """Add a symbolic link."""
    entry = tarfile.TarInfo(str(path).lstrip("/"))
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    tar.addfile(entry)


def add_shared_libraries(tar: tarfile.TarFile, binaries: Iterable[Path], *, below: Path) -> None:
    """Add the shared libraries that the loader finds for these files, but those of the folder `below`."""
    done = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False)
    below = below.resolve()
    words = {word for line in done.stdout.splitlines() for word in line.split()}
    for word in sorted(words):
        path = Path(word)
        if word.startswith("/") and path.is_file() and not path.resolve().is_relative_to(below):
            add_file(tar, path)
