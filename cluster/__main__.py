"""`python -m harrow.cluster OPTIONS.json` runs one broker or registry by hand, as the fork server runs it.

`OPTIONS.json` (or `-` for standard input) holds the options that the
head of `process.py` describes. The status line goes to standard output. Use it in containers and debuggers.
"""

from __future__ import annotations

import json
import os
import sys

from .process import run

REQUIRED = ("role", "name", "folder", "seed")


def main(argv: list[str]) -> int:
    """Run one process; returns its exit code (2: the options cannot be used)."""
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        text = sys.stdin.read() if argv[1] == "-" else os.fsdecode(_read(argv[1]))
        options = json.loads(text)
        missing = [name for name in REQUIRED if name not in options]
    except (OSError, ValueError, TypeError) as error:
        print(f"harrow.cluster: {argv[1]}: {error}", file=sys.stderr)
        return 2
    if missing:
        print(f"harrow.cluster: {argv[1]}: add {', '.join(missing)}", file=sys.stderr)
        return 2
    os.makedirs(options["folder"], exist_ok=True)
    return run(options, sys.stdout.fileno())


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
