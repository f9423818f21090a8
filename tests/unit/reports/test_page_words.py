"""The page says things once, in words, and explains its words; so does a verdict in a notebook (J8, L6)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from harrow.harness.checks.guarantees import ALL_ANOMALIES, FORBIDDEN
from harrow.harness.checks.progress.words import reasons
from harrow.harness.checks.rows import ProgressRow
from harrow.harness.checks.verdict import Status, Verdict
from harrow.harness.checks.verdict_text import verdict_text
from harrow.harness.reports.evidence import FACTS_MOST, Facts, evidence_text
from harrow.harness.reports.findings import verdict_model
from harrow.harness.reports.terms import GUARANTEES, STATUSES, TERMS, explained

ROOT = Path(__file__).parents[3]
ISOLATED = "broker 2 was isolated from 3.88 s to 5.95 s; with acks=1 it acknowledged 329 records"
TWICE = Verdict(
    status=Status.INVALID,
    guarantees=("no-loss",),
    anomaly_counts={"missing": 329, "lost-write": 329, "inconsistent-offsets": 98},
    causes={
        "missing": (ISOLATED, "brokers refused 1 record"),
        "lost-write": (ISOLATED,),
        "inconsistent-offsets": ("broker 1 wrote other records at these offsets",),
    },
)


def test_a_cause_of_several_kinds_is_said_once() -> None:
    text = verdict_text(TWICE)
    assert text.count(ISOLATED) == 1
    assert re.findall(r"\((missing|lost-write)\)\n    cause: (.{5})", text) == [
        ("missing", "broke"),
        ("lost-write", "the s"),
    ]
    assert "cause: the same as of missing" in text
    model = verdict_model(json.loads(TWICE.to_json()))
    assert model is not None
    assert [kind["causes"][0] for kind in model["kinds"]] == [
        ISOLATED,
        "the same as of missing",
        "broker 1 wrote other records at these offsets",
    ]
    assert [kind["count"] for kind in model["kinds"]] == [329, 329, 98]
    assert "records_found" not in model, "the sum counts a record once for each kind"


LINKS = {
    "links": {
        "2": {
            "rules": [
                {"peers": "broker 1", "direction": "in"},
                {"peers": "broker 1", "direction": "out"},
                {"peers": "registry", "direction": "in"},
                {"peers": "registry", "direction": "in"},
            ],
            "links": [{"peer": "client a", "blocked_in": True, "held_in_bytes": 184, "closed": False, "delay_ms": 0}],
            "held_in_bytes": 0,
        }
    }
}

HELD = {
    "id": 1,
    "api_key": 0,
    "nth": 1,
    "count": 1,
    "probability": 1.0,
    "seed": 0,
    "client": "billing-*",
    "where": None,
    "seen": 1,
    "fired": 1,
    "action": "drop",
    "clients": {"rdkafka": 72},
    "others": {"rdkafka": [18, 3]},
}


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ({}, ""),
        ({"gone_after_ms": 2}, "gone after 2 ms"),
        (
            {"brokers": {"1": {"state": "paused", "incarnation": 1, "pid": 7, "process": "T"}}},
            "broker 1: state paused, incarnation 1, pid 7, stopped by a signal",
        ),
        (
            {"programs": {"shop": {"state": "dead", "exit_code": 0}}, "armed": []},
            "program shop: state dead, exit code 0",
        ),
        ({"reset": {"1": 2, "3": 1}}, "reset: 1 2, 3 1"),
        ({"request": {"3": HELD}, "armed": []}, "broker 3: Produce of billing-*: 1 request seen, 1 hit"),
        (
            {"brokers": {"1": {**HELD, "client": "*", "api_key": 1, "seen": 7}}},
            "broker 1: Fetch: 7 requests seen, 1 hit",
        ),
        (
            LINKS,
            (
                "links of broker 2, rules: broker 1 in, broker 1 out, registry in; "
                "links of broker 2, links: client a blocked in held in 184 bytes"
            ),
        ),
    ],
    ids=["nothing", "unit", "broker", "program", "numbers", "rule", "rule of all clients", "links"],
)
def test_the_evidence_of_a_fault_is_shown_in_words(evidence: Facts, words: str) -> None:
    assert evidence_text(evidence) == words


def test_long_evidence_ends_with_a_whole_fact_and_the_number_of_the_others() -> None:
    many = {"brokers": {str(n): {"state": "paused " * 3} for n in range(40)}}
    text = evidence_text(many)
    *facts, last = text.split("; ")
    assert facts == [f"broker {n}: state paused paused paused" for n in range(FACTS_MOST)]
    assert last == f"{40 - FACTS_MOST} more facts in faults.jsonl"
    links = evidence_text({"rules": [{"peers": f"broker {n}"} for n in range(20)]})
    assert links.endswith("broker 7, 12 more")
    assert "{" not in text + links


def rows_of(page: str, heading: str) -> dict[str, str]:
    """The first two cells of a table's rows, by each name in the first."""
    table = page.partition(heading)[2].partition("\n\n")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return {name: row[1].strip(" |") for row in rows for name in re.findall(r"`([\w-]+)`", row[0])}


