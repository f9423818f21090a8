"""Every public callable refuses an argument of a wrong type: which callable, which parameter, what is expected (J1)."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import harrow
import harrow.faults
import pytest
from harrow import HarrowError
from harrow.cluster.argument_types import check_fields, checked, joined
from harrow.cluster.errors import ConfigError
from harrow.faults.process_faults import Kill
from harrow.harness.programs.user_program import Program
from harrow.harness.run.recording import AIOKafkaClients, KafkaPythonClients


class Wrong:
    def __repr__(self) -> str:
        return "<wrong>"


WRONG = Wrong()
VALID: dict[str, Any] = {
    "target": harrow.one,
    "peer": harrow.controller(),
    "topic": "orders",
    "group": "billing",
    "client": "shop",
    "transactional_id": "shop",
    "operation": "fsync",
    "damage": None,
    "name": "orders",
    "label": "reached",
    "main": len,
    "node_id": 1,
    "f": len,
    "seconds": 1.0,
    "query": "select 1",
    "path": "out",
    "hooks": None,
    "url_or_connection": "a.db",
    "step": "1",
    "partition": 0,
    "count": 1,
    "command": ["true"],
    "kinds": ("kill",),
    "source": "orders",
    "sink": "bills",
    "user": "alice",
    "folder": "out",
    "call": len,
    "anomaly": "a",
    "explanation": "b",
    "singular": "c",
    "plural": "d",
    "topics": "orders",
    "text": "ready",
    "timeout_s": 1.0,
    "what": "it",
    "lacking": len,
    "error": ValueError(),
    "process": None,
    "open_client": len,
    "op": "state",
    "address": "127.0.0.1:6379",
    "api": "Produce",
    "reason": "x",
    "condition": None,
    "since_ns": 1,
    "timeout": 1.0,
    "most": 10,
}
"""An argument that is accepted, for each parameter that has no default."""
ANYTHING = {
    "add_extension.hooks",
    "table.url_or_connection",
    "folded.initial",
    "verify_pipeline.sink",
    "Harrow.clusters",
    "Program.process",
    "start.args",
}
"""Parameters that take anything, or what only Harrow itself gives."""
OWN_CLASSES = (
    harrow.Harrow,
    harrow.Cluster,
    harrow.Topic,
    harrow.Finding,
    harrow.AnomalyKind,
    Program,
    KafkaPythonClients,
    AIOKafkaClients,
)
MADE_BY_HARROW = {"HarrowExamples", "Record", "Window", "Verdict"}
"""Classes whose values Harrow makes, as it does errors; `Record` for each record of a topic."""
SUBCLASSED = {"KeyedRelation", "RecordRelation", "RecordCheck"}
"""Their methods are called by Harrow, for each record."""
CHECKED_BY_FIELDS = {"Security"}
"""`unit/security/test_security_choice.py` has their wrong values."""
CHECKED_BY_OPTIONS = {"harrow_fixture", "harrow_session_fixture"}
EVENTS = ("began", "took_effect", "healed", "new_leader", "isr_count")


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Each with the name that an error gives it."""
    for name in harrow.__all__:
        value = getattr(harrow, name)
        if inspect.isfunction(value) and name not in CHECKED_BY_OPTIONS:
            yield name, value
        elif isinstance(value, type) and value not in OWN_CLASSES:
            assert name in MADE_BY_HARROW | SUBCLASSED | CHECKED_BY_FIELDS or issubclass(value, HarrowError)
    for name in EVENTS:
        yield name, getattr(harrow.faults, name)
    for cls in OWN_CLASSES:
        yield cls.__name__, vars(cls)["__init__"]
        for name in dir(cls):
            method = inspect.getattr_static(cls, name)
            if not name.startswith("_") and inspect.isfunction(method):
                yield name, method


def parameters() -> Iterator[tuple[str, Callable[..., Any], inspect.Parameter]]:
    for name, function in public_callables():
        for row in inspect.signature(function).parameters.values():
            if row.name != "self" and row.kind is not inspect.Parameter.VAR_KEYWORD:
                yield name, function, row


def call_with(function: Callable[..., Any], wrong: inspect.Parameter) -> None:
    """Call it with `WRONG` for one parameter, and with what is accepted for the others that it needs."""
    several = wrong.kind is inspect.Parameter.VAR_POSITIONAL
    rows = [row for row in inspect.signature(function).parameters.values() if row.name != "self"]
    needed = {
        row.name: VALID[row.name]
        for row in rows
        if row.default is row.empty and row.kind not in (row.VAR_POSITIONAL, row.VAR_KEYWORD)
    }
    given = [None] if "self" in inspect.signature(function).parameters else []  # checked before it is used
    if several:
        before = [needed.pop(row.name) for row in rows if row.kind is row.POSITIONAL_OR_KEYWORD and row.name in needed]
        function(*given, *before, WRONG, **needed)
    else:
        function(*given, **{**needed, wrong.name: WRONG})


