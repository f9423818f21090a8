"""JAAS entries: what `sasl.jaas.config` says, as Java's login modules read it.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="x" user_alice="y";

Owns: `JaasEntry`, `parse_jaas`, `jaas_text`. May fail: ConfigError with Kafka's text.
Source: Kafka's JaasConfig, JaasContext.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ConfigError

__all__ = ["JaasEntry", "jaas_text", "parse_jaas"]

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<number>[0-9.]+(?![\w$-]))|(?P<word>[\w.$\-\u00a0-\u00ff]+)|(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPED = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = frozenset(("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"))


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module and its options."""

    module: str
    options: Mapping[str, str]

    def users(self) -> dict[str, str]:
        """The passwords of `user_NAME="password"`, by name."""
        return {name[5:]: text for name, text in self.options.items() if name.startswith("user_")}


def parse_jaas(setting: str, text: str) -> JaasEntry:
    """Return the only entry of `text`; ConfigError names `setting` and the fault, and never a password."""
    tokens = [(kind, token) for kind, token in _tokens(text) if kind != "space"]
    if not tokens:
        raise ConfigError(f"{setting}: Login module not specified in JAAS config")
    if len(tokens) < 2:
        raise ConfigError(f"{setting}: Login module control flag not specified in JAAS config")
    module, flag = tokens[0][1], tokens[1][1]
    if flag.upper() not in _FLAGS:
        raise ConfigError(f"{setting}: Invalid login module control flag in JAAS config; write required")
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != ("other", ";"):
        key, equals, value = ([*tokens[at:], ("", ""), ("", "")])[:3]
        if equals != ("other", "=") or value[0] not in ("word", "quoted"):
            raise ConfigError(f"{setting}: Value not specified for key '{key[1]}' in JAAS config; write it in quotes")
        options[key[1]] = value[1]
        at += 3
    if at >= len(tokens):
        raise ConfigError(f"{setting}: JAAS config entry not terminated by semi-colon")
    if at + 1 < len(tokens):
        raise ConfigError(f"{setting}: JAAS config has several login modules; Kafka allows one")
    return JaasEntry(module, options)


def jaas_text(module: str, options: Mapping[str, str]) -> str:
    """Return the text of an entry."""
    quoted = (f'{name}="{_escaped(value)}"' for name, value in options.items())
    return " ".join((module, "required", *quoted)) + ";"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup or "space", match[0]
        if kind == "quoted":
            token = _ESCAPED.sub(_unescaped, token[1:-1])
        found.append((kind, token))
    return found


def _unescaped(match: re.Match[str]) -> str:
    text = match[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _ESCAPES.get(text, text)
