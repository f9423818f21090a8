"""Every code block of the README and of docs/ is run or checked: a page that is wrong fails (J1, N1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from code_blocks import Block, blocks_of
from documented_project import DocumentedProject, check_workflow
from long_runs import long_run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").glob("*.md"))]
FIRST_STEPS = ROOT / "docs" / "first-steps.md"
WORKFLOWS = sorted([*ROOT.glob(".github/workflows/*.yml"), *(ROOT / "examples").glob("*/.github/workflows/*.yml")])
RUN_IN_THE_SUITE = {"README", "AGENTS", "first-steps"}
"""The pages that a new user meets first. `make long` runs the blocks of all pages."""
NOT_RUN_MOST = 2
"""Blocks with a comment that says why they cannot run. The bound is only lowered."""


def shared_files(page: Path) -> list[Block]:
    """Return the files of the first steps, which the other pages use."""
    if page == FIRST_STEPS:
        return []
    return [block for block in blocks_of(FIRST_STEPS, ROOT) if block.name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_code_block_of_a_page_has_names_and_commands_that_exist(page: Path, tmp_path: Path) -> None:
    DocumentedProject(tmp_path, blocks_of(page, ROOT)).read()


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=() if page.stem in RUN_IN_THE_SUITE else long_run) for page in PAGES],
)
def test_every_code_block_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    DocumentedProject(tmp_path, blocks_of(page, ROOT), shared_files(page)).run()


def test_few_code_blocks_cannot_run() -> None:
    found = [block for page in PAGES for block in blocks_of(page, ROOT) if block.not_run]
    assert len(found) <= NOT_RUN_MOST, [f"{block.place}: {block.not_run}" for block in found]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.parents[2].name)
def test_the_commands_of_a_workflow_exist(path: Path) -> None:
    page, code = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    check_workflow(Block(page=page, line=1, language="yaml", code=code))
