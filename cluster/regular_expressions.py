r"""Regular expressions in requests of clients: the syntax and the linear time of RE2, as in Apache Kafka.

Owns: how the brokers compile an expression. It has no look-around and no backreferences, and a match takes linear time
whatever a client sends. An expression that RE2 cannot read is refused with INVALID_REGULAR_EXPRESSION, and so is `\C`
(a single byte), which RE2 has and RE2/J has not.

Source: KIP-848 (subscriptions of consumer groups), KIP-1152 (ListTransactions); both use com.google.re2j in Kafka.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import re2

from .errors import ErrorCode, KafkaError

_RE2: Any = re2  # which has no types
_OPTIONS: Any = _RE2.Options()
_OPTIONS.log_errors = False
_ESCAPES = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)
"""Quotations, and each escape sequence outside of them."""


class Pattern(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str, /) -> object | None:
        """None unless the whole text matches."""
        ...


def compile_regex(regex: str, field: str) -> Pattern:
    """The compiled expression; KafkaError(INVALID_REGULAR_EXPRESSION), which names the field of the request."""
    if r"\C" in _ESCAPES.findall(regex):
        raise _invalid(regex, field, "invalid escape sequence: `\\C`")
    try:
        pattern: Pattern = _RE2.compile(regex, options=_OPTIONS)
    except _RE2.error as error:
        problem = error.args[0] if error.args else ""
        text = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
        raise _invalid(regex, field, text) from None
    return pattern


def _invalid(regex: str, field: str, problem: str) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_regular_expression, f"{field} `{regex}` is not a valid regular expression: {problem}."
    )
