"""B11, K3: files after a power loss, against a model that keeps whole copies of all fsynced content.

The model is as simple as possible: a file is an object with a live and a durable content, a folder an object with
live and durable names and the changes between them. Random operations run on both, incarnations end and start,
and then the power is lost.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.host.power_loss.roll_back import lose_power
from harrow.cluster.host.power_loss.tracked_disk import TrackedDisk
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st


class File:
    def __init__(self) -> None:
        self.live = b""
        self.durable = b""


class Folder:
    def __init__(self) -> None:
        self.live: dict[str, File | Folder] = {}
        self.durable: dict[str, File | Folder] = {}
        self.changes: list[list[tuple[str, File | Folder | None]]] = []

    def change(self, *names: tuple[str, File | Folder | None]) -> None:
        self.changes.append(list(names))
        put(self.live, names)

    def sync(self) -> None:
        self.durable, self.changes = dict(self.live), []


def put(names: dict[str, Any], change: Any) -> None:
    for name, node in change:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def tree(folder: Folder, *, durable: bool) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name, node in (folder.durable if durable else folder.live).items():
        if isinstance(node, File):
            found[name] = node.durable if durable else node.live
        else:
            found[name] = None
            found |= {f"{name}/{k}": v for k, v in tree(node, durable=durable).items()}
    return found


def on_disk(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))
    }


class DiskModel:
    """Runs the same operations on a tracked disk and on the model."""

    NAMES = ("a", "b", "c.log", "d.index")

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.rng = rng
        self.data, self.journal = folder / "data", folder / "journal"
        self.data.mkdir()
        self.root = Folder()
        self.open_files: list[tuple[Any, File]] = []
        self.maps: list[tuple[Any, File]] = []
        self.mapped: set[int] = set()
        self.disk = TrackedDisk(str(self.journal), [str(self.data)])

    def close(self) -> None:
        for handle, _ in self.open_files + self.maps:
            handle.close()
        self.open_files, self.maps = [], []
        self.disk.close()

    def new_incarnation(self) -> None:
        self.close()
        self.disk = TrackedDisk(str(self.journal), [str(self.data)])

    def some_folder(self) -> tuple[str, Folder]:
        choices = [("", self.root)]
        choices += [(f"/{n}", f) for n, f in self.root.live.items() if isinstance(f, Folder)]
        name, folder = self.rng.choice(choices)
        return f"{self.data}{name}", folder

    def some_file(self) -> tuple[str, Folder, str, File] | None:
        where, folder = self.some_folder()
        files = [(n, f) for n, f in folder.live.items() if isinstance(f, File)]
        if not files:
            return None
        name, file = self.rng.choice(files)
        return where, folder, name, file

    def step(self) -> None:
        getattr(
            self,
            "do_"
            + self.rng.choice(
                (
                    "make_folder",
                    "open",
                    "open",
                    "append",
                    "append",
                    "append",
                    "write_at",
                    "truncate",
                    "sync",
                    "sync",
                    "sync_file",
                    "sync_folder",
                    "replace",
                    "rename",
                    "remove",
                    "remove_folder",
                    "map",
                    "scribble",
                    "scribble",
                    "resize",
                    "sync_map",
                    "incarnation",
                    "by_hand",
                )
            ),
        )()

    def bytes(self, most: int = 3000) -> bytes:
        return self.rng.randbytes(self.rng.randint(1, most))

    def do_make_folder(self) -> None:
        name = self.rng.choice(("p-0", "p-1"))
        if name not in self.root.live:
            self.disk.make_folder(f"{self.data}/{name}")
            self.root.change((name, Folder()))

    def do_open(self) -> None:
        where, folder = self.some_folder()
        name = self.rng.choice(self.NAMES[:3])
        handle = self.disk.open(f"{where}/{name}")
        file = folder.live.get(name)
        if file is None:
            file = File()
            folder.change((name, file))
        assert isinstance(file, File)
        if id(file) in self.mapped or any(known is file for _, known in self.open_files):
            handle.close()  # a file has at most one open writer, as the seam requires
        else:
            self.open_files.append((handle, file))

    def handle(self) -> tuple[Any, File] | None:
        return self.rng.choice(self.open_files) if self.open_files else None

    def do_append(self) -> None:
        if (at := self.handle()) is not None:
            data = self.bytes()
            at[0].append([data])
            at[1].live += data

    def do_write_at(self) -> None:
        if (at := self.handle()) is not None and at[1].live:
            data, position = self.bytes(800), self.rng.randrange(len(at[1].live))
            at[0].write_at(position, data)
            live = at[1].live
            at[1].live = live[:position] + data + live[position + len(data) :]

    def do_truncate(self) -> None:
        if (at := self.handle()) is not None:
            size = self.rng.randint(0, len(at[1].live))
            at[0].truncate(size)
            at[1].live = at[1].live[:size]

    def do_sync(self) -> None:
        if (at := self.handle()) is not None:
            at[0].sync()
            at[1].durable = at[1].live

    def do_sync_file(self) -> None:
        if (at := self.some_file()) is not None:
            where, folder, name, file = at
            self.disk.sync_file(f"{where}/{name}")
            file.durable = file.live
            folder.sync()

    def do_sync_folder(self) -> None:
        where, folder = self.some_folder()
        self.disk.sync_file(where)
        folder.sync()
        if folder is not self.root:
            self.root.sync()

    def do_replace(self) -> None:
        where, folder = self.some_folder()
        name, data, durable = "checkpoint", self.bytes(), self.rng.random() < 0.5
        self.disk.replace(f"{where}/{name}", data, durable=durable)
        file = File()
        file.live = data
        folder.change((f"{name}.tmp", file))
        folder.change((f"{name}.tmp", None), (name, file))
        if durable:
            file.durable = data
            folder.sync()

    def do_rename(self) -> None:
        where, folder = self.some_folder()
        if folder.live:
            old = self.rng.choice(sorted(folder.live))
            new = f"{old[:6]}{self.rng.randrange(10**9)}"
            self.disk.rename(f"{where}/{old}", f"{where}/{new}")
            folder.change((old, None), (new, folder.live[old]))

    def do_remove(self) -> None:
        if (at := self.some_file()) is not None:
            where, folder, name, _ = at
            self.disk.remove(f"{where}/{name}")
            folder.change((name, None))

    def do_remove_folder(self) -> None:
        name = self.rng.choice(("p-0", "p-1"))
        folder = self.root.live.get(name)
        if isinstance(folder, Folder) and self.rng.random() < 0.3:
            self.disk.remove_folder(f"{self.data}/{name}")
            folder.change(*((name_, None) for name_ in list(folder.live)))
            self.root.change((name, None))

    def do_map(self) -> None:
        where, folder = self.some_folder()
        file = folder.live.get("d.index")
        if any(known is file for _, known in self.maps):
            return
        size = self.rng.randint(1, 20_000)
        mapped = self.disk.map(f"{where}/d.index", size)
        if file is None:
            file = File()
            folder.change(("d.index", file))
        assert isinstance(file, File)
        file.live = file.live.ljust(size, b"\0")
        self.mapped.add(id(file))
        self.maps.append((mapped, file))

    def do_scribble(self) -> None:
        if self.maps:
            mapped, file = self.rng.choice(self.maps)
            data = self.bytes(500)[: len(file.live)]
            at = self.rng.randint(0, len(file.live) - len(data))
            mapped.view[at : at + len(data)] = data
            file.live = file.live[:at] + data + file.live[at + len(data) :]

    def do_resize(self) -> None:
        if self.maps:
            mapped, file = self.rng.choice(self.maps)
            size = self.rng.randint(1, 20_000)
            mapped.resize(size)
            file.live = file.live[:size].ljust(size, b"\0")

    def do_sync_map(self) -> None:
        if self.maps:
            mapped, file = self.rng.choice(self.maps)
            mapped.sync()
            file.durable = file.live

    def do_incarnation(self) -> None:
        if self.rng.random() < 0.3:
            self.new_incarnation()

    def do_by_hand(self) -> None:
        """Between two incarnations an operator adds a file, and a kill precedes the record of a rename."""
        if self.rng.random() < 0.2:
            self.close()
            name = f"hand{self.rng.randrange(10**9)}"
            (self.data / name).write_bytes(b"by hand")
            file = File()
            file.live = b"by hand"
            self.root.change((name, file))
            self.new_incarnation()


def survived(got: bytes, file: File) -> bool:
    """Every byte is as at the end, as at the last fsync, or zero where neither content has a byte."""
    live, durable = file.live, file.durable
    if not min(len(live), len(durable)) <= len(got) <= max(len(live), len(durable)):
        return False
    sides = (live.ljust(len(got), b"\0"), durable.ljust(len(got), b"\0"))
    return all(byte in (a, b) for byte, a, b in zip(got, *sides, strict=False))


def check_drawn(found: dict[str, bytes | None], root: Folder) -> None:
    """Every folder has its durable names with a prefix of the later changes, and each file `survived`."""
    assert may_be_left(found, root, ""), f"no state of the model has these files: {sorted(found)}"


def may_be_left(found: dict[str, bytes | None], folder: Folder, prefix: str) -> bool:
    """Whether a power loss may leave a folder so. A name that was removed and created again may be of either node."""
    here = {n[len(prefix) :] for n in found if n.startswith(prefix) and "/" not in n[len(prefix) :]}
    possible: list[dict[str, File | Folder]] = [dict(folder.durable)]
    for change in folder.changes:
        possible.append(dict(possible[-1]))
        put(possible[-1], change)
    return any(
        set(names) == here and all(node_may_be_left(found, node, prefix + name) for name, node in names.items())
        for names in possible
    )


def node_may_be_left(found: dict[str, bytes | None], node: File | Folder, path: str) -> bool:
    if isinstance(node, Folder):
        return found[path] is None and may_be_left(found, node, f"{path}/")
    return survived(found[path] or b"", node)


def no_fsync(_fd: int) -> None:
    """Do nothing."""


@pytest.fixture(autouse=True)
def quick_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal decides these tests, so the real disk need not be synced."""
    monkeypatch.setattr(os, "fsync", no_fsync)


