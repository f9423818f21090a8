"""A verdict in a user's words: the text that a failed test shows, and one line for the terminal and JUnit.

The text has a bounded length, however long the history is and whatever the records contain:

    INVALID: no-loss does not hold
      31 records were acknowledged or read, and are not in the topic any more (lost-write)
        cause: broker 3 was isolated from 0.14 s to 4.16 s; with acks=1 it acknowledged 31 records of orders-0, which …
        example in orders-0, offset 100: a record was acknowledged at offset 100, but …
          sent at 0.30 s, acknowledged at 0.31 s: offset 100, key=order-81, value={"order": 81}, client app@412.1
          in the final read: offset 100, key=order-140, value={"order": 140}
      judged 1,204 records acknowledged, 1,190 read

Where clients stood still because of faults, a line says so for each pair (`progress/words.py`).
Forbidden kinds come before allowed ones, and the worst kind first (`anomaly_kinds.py`). Each kind has one example,
its first anomaly whose records are known. Times are seconds since the start of the test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harrow.cluster.errors import error_name

from ..engines import SPARK
from ..run_folder import RunTimes
from ..wording import counted
from .guarantees import FORBIDDEN
from .known_anomalies import described, rank
from .rows import OperationRow
from .verdict import Anomaly, Status, Verdict

KINDS_MOST = 6
CAUSES_MOST = 3
OPERATIONS_MOST = 4
REASONS_MOST = 5
OFFSETS_MOST = 6
LINE_MOST = 500
"""Characters of a line: of an operation, an explanation, a cause, a note."""
REASON_MOST = 1_200
"""Characters of a reason, which may have several lines (the traceback of a check that crashed)."""
TEXT_MOST = 20_000
"""No text is longer."""
COUNTED = (
    ("acknowledged", "records acknowledged"),
    ("unacknowledged", "sends without an acknowledgement"),
    ("failed", "sends refused"),
    ("read", "records read"),
    ("drained", "records in the final read"),
    ("batches_acknowledged", "acknowledged batches"),
    ("log_batches", "batches in the replicas' logs"),
)
"""The figures of the last line, in this order."""


def verdict_text(verdict: Verdict) -> str:
    """Return the whole verdict for a person, in at most `TEXT_MOST` characters."""
    lines = [shortened(f"PLANTED BUG {bug}", LINE_MOST) for bug in verdict.planted[:REASONS_MOST]]
    lines.append(_headline(verdict))
    kinds = kinds_by_severity(verdict)
    causes = causes_of_kinds(verdict, kinds)
    for name in kinds[:KINDS_MOST]:
        lines += [f"  {line}" for line in _kind(verdict, name, causes[name])]
    if len(kinds) > KINDS_MOST:
        more = ", ".join(described(name, verdict.anomaly_counts[name]) for name in kinds[KINDS_MOST:])
        lines.append(shortened(f"  and {more}: see verdict.json", LINE_MOST))
    for reason in verdict.reasons[:REASONS_MOST]:
        lines.append("  unknown: " + shortened(reason, REASON_MOST).replace("\n", "\n    "))
    lines += _more(verdict.reasons, "reasons")
    notes = [note for note in verdict.notes if not _repeats_a_kind(note, kinds)]
    lines += [f"  note: {shortened(note, LINE_MOST)}" for note in notes[:REASONS_MOST]]
    lines += _more(notes, "notes")
    if verdict.progress:
        from .progress.words import progress_lines

        lines += [f"  {shortened(line, LINE_MOST)}" for line in progress_lines(verdict.progress)]
    if figures := figures_of(verdict):
        lines.append(f"  judged {figures}")
    return _cut("\n".join(lines), TEXT_MOST)


def figures_of(verdict: Verdict) -> str:
    """Return how much was judged, and by which engine unless it is Spark; empty when nothing was."""
    counts = verdict.operation_counts
    figures = [f"{counts[name]:,} {words}" for name, words in COUNTED if counts.get(name)]
    if not counts.get("acknowledged") and counts.get("records_acknowledged_on_the_wire"):
        wire = f"{counts['records_acknowledged_on_the_wire']:,} records acknowledged on the wire"
        figures.insert(0, wire)
    by = "" if verdict.engine == SPARK else f"; engine {verdict.engine}, without Spark"
    return ", ".join(figures) + by if figures else ""


def summary_line(verdict: Verdict) -> str:
    """Return one line: status, guarantees, the worst kind of anomaly or the first reason, what was acknowledged."""
    counts = verdict.operation_counts
    acknowledged = counts.get("acknowledged", 0) or counts.get("records_acknowledged_on_the_wire", 0)
    parts = [shortened(f"PLANTED {bug}", LINE_MOST) for bug in verdict.planted[:REASONS_MOST]]
    parts.append(f"{verdict.status.value} ({', '.join(verdict.guarantees)})")
    kinds = kinds_by_severity(verdict)
    if kinds:
        others = len(kinds) - 1
        more = f", and {counted(others, 'other kind', 'other kinds')} of anomaly" if others else ""
        parts.append(described(kinds[0], verdict.anomaly_counts[kinds[0]]) + more)
    elif verdict.reasons:
        others = len(verdict.reasons) - 1
        more = f" (and {counted(others, 'other reason')})" if others else ""
        parts.append(shortened(verdict.reasons[0].replace("\n", " "), LINE_MOST) + more)
    if counts:  # else nothing was judged
        parts.append(f"{acknowledged:,} records acknowledged")
    return _cut(" · ".join(parts), TEXT_MOST)


def shortest_line(verdict: Verdict) -> str:
    """Return the status and the forbidden kinds, the worst first: `INVALID lost-write ×689`; or the first reason."""
    counts = verdict.anomaly_counts
    kinds = [name for name in kinds_by_severity(verdict) if breaks(name, verdict)]
    found = ", ".join(f"{name} ×{counts[name]:,}" for name in kinds)
    if not found and verdict.reasons:
        found = _one_line(verdict.reasons[0])
    return f"{verdict.status.name} {found or ', '.join(verdict.guarantees)}"


def kinds_by_severity(verdict: Verdict) -> list[str]:
    """Return the names of all anomalies that were found: forbidden before allowed, then the worst first."""
    return sorted(verdict.anomaly_names(), key=lambda name: (not breaks(name, verdict), rank(name), name))


def breaks(name: str, verdict: Verdict) -> list[str]:
    """Return the guarantees of the verdict that forbid this anomaly."""
    added = verdict.added_guarantees
    return [
        word for word in verdict.guarantees if name in FORBIDDEN.get(word, frozenset()) or name in added.get(word, ())
    ]


def _headline(verdict: Verdict) -> str:
    listed = ", ".join(verdict.guarantees)
    why = f" ({shortened(verdict.guarantee_reason, LINE_MOST)})" if verdict.guarantee_reason else ""
    plural = len(verdict.guarantees) > 1
    if verdict.status is Status.UNKNOWN:
        return f"UNKNOWN: {listed} could not be judged{why}"
    if verdict.status is Status.VALID:
        return f"VALID: {listed} {'hold' if plural else 'holds'}{why}"
    found = verdict.anomaly_names()
    broken = [word for word in verdict.guarantees if any(word in breaks(name, verdict) for name in found)]
    broken = broken or list(verdict.guarantees)
    others = f"; judged: {listed}" if len(broken) < len(verdict.guarantees) else ""
    verb = "do not hold" if len(broken) > 1 else "does not hold"
    return f"INVALID: {', '.join(broken)} {verb}{others}{why}"


def causes_of_kinds(verdict: Verdict, kinds: Iterable[str]) -> dict[str, list[str]]:
    """Return the causes of each kind; a cause that an earlier kind has too is only referred to.

    One fault makes anomalies of several kinds, often of the same records: `missing` for the application is `lost-write`
    in the log.
    """
    first: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for name in kinds:
        causes = verdict.causes.get(name, ())
        earlier = dict.fromkeys(first[cause] for cause in causes if cause in first)
        same = [f"the same as of {', '.join(earlier)}"] if earlier else []
        found[name] = same + [cause for cause in causes if cause not in first]
        for cause in causes:
            first.setdefault(cause, name)
    return found


def _kind(verdict: Verdict, name: str, causes: Sequence[str]) -> list[str]:
    allowed = "" if breaks(name, verdict) else f"; {', '.join(verdict.guarantees)} allows this"
    lines = [described(name, verdict.anomaly_counts[name]) + allowed]
    lines += [f"  cause: {shortened(cause, LINE_MOST)}" for cause in causes[:CAUSES_MOST]]
    found = [anomaly for anomaly in verdict.anomalies if anomaly.name == name]
    if found:
        example = next((anomaly for anomaly in found if _has_contents(anomaly)), found[0])
        lines += [f"  {line}" for line in example_text(example, verdict.started_ns)]
    return lines


def example_text(anomaly: Anomaly, started_ns: int) -> list[str]:
    """Return the lines of one anomaly: where it is, what is wrong, and the operations that show it."""
    where = f", {_offsets(anomaly.offsets)}" if anomaly.offsets else ""
    lines = [shortened(f"example in {anomaly.place}{where}: {_one_line(anomaly.explanation)}", LINE_MOST)]
    rows = anomaly.rows
    lines += [f"  {operation_text(row, started_ns)}" for row in rows[:OPERATIONS_MOST]]
    if len(rows) > OPERATIONS_MOST:
        lines.append(f"  … {len(rows) - OPERATIONS_MOST} more operations in verdict.json")
    return lines


def _has_contents(anomaly: Anomaly) -> bool:
    return any("value" in row or "key" in row for row in anomaly.rows)


# ------------------------------------------------------------------------------------ operations

TIMES = frozenset({"invoked_ns", "completed_ns", "time_ns", "t_ns", "wall_ms", "timestamp_ms", "due_ns"})
HASHES = frozenset({"key_hash", "value_hash", "crc", "op"})
NAMED_ELSEWHERE = frozenset(
    {"operation", "outcome", "topic", "partition", "offset", "base_offset", "last_offset", "event", "host"}
    | {"group", "response_lost", "response_error", "records", "acks"}
)
PRODUCER = ("producer_id", "producer_epoch", "base_sequence")


def operation_text(row: OperationRow, started_ns: int) -> str:
    """Return one operation in a user's words, in one line of at most `LINE_MOST` characters."""
    details = [row_place(row)]
    first = "first record: " if _is_batch(row) else ""
    contents = {"key": row.get("key"), "value": row.get("value")}
    details += [f"{name}={_one_line(str(text))}" for name, text in contents.items() if name in row]
    if first and len(details) > 1:
        details[1] = first + details[1]
    if "value" not in row and "value_hash" in row:
        details.append(f"value with hash {row['value_hash']}")
    details += [f"{name} {text}" for name, text in other_fields(row)]
    listed = ", ".join(part for part in details if part)
    event = event_text(row, started_ns)
    return shortened(f"{event}: {listed}" if listed else event, LINE_MOST)


