"""The documentation site (`mkdocs.yml`): its navigation has every page; `make docs` builds it, and CI does (N1)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
MADE = {"index.md", "api.md"}
"""Pages that docs/site_pages.py makes."""


class Loader(yaml.SafeLoader):
    """Reads the tags of Python objects in mkdocs.yml as nothing."""


def nothing(*_: object) -> None:
    """Make nothing of a node."""


loader: Any = Loader  # its methods have no types
loader.add_multi_constructor("tag:yaml.org,2002:python/", nothing)


def settings() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    return found


def pages_in(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    rows = entry.values() if isinstance(entry, dict) else entry  # pyright: ignore[reportUnknownVariableType]
    return [page for row in rows for page in pages_in(row)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def test_the_navigation_has_every_page_once() -> None:
    listed = pages_in(settings()["nav"])
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert sorted(listed) == sorted(pages | MADE)


def test_a_broken_link_fails_and_the_site_is_no_part_of_the_repository() -> None:
    found = settings()
    assert found["strict"] is True
    assert set(found["validation"]["links"].values()) == {"warn"}
    assert found["site_dir"].startswith("build/")
    assert "build/" in (ROOT / ".gitignore").read_text().split()


def test_the_repository_has_one_address_and_ci_builds_the_site() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    address = settings()["repo_url"]
    assert {url for url in project["urls"].values() if not url.startswith(address)} == set()
    assert "make docs" in (ROOT / ".github" / "workflows" / "tests.yml").read_text()
