"""Arms a rule of requests at a broker or a proxy, by its control operations."""

from __future__ import annotations

from typing import Any

from harrow.faults.rule_kinds import ArmedRule, RequestRule
from harrow.harness.backends.knobs import Call, RuleTable, request_arms


def arm_request(call: Call, **fields: Any) -> ArmedRule:
    """Arm `RequestRule(**fields)`."""
    return RuleTable(request_arms(call)).arm(RequestRule(**fields))
