"""What pytest shows of an error of Harrow's: a traceback that ends in the user's line, and a short line in the summary.

A misuse, a fault that took no effect and a verdict that is not valid are raised somewhere below `harrow.topic`,
`harrow.chaos` or `harrow.verify`, also in threads and in `async with`. The frames of Harrow and of libraries below the
last frame of the user say nothing to the user, so they are cut off. `--full-trace` keeps them. Errors of Kafka clients
that a recording client passes on end there too. Any other error keeps all frames: it may be a bug in Harrow.
"""

from __future__ import annotations

import functools
import sysconfig
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import HarrowError

from ..errors import VerdictError

if TYPE_CHECKING:
    import pytest

OWN = "harrow"
CLIENT_LIBRARIES = ("cimpl", "confluent_kafka", "kafka", "aiokafka")


def end_in_users_line(error: BaseException) -> None:
    """Cut the frames of Harrow below the last frame of the user off the traceback of an error, where there is one."""
    library = type(error).__module__.partition(".")[0]
    if not isinstance(error, HarrowError) and library not in CLIENT_LIBRARIES:
        return
    entry, last_of_user = error.__traceback__, None
    below = False
    while entry is not None:
        frame = entry.tb_frame
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] == OWN:
            below = True
        elif not _is_library(frame.f_code.co_filename):
            last_of_user, below = entry, False
        entry = entry.tb_next
    if last_of_user is not None and below:
        last_of_user.tb_next = None


def _is_library(file: str) -> bool:
    return file.startswith(_library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [f"{paths[name]}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return (*folders, "<frozen ")


def shorten_summary(report: pytest.TestReport, error: BaseException) -> None:
    """Let the short summary, which pytest cuts at the terminal's width, begin with the class and what was found."""
    said: Any = report.longrepr
    crash = getattr(said, "reprcrash", None)
    if crash is not None and isinstance(error, HarrowError):
        crash.message = summary_of(error)


def summary_of(error: HarrowError) -> str:
    """Return the message of an error without the modules of its class; a verdict has a short line before it."""
    if not isinstance(error, VerdictError):
        return f"{type(error).__name__}: {error}"
    from ..checks.verdict_text import shortest_line

    return f"{type(error).__name__}: {shortest_line(error.verdict)}\n{error}"
