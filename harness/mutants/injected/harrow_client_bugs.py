"""Bugs that are put into Python clients of Kafka when they are imported: aiokafka, confluent-kafka and kafka-python.

    early-commit   what a consumer returns is committed before the caller has it
    no-flush       flush() does nothing
    lost-error     a delivery that failed counts as sent

Owns: `install`, and for each client the places where a bug goes. A client that is imported already is changed at once.
When a bug acts for the first time in a process, a row goes into the file that `HARROW_MUTANT_ROWS` names. The
file has the standard library alone, for services that do not have Harrow installed.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.abc
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

EARLY_COMMIT, NO_FLUSH, LOST_ERROR = "early-commit", "no-flush", "lost-error"
BUGS = (EARLY_COMMIT, NO_FLUSH, LOST_ERROR)
Change = Callable[[Any, str], None]


def install(bug: str) -> None:
    """Put a bug into each client, now or when it is imported; nothing for a mutant that is not inside of a client."""
    if bug not in BUGS:
        return
    waiting: dict[str, Change] = {}
    for name, change in CLIENTS.items():
        if name in sys.modules:
            change(sys.modules[name], bug)
        else:
            waiting[name] = change
    if waiting:
        sys.meta_path.insert(0, _Finder(bug, waiting))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the clients as Python does, and changes each after its import."""

    def __init__(self, bug: str, waiting: dict[str, Change]) -> None:
        self._bug, self._waiting = bug, waiting

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a client, and let it be changed; None for other modules."""
        change = self._waiting.get(fullname)
        spec = None if change is None else PathFinder.find_spec(fullname, path, target)
        if change is None or spec is None or spec.loader is None:
            return None
        del self._waiting[fullname]
        run = spec.loader.exec_module

        def run_and_change(module: ModuleType) -> None:
            run(module)
            change(module, self._bug)

        spec.loader.exec_module = run_and_change  # type: ignore[method-assign]
        return spec


_noted: list[bool] = []


def _acted() -> None:
    """Write the row of this process, once."""
    file = os.environ.get("HARROW_MUTANT_ROWS")
    if _noted or not file:
        return
    _noted.append(True)
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (json.dumps({"changed": 1}) + "\n").encode())
    finally:
        os.close(descriptor)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a method by what `make` returns for it."""
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(make(original)))


# ------------------------------------------------------------------ aiokafka


def change_aiokafka(module: Any, bug: str) -> None:
    """Put a bug into aiokafka."""
    if bug == EARLY_COMMIT:
        for name in ("getone", "getmany"):
            _replace(module.AIOKafkaConsumer, name, _commit_after_async)
    elif bug == NO_FLUSH:
        from aiokafka.producer.message_accumulator import MessageAccumulator

        _replace(MessageAccumulator, "flush", _nothing_async)
    else:
        _replace(module.AIOKafkaProducer, "send", _send_of_aiokafka)


def _commit_after_async(get: Any) -> Any:
    async def get_and_commit(self: Any, *args: Any, **options: Any) -> Any:
        found = await get(self, *args, **options)
        if found and self._group_id is not None:
            _acted()
            await self.commit()
        return found

    return get_and_commit


def _nothing_async(flush: Any) -> Any:
    del flush

    async def nothing(*args: Any, **options: Any) -> None:
        del args, options
        _acted()

    return nothing


