"""One vocabulary of anomalies: kernels, oracle, traces and simulation use the names of `guarantees.py` only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harrow.harness import checks, promises, simulation
from harrow.harness.checks.guarantees import ALL_ANOMALIES, FORBIDDEN, SIMULATED

CHECKS = Path(checks.__file__).parent
KERNELS = sorted((CHECKS / "kernels").glob("*.py"))
SUPPORT = Path(__file__).parents[1] / "support"
ORACLE = [
    *(CHECKS / f"oracle{part}.py" for part in ("", "_of_removals", "_of_origins")),
    *(SUPPORT / f"oracle_of_{part}.py" for part in ("transactions", "watermarks", "shares")),
]
TRACES = [CHECKS / "traces.py", CHECKS / "stuck_groups.py", CHECKS / "unanswered.py"]
"""Their rules have no oracle of their own: tests of each have a second reading."""
PROMISES = sorted(
    path for pattern in ("*_checks.py", "pipeline_findings.py") for path in Path(promises.__file__).parent.glob(pattern)
)
ORACLE_OF_PROMISES = [SUPPORT / f"oracle_of_{part}.py" for part in ("attempts", "pipelines", "promises", "retries")]
SIMULATION = sorted(Path(simulation.__file__).parent.glob("*.py"))
NAMES = ALL_ANOMALIES | SIMULATED
LOOKS_LIKE_ONE = re.compile(
    r'"((?:lost|unseen|inconsistent|duplicate|nonmonotonic|poll|replica|corrupt|log|epoch|two|unexpected|send|'
    r'offset|not|task|reader|producer|invented|diverged|reordered|aborted|incomplete|missed|precommitted|torn|committed|stuck)-[a-z][a-z-]+)"'
)


def named(paths: list[Path]) -> set[str]:
    """String literals of these files that are, or look like, an anomaly's name."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    known = {name for name in NAMES if f'"{name}"' in text}
    return known | set(LOOKS_LIKE_ONE.findall(text))


@pytest.mark.parametrize(
    "paths",
    [KERNELS, ORACLE, TRACES, PROMISES, ORACLE_OF_PROMISES],
    ids=["kernels", "oracle", "traces", "promises", "oracle of promises"],
)
def test_checkers_use_only_names_of_the_vocabulary(paths: list[Path]) -> None:
    assert named(paths)
    assert named(paths) <= ALL_ANOMALIES


def test_the_simulation_uses_only_names_of_the_vocabulary() -> None:
    others = {"log-end", "offset-out"}
    assert named(SIMULATION) >= SIMULATED
    assert named(SIMULATION) - others <= NAMES


def test_oracle_kernels_and_traces_find_everything_that_a_guarantee_forbids() -> None:
    forbidden = frozenset[str]().union(*FORBIDDEN.values())
    assert named(KERNELS) | named(TRACES) | named(PROMISES) >= forbidden
    assert named(ORACLE) | named(TRACES) | named(ORACLE_OF_PROMISES) >= forbidden
    assert {"unexpected"} == SIMULATED & ALL_ANOMALIES, "which needs what the application believes"
