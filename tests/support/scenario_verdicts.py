"""The scenarios of the guarantees (H1 to H7) on one backend: what each test's verdicts were, by its JUnit report.

`python tests/support/scenario_verdicts.py [--harrow-backend apache …]` prints the column of a backend.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

SCENARIOS = Path(__file__).parents[1] / "scenarios"
FILES = (
    "test_weak_acks.py",
    "test_guarantees_break.py",
    "test_guarantees_hold.py",
    "test_reordering_and_redelivery.py",
)
VERDICT = re.compile(r"(valid|invalid|unknown) \(.*?\) · (.*)", re.DOTALL)
ANOMALY = re.compile(r"\(([a-z]+(?:-[a-z]+)+|missing|unseen|duplicate|unexpected)\)")
LACKING = re.compile(r"needs the capability '([\w-]+)'")


def verdicts_on(backend: Sequence[str] = (), tests: Iterable[str] = FILES) -> dict[str, str]:
    """Run the scenarios, and return what each came to, by the test's name."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        options = ["-q", "-p", "no:xdist", "-p", "no:randomly", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *options, f"--junit-xml={report}", f"--harrow-out={folder}/out"]
        paths = [str(SCENARIOS / name) for name in tests]
        done = subprocess.run(
            [*command, *backend, *paths],
            capture_output=True,
            text=True,
            timeout=3000,
            check=False,
            cwd=SCENARIOS.parents[1],
            env={**os.environ, "HARROW_LONG": "1"},  # the table has every scenario
        )
        assert report.exists(), done.stdout + done.stderr
        return verdicts_in(report)


def verdicts_in(report: Path) -> dict[str, str]:
    """Return what each test of a JUnit report came to: its verdicts, or why it was skipped, or that it failed."""
    root: ET.Element = ET.fromstring(report.read_text(encoding="utf-8"))
    return {case.attrib["name"]: _result(case) for case in root.iter("testcase")}


def _result(case: ET.Element) -> str:
    skipped = case.find("skipped")
    if skipped is not None:
        lacking = LACKING.search(skipped.attrib.get("message", ""))
        return f"skipped: {lacking[1] if lacking else skipped.attrib.get('message', '')}"
    for kind in ("failure", "error"):
        problem = case.find(kind)
        if problem is not None:
            return f"{kind}: {problem.attrib.get('message', '')[:300]}"
    verdicts: list[str] = [
        _verdict(row.attrib["value"])
        for row in case.iter("property")
        if row.attrib["name"].startswith("harrow.verdict")
    ]
    return ", ".join(dict.fromkeys(text for text in verdicts if text)) or "no verdict"


def _verdict(line: str) -> str:
    found = VERDICT.match(line)
    if found is None:
        return ""
    name = ANOMALY.search(found[2])
    return f"{found[1]} with {name[1]}" if name is not None else found[1]


if __name__ == "__main__":
    for test, result in verdicts_on(sys.argv[1:]).items():
        print(f"| `{test}` | {result} |")
