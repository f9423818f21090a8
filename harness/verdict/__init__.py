"""From the end of a run to its verdict: rest, final read, judgement, pages, and how the test ended."""
