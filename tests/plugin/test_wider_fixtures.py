"""A fixture of the user with a wider scope than the Harrow fixture that it uses: pytest's error has the remedy (J1)."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("factory", "name", "remedy"),
    [
        ("", "harrow", "uses harrow_session: one cluster for all tests of a worker"),
        ("small = harrow.harrow_fixture(brokers=1)", "small", "uses one of harrow_session_fixture(…) instead of small"),
    ],
)
def test_a_module_fixture_on_the_fixture_of_a_test_says_which_one_to_use(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, factory: str, name: str, remedy: str
) -> None:
    monkeypatch.delenv("CI", raising=False)  # There pytest repeats the message in its short summary.
    pytester.makepyfile(
        f"""
        import harrow
        import pytest

        {factory}

        @pytest.fixture(scope="module")
        def shop({name}): yield {name}

        def test_it(shop): pass

        @pytest.fixture(scope="module")
        def other(tmp_path): pass

        def test_of_another_plugin(other): pass
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:xdist")
    result.assert_outcomes(errors=2)
    output = result.stdout.str()
    assert output.count("harrow: the fixture") == 1
    assert f"harrow: the fixture {name} has a cluster for one test." in output
    assert remedy in output
