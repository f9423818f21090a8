"""A group coordinator that was replaced, and does not know it, returns old committed offsets; the verdict says so."""

from __future__ import annotations

import pytest
from harrow import Harrow
from old_committed_offsets import repeat_outputs_from_an_old_offset


@pytest.mark.harrow
def test_a_replaced_coordinator_is_named_as_the_cause_of_repeated_outputs(harrow: Harrow) -> None:
    repeat_outputs_from_an_old_offset(harrow, isolated_s=8)