@pytest.fixture
def folders(tmp_path: Path) -> Any:
    count = iter(range(10**6))

    def make() -> Path:
        folder = tmp_path / str(next(count))
        folder.mkdir()
        return folder

    return make


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 60))
@example(seed=346, steps=43)  # a folder is removed and created again, and neither change is durable
def test_power_loss_keeps_the_fsynced_content(folders: Any, seed: int, steps: int) -> None:
    rng = random.Random(seed)
    model = DiskModel(folders(), rng)
    keep = rng.choice((0.0, 1.0, None))
    for _ in range(rng.choice((1, 2))):
        for _ in range(steps):
            model.step()
        model.close()
        report = lose_power(str(model.journal), seed=seed, keep=keep)
        found = on_disk(model.data)
        if keep is None:
            check_drawn(found, model.root)
            break  # the model does not contain the drawn state
        assert found == tree(model.root, durable=keep == 0.0), report
        again = lose_power(str(model.journal), seed=seed + 1, keep=0.0)
        assert (again.lost_bytes, again.lost_names, on_disk(model.data)) == (0, 0, found)
        make_durable(model.root, durable=keep == 0.0)
        model.new_incarnation()
    model.close()


def make_durable(folder: Folder, *, durable: bool) -> None:
    """Make the surviving content the durable content."""
    if durable:
        folder.live = dict(folder.durable)
    folder.sync()
    for node in folder.live.values():
        if isinstance(node, Folder):
            make_durable(node, durable=durable)
        elif durable:
            node.live = node.durable
        else:
            node.durable = node.live