def test_guarantees_and_statuses_have_the_words_of_the_page_on_guarantees() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    assert rows_of(page, "| status | meaning |") == {
        name: re.sub(r"each doubt", "each [doubt](#doubts)", text) for name, text in STATUSES.items()
    }
    assert rows_of(page, "| `guarantee=` | the verdict is invalid when |") == dict(GUARANTEES)
    assert set(GUARANTEES) == set(FORBIDDEN)


def test_every_word_of_a_page_has_one_sentence_that_says_it() -> None:
    words = explained("invalid", GUARANTEES, sorted(ALL_ANOMALIES))
    found = dict(words)
    assert len(found) == len(words) == 1 + len(GUARANTEES) + len(ALL_ANOMALIES) + len(TERMS)
    assert all(text[0].isupper() and text.endswith(".") and "`" not in text for text in found.values())
    assert found["duplicate"].endswith("Forbidden by exactly-once, at-most-once.") or (
        found["duplicate"].endswith("Forbidden by at-most-once, exactly-once.")
    )
    assert "the same" not in found["exactly-once"]
    assert dict(explained("", ("of-an-extension",), ("unknown-kind",))) == dict(TERMS)


def test_a_notebook_shows_a_verdict_as_an_escaped_table_of_bounded_length() -> None:
    odd = "<script>alert('&')</script>\x1b[31m"
    verdict = Verdict(
        status=Status.INVALID,
        guarantees=("no-loss", odd),
        guarantee_reason=odd,
        operation_counts={"acknowledged": 1_204},
        anomaly_counts={"lost-write": 31, "duplicate": 2, odd: 1},
        causes={"lost-write": (odd,)},
        reasons=(odd * 10_000,) * 9,
        notes=(odd,) * 9,
        planted=(odd,),
    )
    shown = verdict._repr_html_()  # pyright: ignore[reportPrivateUsage] - notebooks call it
    assert len(shown) < 40_000
    assert "<script" not in shown
    assert "\x1b" not in shown
    assert "31 records were acknowledged or read, and are not in the topic any more (lost-write)" in shown
    assert "(duplicate); the guarantee allows this" in shown
    assert "&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in shown
    assert "4 more reasons in verdict.json" in shown
    assert "4 more notes in verdict.json" in shown
    assert "1,204 records acknowledged" in shown
    assert shown.count("<tr>") == shown.count("</tr>") == 1 + 1 + 3 + 6 + 6 + 1
    assert re.fullmatch(r"<table>.*</table>", shown, re.DOTALL)


def test_a_time_that_is_0_in_the_text_is_no_reason_for_a_standstill() -> None:
    row: ProgressRow = {
        "fault": "1",
        "label": "kill",
        "client": "billing",
        "kind": "group",
        "partition": "orders-0",
        "stalled_from_s": None,
        "cluster_could_not_serve_s": 0.01,
        "waited_for_members_s": 0.04,
        "stalled_s": 0.02,
        "recovered": True,
        "recovered_s": 0.9,
        "without_progress_s": 0.04,
    }
    assert reasons(row) == "its first progress was 0.9 s after the fault was healed"
    assert reasons({**row, "recovered_s": None}) == "it went on, or had nothing to do"
    assert reasons({**row, "stalled_s": 0.05}).startswith("it stood still for 0.1 s although")
