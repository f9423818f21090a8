"""Sets of times: sorted intervals [begin, end) that neither overlap nor touch. Every function returns such a list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[int, int]
Spans = list[Span]
EVER: Spans = [(0, 2**62)]


def merged(spans: Iterable[Span]) -> Spans:
    """Return the union; empty intervals are dropped."""
    found: Spans = []
    for begin, end in sorted(spans):
        if end <= begin:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def both(first: Sequence[Span], second: Sequence[Span]) -> Spans:
    """Return the times that are in both sets."""
    found: Spans = []
    a = b = 0
    while a < len(first) and b < len(second):
        begin, end = max(first[a][0], second[b][0]), min(first[a][1], second[b][1])
        if begin < end:
            found.append((begin, end))
        if first[a][1] < second[b][1]:
            a += 1
        else:
            b += 1
    return found


def without(first: Sequence[Span], second: Sequence[Span]) -> Spans:
    """Return the times of the first set that are not in the second."""
    gaps: Spans = []
    at = 0
    for begin, end in second:
        if begin > at:
            gaps.append((at, begin))
        at = end
    gaps.append((at, EVER[0][1]))
    return both(first, gaps)


def total(spans: Iterable[Span]) -> int:
    """Return the length of all intervals."""
    return sum(end - begin for begin, end in spans)


def longest(spans: Iterable[Span]) -> Span:
    """Return the longest interval, the first of several; (0, 0) of none."""
    return max(spans, key=lambda span: span[1] - span[0], default=(0, 0))


def touches(span: Span, begin: int, end: int) -> bool:
    """Whether an interval and [begin, end] have a time in common."""
    return span[0] <= end and begin <= span[1]
