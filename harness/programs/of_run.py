"""The programs of a test: `Harrow.program` starts them, faults find them by name, and they end with the `Harrow`."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import ConfigError

from .. import run_folder
from ..security.client_settings import environment_of

if TYPE_CHECKING:
    from harrow.faults.controls import ProgramControl

    from ..histories.program_ends import ProgramEnd
    from ..security.client_settings import Access
    from .service_process import ServiceProcess
    from .services import Main, Restart, Service
    from .user_program import Program, ProgramProcess

LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class WatchedPrograms:
    """The programs of a test as a wait sees them."""

    def __init__(self, programs: Mapping[str, Program | Service]) -> None:
        self._programs = programs

    def died(self, since_ns: int) -> str:
        """Say how a program died by itself (`Program.died`), with its last lines; empty while none did."""
        deaths = (program.died(since_ns) for program in list(self._programs.values()))
        return next((death for death in deaths if death), "")

    def ended(self) -> str:
        """Say which programs ended; empty without any."""
        codes = {name: program.exit_code for name, program in list(self._programs.items())}
        ended = [f"{name!r} (exit code {code})" for name, code in codes.items() if code is not None]
        return f"programs that have ended: {', '.join(ended)}" if ended else ""


class RunningPrograms:
    """The programs of one run; `access` returns what a user's client needs."""

    def __init__(self, folder: Path, access: Callable[[str], Access]) -> None:
        self._folder = folder
        self._access = access
        self._programs: dict[str, Program | Service] = {}
        self._reported: set[str] = set()
        """Programs that were never started, and of which that was said."""
        self._ended_programs: list[ProgramEnd] = []
        """Ends of programs whose name another one has now."""
        self.controls: dict[str, ProgramControl] = {}
        """The programs as faults see them; a chaos block sees one that is started later, too."""

    def program(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None,
        start: bool,
        in_terminal: bool,
        user: str,
    ) -> Program:
        """Make a program, and start it unless `start` is False; `Harrow.program` says what the arguments mean."""
        from .user_program import Program

        if not LEGAL_NAME.fullmatch(name):
            raise ConfigError(f"program {name!r}: expected 1 to 64 of a-z, A-Z, 0-9, . _ -")
        earlier = self._programs.get(name)
        if earlier is not None:
            if earlier.alive:
                raise ConfigError(f"program {name!r} runs already; stop() it, or choose another name")
            self._ended_programs += [replace(end, started_again=True) for end in earlier.ends()]
            earlier.close()
        program = Program(name, self._process(name, command, environment or {}, in_terminal=in_terminal, user=user))
        if start:
            program.start()
        self._programs[name] = program
        self.controls[name] = program.control
        return program

    def _process(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], *, in_terminal: bool, user: str
    ) -> ProgramProcess:
        from .user_program import ProgramProcess, find_program

        words = find_program(command)
        access = self._access(user)
        added = {**environment_of(access), **environment}
        return ProgramProcess(name, self._folder_of(name), words, access.servers, added, in_terminal=in_terminal)

    def _folder_of(self, name: str) -> Path:
        return self._folder / run_folder.PROGRAMS / name

    def add_service(self, service: Service) -> None:
        """Start an asyncio service of a simulation; it has its name beside the programs."""
        self._check_service(service.name)
        service.start()
        self._programs[service.name] = service
        self.controls[service.name] = service

    def start_service(
        self,
        name: str,
        main: Main | Coroutine[Any, Any, object],
        args: tuple[object, ...],
        restart: Restart,
        *,
        user: str,
    ) -> ServiceProcess:
        """Start an asyncio service as a process, and wait until its coroutine runs; it has its name as a program."""
        from .service_process import ServiceProcess, command_of, write_call
        from .services import check_restart

        check_restart(name, restart)
        self._check_service(name)
        file = write_call(self._folder_of(name), name, main, args, restart)
        service = ServiceProcess(name, self._process(name, command_of(file), {}, in_terminal=False, user=user), restart)
        service.start()
        self._programs[name] = service
        self.controls[name] = service.control
        service.await_begun()
        return service

    def _check_service(self, name: str) -> None:
        if not LEGAL_NAME.fullmatch(name):
            raise ConfigError(f"service {name!r}: expected 1 to 64 of a-z, A-Z, 0-9, . _ -; give it a name=")
        if name in self._programs:
            raise ConfigError(f"a service {name!r} exists already; give this one another name=")

    @property
    def watched(self) -> WatchedPrograms:
        """The programs, for a wait that ends when one of them dies."""
        return WatchedPrograms(self._programs)

    def take_unstarted(self) -> list[str]:
        """Return why programs that were made with `start=False` did nothing: they were never started. Once each."""
        unstarted = [name for name in self._programs if name not in self._reported]
        unstarted = [name for name in unstarted if not self._programs[name].starts]
        self._reported.update(unstarted)
        return [
            f"harrow.program({name!r}, …, start=False) was made and never started; call its start(), or leave "
            "start=False out"
            for name in unstarted
        ]

    def record_ends(self) -> None:
        """Write how the programs ended until now, for the verdict."""
        from ..histories.program_ends import write_program_ends

        ends = [end for program in self._programs.values() for end in program.ends()]
        if ends or self._ended_programs:
            write_program_ends(self._folder, [*self._ended_programs, *ends])

    def end(self) -> list[str]:
        """End every program: SIGTERM, then SIGKILL. Return why the test must fail: services that raised."""
        programs, self._programs = list(self._programs.values()), {}
        self.controls.clear()
        return [text for program in programs for text in program.close()]
