"""The wheel holds every package of the tree, typed, with its entry points (J1)."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LAYERS = ("cluster", "faults", "harness")


def test_building_the_wheel_includes_every_module(tmp_path: Path) -> None:
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    source = tmp_path / "source"
    git = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(git, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        origin = ROOT / name
        if origin.is_file() and not origin.is_symlink():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(origin.read_bytes())
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"harrow/{p.relative_to(ROOT)}" for layer in LAYERS for p in (ROOT / layer).rglob("*.py")}
    assert wanted <= held, sorted(wanted - held)
    assert {"harrow/__init__.py", "harrow/py.typed"} <= held
    assert not {name.split("/")[0] for name in held} & set(LAYERS), "nothing of ours collides with a user's own"


def test_the_distribution_names_its_plugin_and_its_command() -> None:
    points = {(p.group, p.name): p.value for p in distribution("pytest-harrow").entry_points}
    assert points["pytest11", "harrow"] == "harrow.harness.plugin.hooks"
    assert ("console_scripts", "harrow") in points


def test_importing_the_package_imports_no_heavy_module() -> None:
    heavy = ("pyspark", "polars", "confluent_kafka", "asyncio", "kio", "faker", "click")
    code = f"import sys, harrow, harrow.harness.plugin.hooks; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_no_required_distribution_has_a_pytest_plugin() -> None:
    """pytest loads the plugin of an installed distribution in every run, also in runs without Harrow."""
    seen: set[str] = set()
    waiting = ["pytest-harrow"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        rows = map(Requirement, distribution(name).requires or ())
        needed = [row for row in rows if row.marker is None or row.marker.evaluate({"extra": ""})]
        waiting += [canonicalize_name(row.name) for row in needed]
    assert {"pytest", "pyspark", "polars"} <= seen
    groups = {"pytest11", "pytest_randomly.random_seeder"}
    plugins = {name for name in seen for p in distribution(name).entry_points if p.group in groups}
    assert plugins == {"pytest-harrow"}


def test_strategies_without_hypothesis_say_which_extra_installs_it() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; import harrow.strategies"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "ImportError: harrow.strategies needs Hypothesis" in done.stderr
    assert 'pip install "pytest-harrow[hypothesis]"' in done.stderr
