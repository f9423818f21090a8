"""`--harrow-plant`: a user's test on brokers with a planted bug, and every place that names the bug (M1, M2)."""

from __future__ import annotations

import json
import re

import pytest
from long_runs import long_run

KIP_101 = "harrow.faults.zoo.kip_101"
NAMED = f"PLANTED BUG {KIP_101}: KIP-101, first case: a follower truncates to its own high watermark"
ARGUMENTS = ("-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "--harrow-keep")

SENDS = """
    import pytest

    {marker}
    def test_orders(harrow):
        orders = harrow.topic("orders")
        producer = harrow.producer()
        for number in range(20):
            producer.produce(orders.name, value=b"order %d" % number)
        producer.flush(30)
        print(harrow.verify(orders, guarantee="no-loss"))
"""


@pytest.mark.parametrize(
    ("marker", "flags"),
    [
        pytest.param("", [f"--harrow-plant={KIP_101}"], id="flag", marks=long_run),
        pytest.param(f"@pytest.mark.harrow(plant={KIP_101!r})", [], id="marker"),
    ],
)
def test_every_output_of_a_planted_run_names_the_bug(pytester: pytest.Pytester, marker: str, flags: list[str]) -> None:
    pytester.makepyfile(SENDS.format(marker=marker))
    result = pytester.runpytest_subprocess(*ARGUMENTS, "-s", "--junitxml=junit.xml", *flags)
    result.assert_outcomes(passed=1)
    text = result.stdout.str()
    assert NAMED in text
    if flags:
        assert re.search(rf"^harrow: .*PLANTED BUG {KIP_101}", text, re.MULTILINE)
    assert re.search(rf"test_orders: PLANTED {KIP_101}: .* valid", text), text
    (report,) = pytester.path.glob("harrow-out/*/*/report.html")
    verdict = json.loads((report.parent / "verdict.json").read_text())
    assert verdict["planted"] == [NAMED.removeprefix("PLANTED BUG ")]
    assert f'"planted":["{KIP_101}: KIP-101' in report.read_text()
    assert 'name="harrow.planted"' in (pytester.path / "junit.xml").read_text()


def test_a_failure_is_repeated_with_its_plant(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(harrow): assert harrow.brokers == 0")
    result = pytester.runpytest_inprocess(*ARGUMENTS, f"--harrow-plant={KIP_101}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*repeat with: *--harrow-plant={KIP_101}*"])


def test_a_module_that_is_no_plant_is_a_usage_error(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(harrow): pass")
    result = pytester.runpytest_inprocess(*ARGUMENTS, "--harrow-plant=json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--harrow-plant: plant 'json': the module needs TITLE*"])
