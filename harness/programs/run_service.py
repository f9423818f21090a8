"""The process of an asyncio service: `python -m harrow.harness.programs.run_service FILE` (`service_process.py`).

FILE has, pickled, the function and its arguments, which modules they need, and what a supervisor does when the service
ends. The process imports the modules, runs the coroutine by `asyncio.run`, and exits as Python does: 0, or 1 with the
traceback on stderr. Where the service is supervised, this process starts another one for it, passes SIGTERM on, and
starts it again `RESTART_S` after it ended by itself.

This module imports nothing of Harrow's, so that the process of a service has no more in it than the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

RESTART_S = 1.0
"""As in a simulation."""
ONCE = "--once"
SIGNALLED = 128


def read_call(file: Path) -> dict[str, Any]:
    """Return what `service_process.write_call` wrote."""
    found: dict[str, Any] = pickle.loads(file.read_bytes())  # noqa: S301 - the test's process wrote it
    return found


def run(file: Path) -> None:
    """Run the service once."""
    call = read_call(file)
    sys.path[:] = call["sys_path"]
    for name, path in call["modules"].items():
        _import(name, path)
    main, arguments = pickle.loads(call["call"])  # noqa: S301 - as above

    async def serve() -> None:
        os.close(os.open(call["begun"], os.O_CREAT | os.O_WRONLY))
        await main(*arguments)

    asyncio.run(serve())


def _import(name: str, path: str) -> None:
    """Import a module by its name, or from its file where that name is another module, or none, in this process."""
    with contextlib.suppress(ImportError):
        found = importlib.import_module(name)
        if getattr(found, "__file__", None) == path:
            return
    parent, _, last = name.rpartition(".")
    if parent:
        _make_package(parent)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, f"{path} is a Python file"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if parent:
        setattr(sys.modules[parent], last, module)
    spec.loader.exec_module(module)


def _make_package(name: str) -> None:
    """Import a package, or make an empty one, as pytest does for test modules of its import mode importlib."""
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
        return
    parent, _, last = name.rpartition(".")
    if parent:
        _make_package(parent)
    sys.modules[name] = types.ModuleType(name)
    if parent:
        setattr(sys.modules[parent], last, sys.modules[name])


def supervise(file: Path, restart: str) -> int:
    """Run the service in a process of its own, again and again; return the exit code of its last end."""
    ended_from_outside = False
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, frame: types.FrameType | None) -> None:
        nonlocal ended_from_outside
        del frame
        ended_from_outside = True
        if child is not None:
            child.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    while True:
        child = subprocess.Popen([sys.executable, "-m", __spec__.name, ONCE, str(file)])  # noqa: S603 - this module
        code = child.wait()
        code = SIGNALLED - code if code < 0 else code
        if ended_from_outside or (restart == "on-failure" and not code):
            return code
        deadline = time.monotonic() + RESTART_S
        while not ended_from_outside and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
        if ended_from_outside:
            return SIGNALLED + signal.SIGTERM


def main(words: list[str]) -> int:
    """Run what the command line names."""
    file = Path(words[-1])
    restart = read_call(file)["restart"]
    if restart == "never" or words[0] == ONCE:
        run(file)
        return 0
    return supervise(file, restart)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code) if code else sys.exit(0)
