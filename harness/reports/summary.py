"""The summary of a run in the terminal: a sparkline of the throughput with the faults below it, elections, the verdict.

Owns: `terminal_summary`. It uses the model of the report page, so both show the same data. May fail: OSError of the
console.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.faults.fault_kinds import recorded_kind

from .page_model import FaultModel, PageModel
from .picture import build_model

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

BARS = " ▁▂▃▄▅▆▇█"
WIDTH_MOST = 72
WIDTH_LEAST = 16
MARGIN = 14
LABEL = 11
"""Columns of the words before a row."""
STYLES = {"valid": "bold green", "invalid": "bold red", "unknown": "bold yellow"}
FAULTS_MOST = 8
KINDS_MOST = 6
REASONS_MOST = 5


def terminal_summary(folder: Path, console: Console) -> None:
    """Print about ten lines on the run in `folder`."""
    model = build_model(Path(folder))
    width = max(WIDTH_LEAST, min(WIDTH_MOST, console.width - MARGIN))
    for line in _lines(model, width):
        for part in wrapped(line, console) if console.is_terminal else [line]:
            console.print(part, soft_wrap=True)


def wrapped(line: Text, console: Console) -> list[Text]:
    """Return a line as lines of the terminal's width, between words, the later ones below the first one's text.

    Elsewhere a line stays whatever its length, so that a search finds it.
    """
    from rich.text import Text

    plain = line.plain
    label = 2 + LABEL if plain.startswith("  ") else 0
    indent = label + len(plain[label:]) - len(plain[label:].lstrip())
    if console.width <= indent + LABEL or len(plain) <= console.width:
        return [line]
    first, *others = line[indent:].wrap(console, console.width - indent)
    rest = [Text(" " * indent).append_text(part) for part in others]
    return [line[:indent].append_text(first), *rest]


def _lines(model: PageModel, width: int) -> list[Text]:
    lines = [_headline(model)]
    lines += [_row("PLANTED BUG", bug, "bold magenta") for bug in model["planted"]]
    lines += _throughput(model, width)
    lines += _faults(model)
    lines.append(_elections(model))
    lines += _verdict(model)
    return lines


def _row(label: str, content: str | Text, style: str = "") -> Text:
    from rich.text import Text

    row = Text(f"  {label:<{LABEL}}", style="dim")
    return row.append_text(content if isinstance(content, Text) else Text(content, style=style))


def _headline(model: PageModel) -> Text:
    from rich.text import Text

    line = Text(str(model["title"]), style="bold")
    about = f"  {model['duration']:.1f} s, {len(model['brokers'])} brokers"
    if model["seed"] is not None:
        about += f", seed {model['seed']}"
    if model["security"]:
        about += f", clients by {model['security']}"
    return line.append(about, style="dim")


def _throughput(model: PageModel, width: int) -> list[Text]:
    from rich.text import Text

    traffic = model["traffic"]
    if traffic["source"] == "none":
        return [_row("throughput", "no operations were recorded", "dim")]
    cells = spread(traffic["acked"], width)
    line = Text(sparkline(cells), style="cyan")
    line.append(f"  peak {max(cells):,.0f}/s", style="dim")
    lines = [_row("throughput", line)]
    marks = fault_marks(model["faults"], float(model["duration"]), width)
    if marks.strip():
        lines.append(_row("faults", marks.rstrip(), "red"))
    totals = traffic["totals"]
    counts = f"{totals['acked']:,} acknowledged, {totals['delivered']:,} delivered"
    counts += f", {totals['failed']:,} failed" if totals["failed"] else ""
    if traffic["p50_all"] is not None:
        counts += f"; p50 {traffic['p50_all']:.3g} ms, p99 {traffic['p99_all']:.3g} ms"
    lines.append(_row("", counts))
    return lines


def spread(values: Sequence[float], width: int) -> list[float]:
    """Return the averages of `values` in `width` cells."""
    cells: list[float] = []
    for cell in range(width):
        low = cell * len(values) // width
        high = max(low + 1, (cell + 1) * len(values) // width)
        part = values[low:high]
        cells.append(sum(part) / len(part) if part else 0.0)
    return cells


def sparkline(cells: Sequence[float]) -> str:
    """Return one character for each cell. A value above 0 is visible; a burst does not flatten the other cells."""
    busy = sorted(value for value in cells if value > 0)
    if not busy:
        return BARS[1] * len(cells)
    top = min(busy[-1], 2 * busy[len(busy) // 2])
    steps = len(BARS) - 1
    return "".join(BARS[min(steps, max(1, round(value / top * steps)))] if value > 0 else BARS[0] for value in cells)


def fault_marks(faults: Sequence[FaultModel], duration: float, width: int) -> str:
    """Return the line below the sparkline: a sign at the start of each fault, then a line until its end."""
    row = [" "] * width
    happened = [fault for fault in faults if fault["skipped"] is None]
    for fault in happened:
        for cell in range(_cell(fault["s"], duration, width), _cell(fault["e"], duration, width) + 1):
            row[cell] = "─"
    for fault in happened:
        row[_cell(fault["s"], duration, width)] = recorded_kind(fault["kind"]).mark()
    return "".join(row)


def _cell(at: float, duration: float, width: int) -> int:
    return max(0, min(width - 1, int(at / max(duration, 1e-9) * width)))


def _faults(model: PageModel) -> list[Text]:
    happened = [fault for fault in model["faults"] if fault["skipped"] is None]
    lines: list[Text] = []
    for fault in happened[:FAULTS_MOST]:
        where = ", ".join(str(node) for node in fault["nodes"])
        where = f"broker {where}" if where else fault["beside"] or "the registry"
        until = f"{fault['e']:.2f} s" if fault["healed"] else "the end"
        proof = "" if fault["effect"] is not None else "  (its effect was not proved)"
        sign = recorded_kind(fault["kind"]).mark()
        text = f"{sign} {fault['label']} on {where}, {fault['s']:.2f} s to {until}{proof}"
        lines.append(_row("", text))
    if len(happened) > FAULTS_MOST:
        lines.append(_row("", f"… {len(happened) - FAULTS_MOST} more", "dim"))
    return lines


def _elections(model: PageModel) -> Text:
    again = max(0, model["controller_elections"] - 1)
    moved = [lane["name"] for lane in model["partitions"] if lane["elections"]]
    text = f"{model['elections']} of partition leaders"
    if moved:
        text += f" ({', '.join(moved[:4])}{', …' if len(moved) > 4 else ''})"
    return _row("elections", f"{text}, {again} of the controller")


def _verdict(model: PageModel) -> list[Text]:
    from rich.text import Text

    verdict = model["verdict"]
    if verdict is None:
        return [_row("verdict", "not judged", "bold yellow")]
    status = str(verdict["status"])
    line = Text(status.upper(), style=STYLES.get(status, "bold"))
    line.append(f"  {', '.join(verdict['guarantees'])}")
    if verdict["guarantee_reason"]:
        line.append(f" ({verdict['guarantee_reason']})", style="dim")
    lines = [_row("verdict", line)]
    for kind in verdict["kinds"][:KINDS_MOST]:
        allowed = f"; {', '.join(verdict['guarantees'])} allows this" if kind["allowed"] else ""
        lines.append(_row("", kind["text"] + allowed, "" if kind["allowed"] else "red"))
        lines += [_row("", f"  cause: {cause}") for cause in kind["causes"]]
    if len(verdict["kinds"]) > KINDS_MOST:
        lines.append(_row("", f"… {len(verdict['kinds']) - KINDS_MOST} more kinds", "dim"))
    lines += [_row("", f"unknown: {reason}") for reason in verdict["reasons"][:REASONS_MOST]]
    return lines