def test_each_parameter_of_each_public_callable_refuses_a_wrong_type() -> None:
    failures: list[str] = []
    seen: set[str] = set()
    for name, function, row in parameters():
        label = f"{name}.{row.name}"
        seen.add(label)
        if label in ANYTHING:
            continue
        try:
            call_with(function, row)
        except HarrowError as error:
            text = str(error)
            if not text.startswith(f"{name}({row.name}") or "<wrong>" not in text:
                failures.append(f"{label}: {text}")
            if "): expected " not in text:
                failures.append(f"{label} does not say what is expected: {text}")
        except Exception as error:
            failures.append(f"{label}: {error!r}")
        else:
            failures.append(f"{label}: accepted")
    assert not failures, "\n".join(failures)
    assert len(seen) > 250
    assert seen >= ANYTHING


REFUSED: dict[str, Callable[[], object]] = {
    "topic(partitions='3'): expected a whole number; write partitions=3": lambda: made().topic("z", partitions="3"),
    "topic(name=5): expected a text": lambda: made().topic(5),
    "topic(): got an unexpected keyword argument 'partition'; did you mean partitions=?": lambda: made().topic(
        "z", partition=3
    ),
    "chaos(duration='10'): expected a number or None; write duration=10": lambda: made().chaos(duration="10"),
    "chaos(duration=nan): expected a number or None; it must be finite": lambda: made().chaos(duration=float("nan")),
    "chaos(faults[0]=kill): expected a fault such as kill(leader('orders')); kill is a function: write kill(…)": (
        lambda: made().chaos(harrow.kill)
    ),
    "chaos(schedule='schedule.json'): expected a schedule, which Schedule.from_json(TEXT) makes of the text of a file "
    "or None": lambda: made().chaos(schedule="schedule.json"),
    "chaos(kinds='kill'): expected a list of texts, a mapping or None; write kinds=['kill']": lambda: made().chaos(
        kinds="kill"
    ),
    "chaos(kinds['kill']='3'): expected a whole number; write kinds['kill']=3": lambda: made().chaos(
        kinds={"kill": "3"}
    ),
    "verify(guarantee=['no-loss']): expected a text such as 'no-loss' or 'exactly-once,ordered' or None; write "
    "guarantee='no-loss'": lambda: made().verify(guarantee=["no-loss"]),
    "program(command='billing --fast'): expected a list of texts; write command=['billing --fast']": (
        lambda: made().program("billing", "billing --fast")
    ),
    "program(command[1]=1): expected a text": lambda: made().program("billing", ["billing", 1]),
    "lose_response(nth=leader('t')): expected a whole number; target= takes it": lambda: harrow.lose_response(
        "Produce", wrong(harrow.leader("t"))
    ),
    "kill(target=leader): expected a target such as leader('orders') or one or a whole number; leader is a function: "
    "write leader(…)": lambda: harrow.kill(wrong(harrow.leader)),
    "kill(seconds=(1, '5')): expected a number, a (least, most) pair of numbers or None": lambda: harrow.kill(
        harrow.one, seconds=wrong((1, "5"))
    ),
    "kill(target=True): expected a target such as leader('orders') or one or a whole number": lambda: harrow.kill(True),
    "leader(topic=5): expected a topic or its name": lambda: harrow.leader(wrong(5)),
    "isolate(clients=1): expected True or False": lambda: harrow.isolate(harrow.one, clients=wrong(1)),
    "mapped(f='f'): expected a function": lambda: harrow.mapped(wrong("f")),
}


def made() -> Any:
    """A Harrow that was not even constructed: arguments are checked before anything else."""
    return object.__new__(harrow.Harrow)


def wrong(value: object) -> Any:
    return value


@pytest.mark.parametrize("message", REFUSED)
def test_an_argument_of_a_wrong_type_is_named_with_the_remedy(message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        REFUSED[message]()
    assert str(caught.value) == message


@pytest.mark.parametrize("factory", [harrow.harrow_fixture, harrow.harrow_session_fixture])
def test_each_argument_of_a_fixture_factory_refuses_a_wrong_type(factory: Any) -> None:
    for name in inspect.signature(factory).parameters:
        with pytest.raises(pytest.UsageError, match=f"{factory.__name__}: {name}=.*wrong.*expected"):
            factory(**{name: WRONG})


def test_what_an_annotation_describes_is_accepted() -> None:
    @checked
    def place(
        names: Sequence[str], pair: float | tuple[float, float], where: str | Path, *more: int, **rest: object
    ) -> tuple[object, ...]:
        return names, pair, where, more, rest

    assert place(["a"], 1, "b", 1, 2, x="y") == (["a"], 1, "b", (1, 2), {"x": "y"})
    assert place(("a",), [1, 2.5], Path("b")) == (("a",), [1, 2.5], Path("b"), (), {})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - JSON has no tuple
    assert str(inspect.signature(place)).startswith("(names: 'Sequence[str]'")
    assert joined(["a", "b", "a", "c"]) == "a, b or c"


def test_the_fields_of_a_fault_are_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"restart\(kill='yes'\): expected True or False"):
        harrow.faults.fault_from_json({"name": "restart", "target": {"role": "one"}, "kill": "yes"})
    check_fields(Kill(target=harrow.one), "kill")
    fault = dataclasses.replace(Kill(target=harrow.one))
    object.__setattr__(fault, "seconds", "1")
    with pytest.raises(ConfigError, match=r"kill\(seconds='1'\): expected a number"):
        check_fields(fault, "kill")
