"""One setting: its name, type, bounds and default, and how a value of it is read.

What may fail: ConfigError for a value that does not fit, or that no broker implements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import ConfigError

Value = bool | int | float | str
LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table. The type of the default is the type of the setting."""

    name: str
    default: Value
    doc: str
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    topic: str = ""
    """The topic-level name; "" where topics cannot override the setting."""
    only_default: str = ""
    """Why brokers implement no value other than the default; any other value is then refused."""
    stored: str = ""
    """Why the setting is stored and described, but changes nothing; "" for a setting that brokers read."""
    pattern: str = ""
    """What the text of a value matches; "" where type, bounds and choices say everything."""

    def parse(self, raw: object) -> Value:
        """Return `raw` as this setting's type; ConfigError names the setting, the value and the remedy."""
        text = str(raw).strip()
        if self.pattern and re.fullmatch(self.pattern, text) is None:
            raise ConfigError(f"{self.name}={text!r}: expected text that matches {self.pattern}")
        value = self._parse(text)
        if self.only_default and value != self.default:
            raise self.not_implemented(raw, self.only_default)
        return value

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
            return self._parse_share(text)
        if self.choices and text not in self.choices:
            raise ConfigError(f"{self.name}={text!r}: expected one of {', '.join(self.choices)}")
        return text

    def _parse_share(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not 0.0 <= number <= 1.0:
            raise ConfigError(f"{self.name}={text!r}: expected a number from 0 to 1")
        return number

    def _parse_int(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ConfigError(f"{self.name}={text!r}: expected a whole number") from None
        low = -(2**63) if self.low is None else self.low
        high = LONG_MAX if self.high is None else self.high
        if not low <= number <= high:
            raise ConfigError(f"{self.name}={number}: expected a number from {low} to {high}")
        return number


def share_setting(name: str, default: float, doc: str, topic: str = "") -> Setting:
    """A number from 0 to 1."""
    return Setting(name=name, default=default, doc=doc, topic=topic)


def int_setting(
    name: str, default: int, doc: str, low: int = 0, high: int = INT_MAX, topic: str = ""
) -> Setting:
    """A whole number of 32 bits."""
    return Setting(name=name, default=default, doc=doc, low=low, high=high, topic=topic)


def long_setting(name: str, default: int, doc: str, low: int = -1, topic: str = "") -> Setting:
    """A whole number of 64 bits."""
    return Setting(name=name, default=default, doc=doc, low=low, high=LONG_MAX, topic=topic)


def bool_setting(name: str, default: bool, doc: str, topic: str = "") -> Setting:
    """A switch."""
    return Setting(name=name, default=default, doc=doc, topic=topic)


def text_setting(
    name: str, default: str, doc: str, choices: tuple[str, ...] = (), topic: str = ""
) -> Setting:
    """A text, or one of `choices`."""
    return Setting(name=name, default=default, doc=doc, choices=choices, topic=topic)
