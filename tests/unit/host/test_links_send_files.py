"""B12: file regions are sent by sendfile at their position in the frame, with paused, blocked and reset links."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.host.real.disk import RealDisk, RealFile
from harrow.cluster.host.real.pieces import REGION_BYTES_LEAST
from harrow.cluster.host.seam import Part, Peer
from link_ends import LinkEnds, run


class Ends(LinkEnds):
    """A link whose other end sends no frame."""

    def __init__(self) -> None:
        super().__init__(Peer("client", "c"))

    def frame_received(self, frame: bytes) -> None:
        raise AssertionError(f"received {len(frame)} bytes")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of bytes that each sendfile sent."""
    counts: list[int] = []
    real = os.sendfile

    def counting(*args: Any) -> int:
        counts.append(real(*args))
        return counts[-1]

    monkeypatch.setattr(os, "sendfile", counting)
    return counts


def file_of(tmp_path: Path, data: bytes) -> RealFile:
    file = RealDisk().open(str(tmp_path / "00000000000000000000.log"))
    assert isinstance(file, RealFile)
    file.append([data])
    return file


def test_buffers_and_regions_of_every_size_are_received_in_order(tmp_path: Path, sent: list[int]) -> None:
    rng = random.Random(7)
    data = rng.randbytes(3_000_000)
    file = file_of(tmp_path, data)

    def part() -> tuple[Part, bytes]:
        if rng.random() < 0.5:
            buffer = rng.randbytes(rng.choice((0, 10, 5_000, 400_000)))
            return buffer, buffer
        size = rng.choice((0, 100, REGION_BYTES_LEAST - 1, REGION_BYTES_LEAST, 900_000))
        at = rng.randrange(len(data) - size)
        return file.region(at, size), data[at : at + size]

    frames = [[part() for _ in range(rng.randint(1, 5))] for _ in range(40)]

    async def main() -> None:
        with closing(Ends()) as ends:
            for frame in frames:
                ends.link.send([sent_part for sent_part, _ in frame])
            file.close()  # the unsent regions keep the file open
            for frame in frames:
                assert await ends.frame() == b"".join(plain for _, plain in frame)
            assert ends.link.unsent_bytes == 0
            ends.link.close()
            assert await ends.read(1) == b""

    run(main())
    large = [len(plain) for frame in frames for sent_part, plain in frame if not isinstance(sent_part, bytes)]
    assert sum(sent) == sum(size for size in large if size >= REGION_BYTES_LEAST)


def test_blocked_link_holds_regions_and_heal_delivers_them(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(2_000_000)
    file = file_of(tmp_path, data)

    async def main() -> None:
        with closing(Ends()) as ends:
            ends.rules.block(["client c"], "out")
            ends.link.apply()
            ends.link.send([b"head", file.region(0, len(data)), b"tail"])
            with pytest.raises(BlockingIOError):
                ends.theirs.recv(1)
            assert ends.link.report()["held_out_bytes"] == len(data) + 12
            file.close()
            os.unlink(file.path)
            ends.rules.heal(None)
            ends.link.apply()
            assert await ends.frame() == b"head" + data + b"tail"

    run(main())


def test_truncated_file_resets_the_link_without_completing_a_frame(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(2_000_000)
    file = file_of(tmp_path, data)

    async def main() -> None:
        with closing(Ends()) as ends:
            ends.link.send([b"head", file.region(0, len(data)), b"tail"])
            ends.link.send([b"another frame"])
            file.truncate(1_000_000)
            got = await ends.read(4 + 2_000_000)
            assert got[4:] == (b"head" + data)[: len(got) - 4]
            assert len(got) <= 4 + 4 + 1_000_000
            assert "cut under a response" in await ends.closed
            assert ends.link.unsent_bytes == 0

    run(main())


def test_reset_closes_the_file_of_unsent_regions(tmp_path: Path) -> None:
    file = file_of(tmp_path, bytes(2_000_000))
    descriptor = file.region(0, 1).fd

    async def main() -> None:
        with closing(Ends()) as ends:
            ends.link.send([file.region(0, 2_000_000)])
            file.close()
            os.fstat(descriptor)
            ends.link.close(reset=True)
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)

    run(main())
