"""A coordinator that leads the home of the group that tests ask about."""

from __future__ import annotations

import pytest
from group_fakes import GroupTestBed
from group_requests import HOME


@pytest.fixture
def bed() -> GroupTestBed:
    made = GroupTestBed()
    made.lead(HOME)
    return made