def other_fields(row: OperationRow) -> list[tuple[str, str]]:
    """Return the names and texts of the fields that neither the event, the place, the key nor the value shows."""
    hidden = TIMES | NAMED_ELSEWHERE | HASHES | {"key", "value", "broker"}
    if row.get("producer_id", 0) == -1:
        hidden |= {*PRODUCER}
    if row.get("operation") == "final read":
        hidden |= {"client"}
    return [
        (name.replace("_", " "), _one_line(", ".join(row.get("headers", ())) if name == "headers" else str(value)))
        for name, value in row.items()
        if value is not None and name not in hidden
    ]


def _is_batch(row: OperationRow) -> bool:
    return row.get("base_offset") != row.get("last_offset")


def event_text(row: OperationRow, started_ns: int) -> str:
    """Return what happened, who did it, and when."""
    operation, outcome = str(row.get("operation", "")), row.get("outcome")
    sent = _at(row.get("invoked_ns"), started_ns)
    done = _at(row.get("completed_ns") or row.get("time_ns") or row.get("t_ns"), started_ns)
    broker = f"broker {row['broker']}" if row.get("broker") is not None else "a broker"
    if operation == "send":
        ends = {"ok": f"acknowledged{done}", "fail": f"refused{done}"}
        return f"sent{sent}, {ends.get(str(outcome), 'never acknowledged')}"
    if operation == "produced":
        acks = " with acks=all" if row.get("acks", -1) == -1 else f" with acks={row['acks']}"
        if error := row.get("response_error"):
            return f"appended by {broker}{acks}{done}, with {error_name(error)} in the response"
        lost = ", but the response was lost" if row.get("response_lost") else ""
        return f"acknowledged by {broker}{acks}{done}{lost}"
    if operation == "commit":
        group = f" by group {row['group']}" if row.get("group") else ""
        return f"committed{group}{done}"
    if operation == "retry" and row.get("due_ns"):
        return f"in a retry topic, due{_at(row['due_ns'], started_ns)}"
    plain = {
        "retry": "in a retry topic",
        "attempt": "written by the next attempt",
        "read": f"read{done}",
        "final read": "in the final read",
        "fetched": f"delivered by {broker}{done}",
        "in the log": f"in the log of {broker}",
        "record": "in the topic",
    }
    if operation in plain:
        return plain[operation]
    if not operation and "event" in row:
        return f"{row['event']} of {str(row.get('broker', row.get('host', 'a broker'))).replace('-', ' ')}{done}"
    return (operation or "operation") + done