def _send_of_aiokafka(send: Any) -> Any:
    from aiokafka.errors import KafkaError
    from aiokafka.structs import RecordMetadata, TopicPartition

    async def send_and_forget(self: Any, topic: str, *args: Any, **options: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        sent = RecordMetadata(topic, 0, TopicPartition(topic, 0), -1, -1, 0, -1)

        def answered(future: Any) -> None:
            if answer.cancelled():
                return
            if future.cancelled():
                answer.cancel()
            elif future.exception() is None:
                answer.set_result(future.result())
            else:
                _acted()
                answer.set_result(sent)

        try:
            future = await send(self, topic, *args, **options)
        except KafkaError:
            _acted()
            answer.set_result(sent)
            return answer
        future.add_done_callback(answered)
        return answer

    return send_and_forget


# ------------------------------------------------------------------ confluent-kafka


def change_confluent(module: Any, bug: str) -> None:
    """Put a bug into confluent-kafka: its classes are written in C, so that subclasses take their place."""
    if bug == EARLY_COMMIT:
        module.Consumer = _early_consumer(module)
    elif bug == NO_FLUSH:
        module.Producer = _subclass(module.Producer, flush=_no_flush)
    else:
        module.Producer = _producer_without_errors(module)


def _subclass(base: Any, **methods: Any) -> Any:
    """A subclass of a class that is written in C."""
    return type(base.__name__, (base,), methods)


def _early_consumer(module: Any) -> Any:
    base: Any = module.Consumer

    def poll(self: Any, *args: Any, **options: Any) -> Any:
        message: Any = base.poll(self, *args, **options)
        if message is not None and message.error() is None:
            commit_all(self)
        return message

    def consume(self: Any, *args: Any, **options: Any) -> Any:
        messages: Any = base.consume(self, *args, **options)
        if any(message.error() is None for message in messages):
            commit_all(self)
        return messages

    def commit_all(self: Any) -> None:
        _acted()
        places = [place for place in self.position(self.assignment()) if place.offset >= 0]
        try:
            if places:
                self.commit(offsets=places, asynchronous=False)
        except module.KafkaException:
            return  # a rebalance: the next one commits

    return _subclass(base, poll=poll, consume=consume)


def _no_flush(*args: Any, **options: Any) -> int:
    del args, options
    _acted()
    return 0


def _without_error(deliver: Callable[[Any, Any], object]) -> Callable[[Any, Any], None]:
    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            _acted()
        deliver(None, message)

    return delivered


def _producer_without_errors(module: Any) -> Any:
    base: Any = module.Producer

    def initialize(self: Any, config: Any, *args: Any, **options: Any) -> None:
        given = dict(config)
        for name in ("on_delivery", "dr_cb"):
            if callable(given.get(name)):
                given[name] = _without_error(given[name])
        base.__init__(self, given, *args, **options)

    def produce(self: Any, *args: Any, **options: Any) -> Any:
        for name in ("on_delivery", "callback"):
            deliver = options.get(name)
            if callable(deliver):
                options[name] = _without_error(deliver)
        return base.produce(self, *args, **options)

    return _subclass(base, __init__=initialize, produce=produce)


# ------------------------------------------------------------------ kafka-python


def change_kafka_python(module: Any, bug: str) -> None:
    """Put a bug into kafka-python."""
    if bug == EARLY_COMMIT:
        for name in ("poll", "__next__"):
            _replace(module.KafkaConsumer, name, _commit_after_poll)
    elif bug == NO_FLUSH:
        _replace(module.KafkaProducer, "flush", lambda flush: _no_flush)  # noqa: ARG005 - what it replaces
    else:
        from kafka.producer.future import FutureRecordMetadata

        _replace(FutureRecordMetadata, "get", _get_without_error)
        _replace(FutureRecordMetadata, "add_errback", _no_errback)


def _commit_after_poll(poll: Any) -> Any:
    def poll_and_commit(self: Any, *args: Any, **options: Any) -> Any:
        found = poll(self, *args, **options)
        if found and self.config["group_id"] is not None:
            _acted()
            self.commit()
        return found

    return poll_and_commit


def _get_without_error(get: Any) -> Any:
    from kafka.errors import KafkaError

    def get_or_forget(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return get(self, *args, **options)
        except KafkaError:
            _acted()
            return None

    return get_or_forget


def _no_errback(add_errback: Any) -> Any:
    del add_errback

    def add_nothing(self: Any, *args: Any, **options: Any) -> Any:
        del args, options
        _acted()
        return self

    return add_nothing


CLIENTS: dict[str, Change] = {
    "aiokafka": change_aiokafka,
    "confluent_kafka": change_confluent,
    "kafka": change_kafka_python,
}
