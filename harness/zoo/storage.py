"""Bugs of logs, disks and reads, and what makes each of them visible."""

from __future__ import annotations

from .bug import Bug

BUGS: tuple[Bug, ...] = ()
