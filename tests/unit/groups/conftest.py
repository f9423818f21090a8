"""A coordinator that leads the home of the group that tests ask about."""

from __future__ import annotations

import pytest
from group_fakes import World
from group_requests import HOME


@pytest.fixture
def world() -> World:
    made = World()
    made.lead(HOME)
    return made
