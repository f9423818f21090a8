"""The calls of `Harrow` for what runs beside the brokers: programs, asyncio services, dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from harrow.cluster.argument_types import checked
from harrow.faults.errors import CapabilityError

from ..backends.choice import SIMULATED
from ..security.choice import APP

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from ..programs.service_process import ServiceProcess
    from ..programs.services import Service
    from ..programs.user_program import Program
    from .harrow_run import HarrowRun


@checked
class ProgramCalls:
    """A part of `Harrow`."""

    _run: HarrowRun

    def program(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        start: bool = True,
        in_terminal: bool = False,
        user: str = APP,
    ) -> Program:
        """Start a program of yours, such as the service under test; it ends with the `Harrow`.

        `{bootstrap}` in the words of `command` is replaced by the address of the brokers, which is in the environment
        variable `KAFKA_BOOTSTRAP_SERVERS`, too. Its output is in `programs/<name>/stdout.log` of the run folder.
        `environment` is added to that of the test. Faults take its name: `kill_program("billing")`.

        `user`: whose credentials are in its environment, on a cluster with security (docs/security.md).
        `start=False`: it starts when you call `start()`, such as inside of a chaos block.
        `in_terminal`: it uses stdin, stdout and Ctrl-C of this process, as with `harrow chaos -- PROGRAM`.
        """
        return self._run.programs.program(
            name, command, environment=environment, start=start, in_terminal=in_terminal, user=user
        )

    def start(
        self,
        main: Callable[..., Coroutine[Any, Any, object]] | Coroutine[Any, Any, object],
        *args: object,
        name: str = "",
        restart: Literal["never", "on-failure", "always"] = "never",
    ) -> Service | ServiceProcess:
        """Start an asyncio service on a machine of its own in a simulation, or else as a process of its own.

        `main`: a function that returns a coroutine, called with `args` at each start, or a coroutine, which can start
        once. `name`: what faults call it, `kill_program("billing")`; by default the name of the function, or of the
        file of a `main`. `restart`: "never", "on-failure" or "always": what its supervisor does a second after it ended
        by itself. A service that raises, and that nothing restarts, fails the test.

        A process finds `main` by its module and name, and gets `args` pickled; the call returns when `main` runs.
        """
        return self._run.start(main, args, name, restart)

    def allow_outside(self, *calls: str) -> None:
        """Let simulated programs leave the simulation: "threads", "processes", "sockets", "names" (name resolution).

        A run may then depend on more than its seed, and real time passes in such a call.
        """
        from harrow.cluster.host.programs.fence import FENCE

        FENCE.allow(calls)

    def dependency(self, name: str, address: str) -> str:
        """Put a relay in front of a TCP service beside the brokers; return `host:port`, which your application gets.

        `address`: where the service is, such as "127.0.0.1:6379". It may start later. Faults take the name:
        `isolate(dependency("store"))`; `kill`, `pause`, `terminate` and `restart` of it hit the program of
        `harrow.program(name, …)`. Another call with the same arguments returns the same address.

        In a simulation each service of `harrow.start` is a dependency by its own name, without this call.
        """
        if self._run.backend == SIMULATED:
            raise CapabilityError(
                f"harrow.dependency({name!r}, …) puts a process in front of a real service, and this test is "
                "simulated: start the service with harrow.start(…, name=…); its host name is that name, and faults of "
                "a dependency take it"
            )
        return self._run.dependencies.dependency(name, address)
