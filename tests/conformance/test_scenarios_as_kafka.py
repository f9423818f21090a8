"""The scenarios of the guarantees give the same verdicts on Apache Kafka as on Harrow's brokers (M3, H1 to H7).

The table of docs/backends.md is what both came to. A scenario that needs what the backend lacks is skipped there, with
the capability that is missing.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from apache_kafka import MISSING
from harrow.harness.backends.apache.kafka_listeners import can_relay
from kafka_reference import JARS
from scenario_verdicts import FILES, SCENARIOS, verdicts_in, verdicts_on

PAGE = Path(__file__).parents[2] / "docs" / "backends.md"
ROW = re.compile(r"^\| `(test_\w+(?:\[[\w-]+\])?)` \| (H\d(?:, H\d)*) \| (.+?) \| (.+?) \|$", re.MULTILINE)
TABLE = {name: (ours, kafkas) for name, _, ours, kafkas in ROW.findall(PAGE.read_text("utf-8"))}
SKIPPED = "skipped: "
NO_LINKS = "skipped: links"
"""Of a scenario that cuts links between nodes, on a machine where these cannot pass the proxy."""

REPORT = """<testsuites><testsuite>
<testcase name="test_a"><properties>
<property name="harrow.verdict" value="valid (best-effort) · 30 records are … (lost-write) · 50 records acknowledged"/>
<property name="harrow.verdict-2" value="invalid (no-loss) · 30 records are … (lost-write), and 1 other kind"/>
<property name="harrow.seed" value="7"/>
</properties></testcase>
<testcase name="test_b"><skipped message="isolate(one) needs the capability 'links', which"/></testcase>
<testcase name="test_c"><failure message="assert 1 == 2"/></testcase>
<testcase name="test_d"/>
</testsuite></testsuites>"""


def names_of(name: str) -> set[str]:
    tree = ast.parse((SCENARIOS / name).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_the_table_has_every_scenario_of_the_guarantees() -> None:
    listed = {name.partition("[")[0] for name in TABLE}
    assert listed == set[str]().union(*map(names_of, FILES))


def test_no_scenario_has_another_verdict_on_kafka() -> None:
    differing = {name: row for name, row in TABLE.items() if row[0] != row[1] and not row[1].startswith(SKIPPED)}
    assert differing == {}
    assert sum(not kafkas.startswith(SKIPPED) for _, kafkas in TABLE.values()) > 12


def test_a_report_of_a_run_is_read(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(REPORT, encoding="utf-8")
    assert verdicts_in(report) == {
        "test_a": "valid with lost-write, invalid with lost-write",
        "test_b": "skipped: links",
        "test_c": "failure: assert 1 == 2",
        "test_d": "no verdict",
    }


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")
@pytest.mark.parametrize("file", FILES)
def test_the_table_says_what_the_scenarios_came_to_on_kafka(file: str) -> None:
    backend = ["--harrow-backend=apache", f"--harrow-kafka={JARS}"]
    found = verdicts_on(backend, [file])
    wanted = {name: TABLE[name][1] for name in found}
    if not can_relay():
        wanted |= {name: NO_LINKS for name, result in found.items() if result == NO_LINKS}
    assert found == wanted
    assert {name.partition("[")[0] for name in found} == names_of(file)


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")
@pytest.mark.parametrize("file", FILES)
def test_the_table_says_what_the_scenarios_came_to_on_harrows_brokers(file: str) -> None:
    found = verdicts_on((), [file])
    assert found == {name: TABLE[name][0] for name in found}
