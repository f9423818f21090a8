"""The command of `make differential`; see the head of the package.

python -m differential [--seed N] [--cases N] [--api REQUEST] [--lanes N] [--replay FILE…] [--out DIR]
                       [--kafka-port PORT]
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

from . import group_requests, security_requests, share_requests, topic_requests
from .cases import Case
from .duel import Duel
from .known import known_differences
from .requests import BASES
from .runner import Finding, Run
from .systems import missing, started
from .worlds import Worlds

LANES = 8
"""More than processors, because a case mostly waits: for a commit of the metadata, for a rebalance."""

assert group_requests and security_requests and share_requests and topic_requests, "they fill `BASES`"


def main() -> int:
    """Runs the command; returns 1 when something differs that no row of docs/compatibility.toml explains."""
    options = parsed()
    signal.signal(signal.SIGTERM, end)
    if (reason := missing()) and options.kafka_port is None:
        print(reason)
        return 2
    known = [
        row for path in options.known or [None] for row in (known_differences(path) if path else known_differences())
    ]
    with started(options.kafka_port) as systems, closing(Worlds(systems)) as worlds, ExitStack() as lanes:
        duels = [
            lanes.enter_context(closing(Duel(worlds, known))) for _ in range(1 if options.replay else options.lanes)
        ]
        run = Run(
            pairs=duels,
            known=known,
            versions=duels[0].versions(),
            controller=lambda: worlds.controller,
            shrink_attempts=options.shrink,
            keep=lambda finding: write(finding, options.out),
        )
        begin = time.monotonic()
        if options.replay:
            for number, file in enumerate(options.replay):
                run.one(duels[0], Case.from_json(json.loads(file.read_text())), number, say)
        else:
            say(f"seed {options.seed}")
            run.go(options.seed, options.cases, options.api, say)
        took = time.monotonic() - begin
    say(f"{run.cases} cases in {took:.0f} s, {len(run.findings)} findings, {run.unconfirmed} not again")
    return 1 if run.findings else 0


def end(number: int, frame: object) -> None:
    """Ends the run, and both clusters with it."""
    del frame
    sys.exit(128 + number)


def say(text: str) -> None:
    print(text, flush=True)


def write(finding: Finding, out: Path) -> None:
    """Writes a finding as a file for `--replay`."""
    out.mkdir(parents=True, exist_ok=True)
    number = len(list(out.glob("*.json"))) + 1
    (out / f"{number}.json").write_text(json.dumps(finding.to_json(), indent=1, default=repr))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="differential", description="compares Harrow with Apache Kafka")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of all cases; default: a new one")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--api", choices=sorted(BASES), help="cases of this request only")
    parser.add_argument("--lanes", type=int, default=LANES, help="cases at the same time")
    parser.add_argument("--replay", type=Path, nargs="+", help="run the cases in these files")
    parser.add_argument("--out", type=Path, default=Path("harrow-out/differential"), help="where findings are written")
    parser.add_argument("--kafka-port", type=int, help="Apache Kafka already runs: node i listens on PORT + i")
    parser.add_argument(
        "--known", type=Path, action="append", help="files of known differences instead of docs/compatibility.toml"
    )
    parser.add_argument("--shrink", type=int, default=60, help="most attempts to make a case smaller")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
