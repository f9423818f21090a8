"""What the caller of `verify_pipeline` says of retry topics and dead letters (L5): `RetryPromise`, and their headers.

The flow that is judged. An input that fails goes to a retry topic, and is tried again when it is due; after so many
attempts it goes to the dead letters. Two layouts of retry topics, which need no setting:

* a delay topic and a topic of what is due, `("orders-delay", "orders-retry")`: a scheduler sends each record from the
  first to the second at its due time;
* a topic for each delay, `("orders-retry-1s", "orders-retry-1m")`: its consumer waits until the record is due.

A record of a retry topic says in its headers how many attempts were made and when the next one is due. A header is
decimal text, or a big-endian integer of 1 to 8 bytes, as Spring Kafka writes it. Spring counts the attempt that is
next: its first record in a retry topic has the number 2 (`attempt_rules.py`).

May fail: ConfigError for a wrong argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import ConfigError

if TYPE_CHECKING:
    from ..topics import Topic

ATTEMPTS_HEADER = "retry_topic-attempts"
DUE_HEADER = "retry_topic-backoff-timestamp"
REASON_HEADERS = ("kafka_exception-message", "kafka_dlt-exception-message", "__connect.errors.exception.message")
"""In which a dead letter has its reason: headers of Spring Kafka's retry topics and dead letters, of Kafka Connect."""
Headers = Iterable[tuple[str, bytes | None]]
INTEGER_BYTES_MOST = 8
DUE_TOLERANCE_MS = 50
"""An attempt may be so much earlier than its due time: two clocks of one machine, and times in whole milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPromise:
    """What the caller said of retries, checked. Picklable: Spark's tasks use it."""

    topics: tuple[str, ...] = ()
    """The retry topics, in the order of the flow."""
    dead_letters: str | None = None
    attempts: int | None = None
    """How many attempts an input has, the first one included."""
    attempts_header: str = ATTEMPTS_HEADER
    due_header: str = DUE_HEADER
    once: bool = False
    """Whether the guarantee forbids duplicates, so that records count attempts where no header does."""
    tolerance_ms: int = DUE_TOLERANCE_MS

    @classmethod
    def of(
        cls,
        *,
        retry_topics: Topic | str | Iterable[Topic | str] = (),
        dead_letters: Topic | str | None = None,
        attempts: int | None = None,
        attempts_header: str = ATTEMPTS_HEADER,
        due_header: str = DUE_HEADER,
        once: bool = False,
    ) -> RetryPromise:
        """Return the promise. Raises ConfigError for a wrong argument."""
        promise = cls(
            topics=_names(retry_topics),
            dead_letters=_name(dead_letters),
            attempts=attempts,
            attempts_header=attempts_header,
            due_header=due_header,
            once=once,
        )
        promise._check()
        return promise

    def __bool__(self) -> bool:
        return bool(self.all_topics)

    @property
    def all_topics(self) -> list[str]:
        """The retry topics and the topic of the dead letters."""
        return [*self.topics, *([self.dead_letters] if self.dead_letters else [])]

    def check_topics(self, source: str, sink: str | None) -> None:
        """Raise ConfigError where a topic has two roles."""
        for name, topics in (("retry_topics", self.topics), ("dead_letters", self.all_topics)):
            twice = sorted({source, sink} & set(topics), key=str)
            if twice:
                role = "source" if twice[0] == source else "sink"
                raise ConfigError(
                    f"verify_pipeline({name}=…): {twice[0]} is the {role}; give the topic of its own that the job "
                    f"has for {'retries' if name == 'retry_topics' else 'dead letters'}"
                )
        if self.dead_letters in self.topics:
            raise ConfigError(
                f"verify_pipeline(dead_letters={self.dead_letters!r}): this topic is in retry_topics=, too; a dead "
                "letter is not tried again, so it needs a topic of its own"
            )

    def attempts_of(self, headers: Headers) -> int | None:
        """Return the number of attempts that the headers of a record say; None where they say none."""
        return number_of(headers, self.attempts_header)

    def due_ms_of(self, headers: Headers) -> int | None:
        """Return when the next attempt is due, in milliseconds since 1970; None where the headers do not say it."""
        return number_of(headers, self.due_header)

    def _check(self) -> None:
        for name, header, default in (
            ("attempts_header", self.attempts_header, ATTEMPTS_HEADER),
            ("due_header", self.due_header, DUE_HEADER),
        ):
            if not isinstance(header, str) or not header:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(
                    f"verify_pipeline({name}={header!r:.80}): expected the name of a header, such as {default!r}"
                )
            if header != default and not self.topics:
                raise ConfigError(
                    f"verify_pipeline({name}={header!r}) needs retry_topics=, the topics whose records have this header"
                )
        attempts: Any = self.attempts
        if attempts is None:
            return
        if type(attempts) is not int or attempts < 1:
            raise ConfigError(
                f"verify_pipeline(attempts={attempts!r:.80}): expected a whole number of at least 1: how often the job "
                "tries an input, the first attempt included"
            )
        if not self:
            raise ConfigError(
                f"verify_pipeline(attempts={attempts}) needs retry_topics= or dead_letters=, by whose records attempts "
                "are counted"
            )


def number_of(headers: Headers, name: str) -> int | None:
    """Return the integer in the last header of this name; None where there is none, or where it has no integer.

    Decimal digits are text; else it is a big-endian integer of at most 8 bytes with a sign, as Java writes it.
    """
    value = last_header(headers, name)
    if not value:
        return None
    if value.isdigit() or (value[:1] == b"-" and value[1:].isdigit()):
        return int(value) if len(value) <= 20 else None
    return int.from_bytes(value, "big", signed=True) if len(value) <= INTEGER_BYTES_MOST else None


def reason_of(headers: Headers) -> bytes:
    """Return the reason of a dead letter; empty where its headers have none."""
    given = {name: value for name, value in headers if value}
    return next((value for name in REASON_HEADERS if (value := given.get(name, b"").strip())), b"")


def last_header(headers: Headers, name: str) -> bytes | None:
    """Return the value of the last header of this name, which in Kafka is the one that counts."""
    found: Mapping[str, bytes | None] = dict(headers)
    return found.get(name)


def _name(given: Topic | str | None) -> str | None:
    from ..topics import Topic

    if given is None:
        return None
    if not isinstance(given, (str, Topic)) or not str(given):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"verify_pipeline(dead_letters={given!r:.80}): expected one topic, in which the job keeps the inputs that "
            "it does not try again"
        )
    return str(given)


def _names(given: Topic | str | Iterable[Topic | str]) -> tuple[str, ...]:
    from ..topics import (
        Topic,  # not at the top: Spark's tasks import this module, and need no clients
    )

    topics: tuple[Any, ...] = ()
    if isinstance(given, (str, Topic)):
        topics = (given,)
    elif isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        topics = tuple(given)
    else:
        topics = (None,)
    if not all(isinstance(topic, (str, Topic)) and str(topic) for topic in topics):
        raise ConfigError(f"verify_pipeline(retry_topics={given!r:.80}): expected topics")
    names = tuple(map(str, topics))
    if len(set(names)) < len(names):
        raise ConfigError(f"verify_pipeline(retry_topics={given!r:.80}): a topic is there twice; give each topic once")
    return names
