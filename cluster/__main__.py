"""`python -m harrow.cluster` runs Harrow's brokers by hand: in containers (`containers/Dockerfile`) and debuggers.

    python -m harrow.cluster OPTIONS.json      one process, as the fork server runs it
    python -m harrow.cluster up WORDS          a whole cluster; also `registry` and `broker` (`by_hand.py`)

`OPTIONS.json` (or `-` for standard input) holds the options that the head of `process.py` describes. The status line
goes to standard output.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version

from .process import run

REQUIRED = ("role", "name", "folder", "seed")
COMMANDS = ("up", "registry", "broker", "--help", "-h")


def main(argv: list[str]) -> int:
    """Run one process; returns its exit code (2: the options cannot be used)."""
    if argv[1:2] and argv[1] in COMMANDS:
        from .by_hand import main as run_words

        return run_words(argv[1:])
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
    wanted, here = options.get("version"), version("pytest-harrow")
    if wanted not in (None, here):
        text = f"this is Harrow {here}, and the options are of Harrow {wanted}; build the image again"
        print(json.dumps({"event": "failed", "error": text}), flush=True)
        return 2
    os.makedirs(options["folder"], exist_ok=True)
    return run(options, sys.stdout.fileno())


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
