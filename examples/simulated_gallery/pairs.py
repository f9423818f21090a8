"""`pair`: runs a test with the wrong service and with its correct twin; what the wrong one must be found with.

The test is what a user would write: with the correct twin it passes for all seeds, with the wrong one it fails for one
of them. Here that failure is expected, and `conftest.py` checks its name. To see it as a user sees it:
`UNMASK=1 pytest examples/simulated_gallery -k "acks_one and wrong"`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Service = Callable[..., Any]


def pair(wrong: Service, right: Service, *, finds: str) -> pytest.MarkDecorator:
    """Decorate a test whose argument `service` is one of the two; `finds`: names of which the failure has one."""
    return pytest.mark.parametrize(
        "service", [pytest.param(wrong, id="wrong", marks=pytest.mark.finds(finds)), pytest.param(right, id="right")]
    )
