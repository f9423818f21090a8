"""An asyncio service of `harrow.start(main, …)` on real brokers: a process of its own that runs `main`.

Owns: `ServiceProcess`, a `Program` with what a service adds: a service that raised, and that nothing started again, is
a finding of the test. The process is `run_service.py`; it gets the function by its module and its name, and the
arguments pickled. ConfigError says what cannot be given to another process, and what to write instead.
"""

from __future__ import annotations

import asyncio
import functools
import pickle
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import ConfigError, HarrowError

from ..histories.program_ends import ITSELF
from .user_program import POLL_S, Program, ProgramProcess

if TYPE_CHECKING:
    from .services import Main, Restart

CALL, BEGUN = "service.call", "service.begun"
"""Files in the folder of the program: what it is to run, and whether it began to."""
RUNNER = "harrow.harness.programs.run_service"
BEGIN_S = 60.0
"""How long a process may import what the service needs."""
OF_A_LOOP = (
    asyncio.Event,
    asyncio.Lock,
    asyncio.Condition,
    asyncio.Semaphore,
    asyncio.Queue,
    asyncio.Future,
    asyncio.AbstractEventLoop,
)
"""What some Pythons pickle, although another process would wait for nothing."""
REMEDY = "or keep this test on the backend simulated, where a service is in the process of the test"


def command_of(file: Path) -> list[str]:
    """Return the words that start the process."""
    return [sys.executable, "-m", RUNNER, str(file)]


def write_call(
    folder: Path, name: str, main: Main | Coroutine[Any, Any, object], args: tuple[object, ...], restart: Restart
) -> Path:
    """Write what the process is to run; ConfigError for what cannot be given to another process."""
    given: Any = main
    called = f"harrow.start({getattr(given, '__qualname__', given)}, …, name={name!r})"
    if isinstance(main, Coroutine):
        raise ConfigError(
            f"{called}: a coroutine cannot be given to another process; give the function and its arguments: "
            "harrow.start(main, servers)"
        )
    module = _module_of(main)
    if module is None:
        raise ConfigError(
            f"{called}: the process of the service cannot find a function that is defined in another function, in a "
            f"lambda or in a script; define it at the top level of a module, {REMEDY}"
        )
    for number, value in enumerate(args, 1):
        try:
            if isinstance(value, OF_A_LOOP):
                raise TypeError("it belongs to the event loop of this process")  # noqa: TRY301 - one text for both
            pickle.dumps(value)
        except Exception as error:
            raise ConfigError(
                f"{called}: argument {number}, {value!r}, cannot be given to another process ({error}); give it plain "
                f"values, such as addresses and names, {REMEDY}"
            ) from None
    try:
        call = pickle.dumps((main, args))
    except Exception as error:
        raise ConfigError(f"{called}: it cannot be given to another process ({error}); {REMEDY}") from None
    folder.mkdir(parents=True, exist_ok=True)
    file, begun = folder / CALL, folder / BEGUN
    begun.unlink(missing_ok=True)
    file.write_bytes(
        pickle.dumps(
            {
                "sys_path": list(sys.path),
                "modules": {module.__name__: module.__file__},
                "call": call,
                "restart": restart,
                "begun": str(begun),
            }
        )
    )
    return file


def _module_of(main: Main) -> ModuleType | None:
    """Return the module in which a process finds the function by its name; None where there is none."""
    function: Any = main
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - any function
    function = getattr(function, "__func__", function)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or module.__name__ == "__main__" or not getattr(module, "__file__", None) or "<" in name:
        return None
    return module


class ServiceProcess(Program):
    """One service as a process."""

    def __init__(self, name: str, process: ProgramProcess, restart: Restart) -> None:
        super().__init__(name, process)
        self._restart = restart

    def __repr__(self) -> str:
        return f"<ServiceProcess {self.name!r} {self.state} starts={self.starts}>"

    @property
    def state(self) -> str:
        """`dead`, `running` or `paused`."""
        return self._process.state

    def await_begun(self) -> None:
        """Wait until its coroutine runs; HarrowError with its last lines where it ended before."""
        deadline = time.monotonic() + BEGIN_S
        begun = self._process.folder / BEGUN
        while not begun.exists():
            if not self.alive:
                raise HarrowError(f"the service {self.name!r} did not begin: {self.control.last_words()}")
            if time.monotonic() > deadline:
                raise HarrowError(f"the service {self.name!r} did not begin within {BEGIN_S:g} s")
            time.sleep(POLL_S)

    @property
    def unexpected_ends(self) -> list[str]:
        """The last lines of starts that ended with an exception, and for which no `wait()` has waited."""
        if self._restart != "never":
            return []
        return [
            f"exit code {end.exit_code}; its last lines:" + "".join(f"\n  {line}" for line in end.last_words)
            for number, end in enumerate(self.ends(), 1)
            if end.by == ITSELF and end.exit_code and number > self._waited_for
        ]

    def close(self) -> list[str]:
        """End it with the test; return why the test must fail."""
        failures = [f"the service {self.name!r} raised: {text}" for text in self.unexpected_ends]
        super().close()
        return failures
