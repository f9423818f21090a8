r"""The principal of a client certificate: its subject as Java writes it, and `ssl.principal.mapping.rules`.

    subject_of(der)                                          'CN=alice,OU=Shop,O=Example,C=DE'
    PrincipalNames("RULE:^CN=(.*?),.*$/$1/L,DEFAULT").name_of('CN=Alice,OU=Shop')   'alice'

`subject_of` is RFC 2253 as in Java's X500Principal.getName: the last attribute first, nine types under their names and
the others by number with their value in hexadecimal, special characters behind a backslash.

A rule applies to a name that its pattern matches as a whole; the first that applies counts. `L` and `U` change the
case of the result; `DEFAULT` is the name itself.

What may fail: ConfigError for rules that cannot be read; WireError for a name to which no rule applies: its connection
is closed, as in Kafka. Certificates are those that TLS has verified. Source: Kafka's `SslPrincipalMapper`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import ConfigError, WireError

_EXPLICIT_0 = 0xA0
_NAMES = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("0992268993f22c640119"): "DC",
    bytes.fromhex("0992268993f22c640101"): "UID",
}
_TEXTS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
"""Tags of strings: UTF8, Printable, T61, IA5, General, Universal, BMP."""
_ESCAPED = re.compile(r'([,=+<>#;"\\])')
_RULE = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_BACK_REFERENCE = re.compile(r"\\(.)|\$(\d)|\\$", re.DOTALL)


class _Value(NamedTuple):
    """One value of DER: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """The subject of a verified certificate (DER)."""
    (outer,) = _values(certificate)
    fields = list(_values(next(_values(outer.content)).content))
    # version (explicit), serial number, algorithm, issuer, validity, subject
    subject = fields[5 if fields[0].tag == _EXPLICIT_0 else 4]
    return ",".join(_relative_name(row) for row in reversed(list(_values(subject.content))))


def _relative_name(row: _Value) -> str:
    return "+".join(_attribute(*_values(attribute.content)) for attribute in _values(row.content))


def _attribute(kind: _Value, value: _Value) -> str:
    name = _NAMES.get(kind.content)
    if name is None or value.tag not in _TEXTS:
        return f"{name or _dotted(kind.content)}=#{value.whole.hex()}"
    return f"{name}={_escaped(value.content.decode(_TEXTS[value.tag]))}"


def _escaped(text: str) -> str:
    text = _ESCAPED.sub(r"\\\1", text).replace("\0", r"\00")
    inner = text.strip(" ")
    lead = len(text) - len(text.lstrip(" "))
    return "\\ " * lead + inner + "\\ " * (len(text) - len(inner) - lead)


def _dotted(content: bytes) -> str:
    first, *rest = content
    numbers, number = [str(min(first // 40, 2)), str(first - 40 * min(first // 40, 2))], 0
    for byte in rest:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(str(number))
            number = 0
    return ".".join(numbers)


def _values(data: bytes) -> Iterator[_Value]:
    at = 0
    while at < len(data):
        begin, tag, size = at, data[at], data[at + 1]
        at += 2
        if size > 0x80:
            digits = size & 0x7F
            size = int.from_bytes(data[at : at + digits])
            at += digits
        yield _Value(tag, data[at : at + size], data[begin : at + size])
        at += size


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        text = self.pattern.sub(self._replaced, name)
        return {"L": text.lower(), "U": text.upper()}.get(self.case, text)

    def _replaced(self, found: re.Match[str]) -> str:
        def text(mark: re.Match[str]) -> str:
            if mark[2] is None:
                return mark[1] or ""
            number = int(mark[2])
            return found[number] or "" if number <= found.re.groups else mark[0]

        return _BACK_REFERENCE.sub(text, self.replacement)


class PrincipalNames:
    """`ssl.principal.mapping.rules`, read once."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        self._text = rules
        self._rules = tuple(_parsed(rules))

    def name_of(self, subject: str) -> str:
        """The name that the first rule gives that applies; WireError where none applies."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise WireError(f"no rule of ssl.principal.mapping.rules ({self._text}) applies to {subject}")


def _parsed(rules: str) -> Iterator[_Rule]:
    at, text = 0, rules.strip()
    while at < len(text):
        found = _RULE.match(text, at)
        end = None if found is None else re.compile(r"\s*(?:[,\n]\s*|$)").match(text, found.end())
        if found is None or end is None:
            raise ConfigError(
                f"ssl.principal.mapping.rules={rules!r}: {text[at:]!r} is not RULE:pattern/replacement/[LU] or DEFAULT"
            )
        try:
            yield _Rule(None) if found[1] else _Rule(re.compile(found[2]), found[3], found[4])
        except re.error as error:
            raise ConfigError(f"ssl.principal.mapping.rules={rules!r}: {found[2]!r} is no pattern: {error}") from error
        at = end.end()
