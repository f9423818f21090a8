"""Pages of the documentation site that are no files of `docs/`: the README as index, the public names as reference.

A hook of mkdocs (`mkdocs.yml`). Links that leave `docs/` go to the repository. mkdocs fails for a link that leads
nowhere.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)")
OF_README = re.compile(r"\]\((?!\w+:|#)([^)]+)\)")
BRANCH = "blob/main"
SECTIONS = {
    "Fixtures and runs": ("harrow.harness.",),
    "Faults and targets": ("harrow.faults",),
    "The cluster": ("harrow.cluster",),
}


def on_files(files: Files, config: Any) -> Files:
    """Add the index and the reference."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    repository = str(config.repo_url).rstrip("/")
    files.append(File.generated(config, "index.md", content=index(readme, repository)))
    files.append(File.generated(config, "api.md", content=reference()))
    return files


def on_page_markdown(markdown: str, config: Any, **_: object) -> str:
    """Let links that leave `docs/` go to the repository."""
    return OUTSIDE.sub(rf"]({str(config.repo_url).rstrip('/')}/{BRANCH}/\1", markdown)


def index(readme: str, repository: str) -> str:
    """Return the README with links as the site has them."""

    def link(match: re.Match[str]) -> str:
        page = match[1].removeprefix("docs/")
        return f"]({page})" if page != match[1] else f"]({repository}/{BRANCH}/{page})"

    return OF_README.sub(link, readme)


def reference() -> str:
    """Return the page of all public names, which mkdocstrings fills with their docstrings."""
    sys.path.insert(0, str(ROOT / ".typing"))
    harrow: Any = import_module("harrow")
    strategies = (ROOT / "package" / "strategies.py").read_text(encoding="utf-8")
    names = {name: f"{home}.{name}" for name, home in sorted(harrow.public_homes().items())}
    parts = ["# Public names", "What `harrow` and `harrow.strategies` export. Everything else may change."]
    for title, homes in SECTIONS.items():
        found = [path for path in names.values() if path.startswith(homes)]
        parts += [f"## {title}", *(f"::: {path}" for path in found)]
    homes_of_strategies = re.findall(r"^from (\S+) import (.+)$", strategies, re.MULTILINE)
    parts.append("## Strategies of Hypothesis")
    parts += [f"::: {home}.{name}" for home, row in homes_of_strategies for name in row.split(", ")]
    return "\n\n".join(parts) + "\n"
