"""The option of the gallery."""

from __future__ import annotations

import pytest
from twins import UNMASKED


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--unmask",
        action="store_true",
        help="gallery: let the verdicts on wrong services fail their tests, as a user sees them",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--unmask"):
        UNMASKED.set()
