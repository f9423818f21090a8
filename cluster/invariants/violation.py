"""What a broken invariant raises."""

from __future__ import annotations

from collections.abc import Mapping


class InvariantViolation(AssertionError):  # noqa: N818 - a violation is a finding, not an error of a caller
    """An invariant of the table in `cluster/invariants` does not hold: a bug of the cluster, not of a test."""

    def __init__(self, name: str, problem: str, state: Mapping[str, object] | None = None) -> None:
        lines = [f"invariant {name}: {problem}"]
        lines += [f"  {key}: {value}" for key, value in (state or {}).items()]
        super().__init__("\n".join(lines))
        self.name = name
        """The invariant's name in the table."""
        self.problem = problem
