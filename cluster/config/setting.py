"""One setting: its name, type, bounds and default, and how a value of it is read.

What may fail: ConfigError for a value that does not fit, or that no broker implements.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import Enum

from ..errors import ConfigError

Value = bool | int | float | str
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
SEGMENT_BYTES_LEAST = 1_048_576
"""Least `segment.bytes`, as in Kafka."""
_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(r"([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)[fFdD]?")  # of Java; without NaN


class Change(Enum):
    """How a running broker gets another value of a setting."""

    RESTART = "restart"
    CLUSTER = "cluster"
    """For one broker or for all brokers."""
    BROKER = "broker"
    """For one broker only."""
    LISTENER = "listener"
    """For one listener of one broker only: `listener.name.NAME.` and the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table. The type of the default is the type of the setting."""

    name: str
    default: Value
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    topic: str = ""
    """The topic-level name; "" where topics cannot override the setting."""
    only_default: str = ""
    """Why brokers implement no value other than the default; any other value is then refused."""
    stored: str = ""
    """Why the setting is stored and described, but changes nothing; "" for a setting that brokers read."""
    pattern: str = ""
    """What the text of a value matches; "" where type, bounds and choices say everything."""
    kind: str = ""
    """Kafka's type where the default does not show it: `list`, `short`, `class` or `password`."""
    unset: bool = False
    """Kafka describes the setting as null while nothing sets it; `default` is what brokers then use."""
    change: Change = Change.RESTART
    """How a running broker gets another value; settings that topics override change at run time in any case."""
    internal: bool = False
    """Described only where it is set, as Kafka's internal settings."""

    @property
    def is_dynamic(self) -> bool:
        """True for a setting that a running broker can change (KIP-226)."""
        return bool(self.topic) or self.change is not Change.RESTART

    def parse(self, raw: object) -> Value:
        """Return `raw` as this setting's type; ConfigError names the setting, the value and the remedy."""
        text = str(raw).strip()
        if self.kind == "list":
            text = self._parse_list(text)
        if self.pattern and re.fullmatch(self.pattern, text) is None:
            raise ConfigError(f"{self.name}={text!r}: expected text that matches {self.pattern}")
        value = self._parse(text)
        if self.only_default and value != self.default:
            raise self.not_implemented(raw, self.only_default)
        return value

    def _parse_list(self, text: str) -> str:
        """The elements without blanks; of a list with choices each element once, and none may be empty."""
        elements = [element.strip() for element in text.split(",")] if text else []
        if self.choices:
            elements = list(dict.fromkeys(elements))
        if self.choices and "" in elements:
            raise ConfigError(f"{self.name}={text!r}: an element of the list is empty; remove it")
        return ",".join(elements)

    def not_implemented(self, raw: object, reason: str) -> ConfigError:
        """The error for a value that no broker implements."""
        usual = str(self.default).lower() if isinstance(self.default, bool) else self.default
        return ConfigError(
            f"{self.name}={raw}: Harrow's brokers do not implement it ({reason}); "
            f"remove the setting, or set it to {usual}"
        )

    def _parse(self, text: str) -> Value:
        if isinstance(self.default, bool):
            if text.lower() not in ("true", "false"):
                raise ConfigError(f"{self.name}={text!r}: expected true or false")
            return text.lower() == "true"
        if isinstance(self.default, int):
            return self._parse_int(text)
        if isinstance(self.default, float):
            return self._parse_float(text)
        elements = text.split(",") if self.kind == "list" and text else [text]
        allowed = (*self.choices, "") if self.kind == "list" else self.choices
        if self.choices and any(element not in allowed for element in elements):
            raise ConfigError(f"{self.name}={text!r}: expected one of {', '.join(self.choices)}")
        return text

    def _parse_float(self, text: str) -> float:
        found = _FLOAT.fullmatch(text)
        if found is None:
            raise ConfigError(f"{self.name}={text!r}: expected a number")
        return self._within(float(found[1]))

    def _parse_int(self, text: str) -> int:
        if _INTEGER.fullmatch(text) is None:
            raise ConfigError(f"{self.name}={text!r}: expected a whole number")
        return int(self._within(int(text)))

    def _within(self, number: float) -> float:
        most = sys.float_info.max if isinstance(self.default, float) else LONG_MAX
        low = -most if self.low is None else self.low
        high = most if self.high is None else self.high
        if not low <= number <= high:
            raise ConfigError(f"{self.name}={number}: expected a number from {low} to {high}{self._remedy()}")
        return number

    def _remedy(self) -> str:
        if self.low != SEGMENT_BYTES_LEAST:
            return ""
        return "; for smaller segments, as in a test, set internal.segment.bytes"


def share_setting(name: str, default: float, doc: str, topic: str = "", *, change: Change = Change.RESTART) -> Setting:
    """A number from 0 to 1."""
    return Setting(name=name, default=default, doc=doc, low=0, high=1, topic=topic, change=change)


def int_setting(
    name: str,
    default: int,
    doc: str,
    low: int = 0,
    high: int = INT_MAX,
    topic: str = "",
    *,
    change: Change = Change.RESTART,
) -> Setting:
    """A whole number of 32 bits."""
    return Setting(name=name, default=default, doc=doc, low=low, high=high, topic=topic, change=change)


def long_setting(
    name: str, default: int, doc: str, low: int = -1, topic: str = "", *, change: Change = Change.RESTART
) -> Setting:
    """A whole number of 64 bits."""
    return Setting(name=name, default=default, doc=doc, low=low, high=LONG_MAX, topic=topic, change=change)


def bool_setting(name: str, default: bool, doc: str, topic: str = "", *, change: Change = Change.RESTART) -> Setting:
    """A switch."""
    return Setting(name=name, default=default, doc=doc, topic=topic, change=change)


def text_setting(name: str, default: str, doc: str, choices: tuple[str, ...] = (), topic: str = "") -> Setting:
    """A text, or one of `choices`."""
    return Setting(name=name, default=default, doc=doc, choices=choices, topic=topic)
