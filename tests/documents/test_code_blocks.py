"""Every code block of the README and of docs/ is run or checked: a page that is wrong fails (J1, N1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from code_blocks import Block, blocks_of
from documented_project import DocumentedProject

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FIRST_STEPS = ROOT / "docs" / "first-steps.md"
NOT_RUN_MOST = 3
"""Blocks with a comment that says why they cannot run. The bound is only lowered."""


def shared_files(page: Path) -> list[Block]:
    """Return the files of the first steps, which the other pages use."""
    if page == FIRST_STEPS:
        return []
    return [block for block in blocks_of(FIRST_STEPS, ROOT) if block.name]


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the processes of all pages keep their bytecode."""
    return tmp_path_factory.mktemp("bytecode")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_code_block_of_a_page_is_right(page: Path, tmp_path: Path, bytecode: Path) -> None:
    blocks = blocks_of(page, ROOT)
    DocumentedProject(tmp_path, blocks, shared_files(page), bytecode=bytecode).check()


def test_few_code_blocks_cannot_run() -> None:
    found = [block for page in PAGES for block in blocks_of(page, ROOT) if block.not_run]
    assert len(found) <= NOT_RUN_MOST, [f"{block.place}: {block.not_run}" for block in found]