def row_place(row: OperationRow) -> str:
    """Return the topic-partition and the offsets of an operation, as far as the row has them."""
    topic, partition = row.get("topic"), row.get("partition", -1)
    place = f"{topic}-{partition} " if topic and partition is not None and partition >= 0 else ""
    first, last = row.get("base_offset"), row.get("last_offset")
    if first is not None and last is not None and first >= 0:
        count = row.get("records") or last - first + 1
        return f"{place}offset {first}" if first == last else f"{place}offsets {first} to {last} ({count} records)"
    offset = row.get("offset")
    return f"{place}offset {offset}" if offset is not None and offset >= 0 else place.strip()


def _at(time_ns: int | None, started_ns: int) -> str:
    """Return " at 0.31 s", or nothing when the time or the start of the test is not known."""
    if time_ns is None or time_ns <= 0 or not started_ns:
        return ""
    return f" at {RunTimes(started_ns).text(time_ns)}"


def _offsets(given: tuple[int, ...]) -> str:
    offsets = tuple(dict.fromkeys(given))
    if len(offsets) == 1:
        return f"offset {offsets[0]}"
    if len(offsets) <= OFFSETS_MOST:
        return "offsets " + ", ".join(map(str, offsets))
    return f"{len(offsets)} offsets from {min(offsets)} to {max(offsets)}"


# ----------------------------------------------------------------------------------------- text


def shortened(text: str, most: int) -> str:
    """Return at most `most` printable characters: the beginning and the end, because an error's end names its cause.

    Control characters are escaped, for a record may contain those that change a terminal; line ends stay.
    """
    text = _cut(text, most)
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return _cut(text, most)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail - 3]} … {text[-tail:]}"


def _one_line(text: str) -> str:
    return shortened(text, LINE_MOST).replace("\n", " ")


def _more(entries: Iterable[str], what: str) -> list[str]:
    hidden = len(list(entries)) - REASONS_MOST
    return [f"  … {hidden} more {what} in verdict.json"] if hidden > 0 else []


def _repeats_a_kind(note: str, kinds: Iterable[str]) -> bool:
    """Whether a note says only that a kind is allowed, which the line of that kind says already."""
    return note.endswith(" allows this") and any(f"({name})" in note for name in kinds)
