"""The evidence of a fault's probe in words: what the page shows of the JSON in `faults.jsonl`.

Owns: `evidence_text`. Each object is a fact: `{"brokers": {"2": {"state": "paused", "pid": 7}}}` is
"broker 2: state paused, pid 7". A list of objects is one fact of their values. What repeats, and what says that
something is absent (false, 0, empty), is left out. The text is bounded by whole facts, `FACTS_MOST` of them with
`ROWS_MOST` rows of a list, and says how many more are in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..histories.request_rows import api_name
from ..wording import counted

FACTS_MOST = 8
ROWS_MOST = 8
VALUE_MOST = 80
SINGULAR = {
    "brokers": "broker",
    "dependencies": "dependency",
    "links": "links of broker",
    "programs": "program",
    "request": "broker",
}
"""Names of objects whose keys are node ids, or names of dependencies or programs."""
RULE = ("api_key", "seen", "fired")
"""The fields by which an object is a rule of a broker for requests. Of such a rule the page has what it did."""
UNITS = {"_ms": " ms", "_ns": " ns", "_bytes": " bytes", "_s": " s"}
PROCESS = {"T": "stopped by a signal", "R": "running", "S": "running", "D": "running"}
"""States of a process, as Linux names them."""
Json = None | bool | int | float | str | list["Json"] | Mapping[str, "Json"]
Facts = Mapping[str, Json]


def evidence_text(evidence: Facts) -> str:
    """Return the facts in words, separated by semicolons; empty without any."""
    facts = list(dict.fromkeys(_facts(evidence)))
    hidden = len(facts) - FACTS_MOST
    more = [f"{hidden} more facts in faults.jsonl"] if hidden > 0 else []
    return "; ".join(facts[:FACTS_MOST] + more)


def _facts(value: Facts, place: str = "") -> Iterator[str]:
    plain: list[str] = []
    nested: list[tuple[str, list[Json] | Facts]] = []
    for name, given in value.items():
        if isinstance(given, (Mapping, list)):
            nested.append((name, given))
        elif given not in (None, False, 0, "") or name == "exit_code":
            plain.append(_fact(name, given))
    if plain:
        yield f"{place}: {', '.join(plain)}" if place else ", ".join(plain)
    for name, below in nested:
        yield from _nested(name, below, place)


def _nested(name: str, given: list[Json] | Facts, place: str) -> Iterator[str]:
    below = f"{place}, {_words(name)}" if place else _words(name)
    if isinstance(given, list):
        rows = list(dict.fromkeys(text for entry in given if (text := _row(entry))))
        hidden = len(rows) - ROWS_MOST
        rows = rows[:ROWS_MOST] + ([f"{hidden} more"] if hidden > 0 else [])
        if rows:
            yield f"{below}: {', '.join(rows)}"
        return
    if name in SINGULAR:
        for key, row in given.items():
            where = f"{SINGULAR[name]} {key}"
            facts: Facts = row if isinstance(row, Mapping) else {"": row}
            if all(field in facts for field in RULE):
                yield f"{where}: {_rule(facts)}"
            else:
                yield from _facts(facts, where)
        return
    yield from _facts(given, below)


def _rule(rule: Facts) -> str:
    """Return which requests a rule of a broker waited for, and how many it hit."""
    client = rule.get("client") or "*"
    of = "" if client == "*" else f" of {client}"
    seen = counted(int(str(rule["seen"])), "request")
    return f"{api_name(int(str(rule['api_key'])))}{of}: {seen} seen, {rule['fired']} hit"


def _row(row: Json) -> str:
    """Return an entry of a list: of an object the texts without their names, and the rest with them."""
    if not isinstance(row, Mapping):
        return _short(row)
    return " ".join(
        _short(value) if isinstance(value, str) else _fact(name, value)
        for name, value in row.items()
        if value and not isinstance(value, (Mapping, list))
    )


def _fact(name: str, value: Json) -> str:
    if name == "process" and isinstance(value, str) and value in PROCESS:
        return PROCESS[value]
    text = _short(value)
    if value is True:
        return _words(name)
    for suffix, unit in UNITS.items():
        if name.endswith(suffix):
            return f"{_words(name.removesuffix(suffix))} {text}{unit}"
    return f"{_words(name)} {text}".strip()


def _short(value: Json) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= VALUE_MOST else f"{text[: VALUE_MOST - 1]}…"


def _words(name: str) -> str:
    return name.replace("_", " ")