def test_power_loss_with_the_same_seed_leaves_the_same_files(tmp_path: Path) -> None:
    found: list[dict[str, bytes | None]] = []
    for run in range(2):
        folder = tmp_path / str(run)
        folder.mkdir()
        model = DiskModel(folder, random.Random(5))
        for _ in range(80):
            model.step()
        model.close()
        lose_power(str(model.journal), seed="the same")
        found.append(on_disk(model.data))
    assert found[0] == found[1]
    assert found[0]


def test_power_loss_tears_and_zeroes_unsynced_appends_for_some_seed(tmp_path: Path) -> None:
    whole, zeroed, torn, empty = (set[int]() for _ in range(4))
    for seed in range(60):
        folder = tmp_path / str(seed)
        (folder / "data").mkdir(parents=True)
        disk = TrackedDisk(str(folder / "journal"), [str(folder / "data")])
        file = disk.open(str(folder / "data" / "log"))
        disk.sync_file(str(folder / "data" / "log"))
        file.append([b"x" * 20_000])
        file.close()
        disk.close()
        lose_power(str(folder / "journal"), seed=seed)
        left = (folder / "data" / "log").read_bytes()
        kind = empty if not left else zeroed if b"\0" in left else torn if len(left) < 20_000 else whole
        kind.add(seed)
    assert whole and zeroed and torn and empty


def test_rename_between_folders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / "one").mkdir(parents=True)
    disk = TrackedDisk(str(tmp_path / "journal"), [str(tmp_path / "data")])
    disk.open(str(tmp_path / "data" / "one" / "x")).close()
    with pytest.raises(OSError, match="between folders"):
        disk.rename(str(tmp_path / "data" / "one" / "x"), str(tmp_path / "data" / "x"))
    assert os.path.exists(tmp_path / "data" / "one" / "x")
