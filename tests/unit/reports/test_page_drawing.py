"""What the script of the report page draws: every point, no mark over a label, no empty time, words with links (J8).

The script runs in Node.js with a stand-in for the browser (`support/page_dom.js`); without Node.js these are skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from harrow.harness.checks.verdict import Status
from harrow.harness.reports.page_model import PageModel
from harrow.harness.reports.picture import build_model, render
from run_folders import make_run_folder

NODE = shutil.which("node") or ""
DOM = Path(__file__).parents[2] / "support" / "page_dom.js"
WIDE, NARROW = 1_200, 380
Element = dict[str, Any]
Model = dict[str, Any]
"""A `PageModel` that a test changes."""
pytestmark = pytest.mark.skipif(not NODE, reason="Node.js is not installed")


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return cast("Model", build_model(make_run_folder(tmp_path / "run", status=Status.INVALID)))


@pytest.fixture
def draw(tmp_path: Path) -> Callable[..., Element]:
    def drawn(model: Model, width: int = WIDE) -> Element:
        page = tmp_path / "page.html"
        page.write_text(render(cast("PageModel", model)))
        ran = subprocess.run(
            [NODE, str(DOM), str(page), str(width)], capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, ran.stderr
        found: Element = json.loads(ran.stdout)
        return found

    return drawn


def elements(root: Element, tag: str, name: str = "") -> Iterator[Element]:
    for kid in root["kids"]:
        if kid["tag"] == tag and name in kid["attrs"].get("class", ""):
            yield kid
        yield from elements(kid, tag, name)


def card(page: Element, title: str) -> Element:
    return next(box for box in page["kids"] if box["text"].startswith(title))


def number(element: Element, name: str) -> float:
    return float(element["attrs"][name])


def test_a_latency_without_neighbours_in_time_is_a_point(model: Model, draw: Callable[..., Element]) -> None:
    buckets = len(model["traffic"]["p50"])
    for name in ("p50", "p99"):
        model["traffic"][name] = [None] * buckets
    model["traffic"]["p50"][buckets // 2] = 3.0
    model["traffic"]["p50"][-2:] = [1.0, 2.0]
    model["traffic"]["p99"][0] = 40.0
    dots = list(elements(card(draw(model), "Latency"), "circle"))
    assert [dot["attrs"]["fill"] for dot in dots] == ["var(--p99)", "var(--p50)"]


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("brokers", [True, False])
def test_what_stands_beside_the_brokers_has_its_lane_below_them_and_without_them(
    model: Model, draw: Callable[..., Element], width: int, brokers: bool
) -> None:
    model["brokers"] = model["brokers"] if brokers else []
    model["beside"] = [
        {
            "name": "store",
            "kind": "dependency",
            "marks": [{"t": 9, "text": "connections were reset"}],
            "spans": [{"s": 8, "e": 16, "state": "isolated", "text": "cut off"}],
        },
        {
            "name": "billing",
            "kind": "program",
            "marks": [],
            "spans": [{"s": 10, "e": 18, "state": "dead", "text": "dead"}],
        },
    ]
    (chart,) = elements(card(draw(model, width), "Cluster"), "svg")
    height = float(chart["attrs"]["viewBox"].split()[-1])
    bars = {bar["attrs"]["fill"]: bar for bar in elements(chart, "rect")}
    store, billing = bars["var(--isolated)"], bars["var(--dead)"]
    assert number(store, "y") + number(store, "height") <= number(billing, "y")
    assert number(billing, "y") + number(billing, "height") < height
    lanes = [text["text"] for text in elements(chart, "text", "lane")]
    assert lanes[-2].startswith("store")
    assert lanes[-1].startswith("billing")
    assert {"cut off", "dead"} <= {text["text"] for text in elements(chart, "text", "solid")}


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_marks_of_anomalies_cover_neither_labels_nor_each_other(
    model: Model, draw: Callable[..., Element], width: int
) -> None:
    first = model["verdict"]["anomalies"][0]
    times = [n * model["duration"] / 40 for n in range(41)]
    model["verdict"]["anomalies"] = [{**first, "place": "orders-1", "t": at} for at in times for _ in range(12)]
    box = card(draw(model, width), "Partitions")
    marks = list(elements(box, "g", "mark"))
    assert len(marks) > 3
    circles = [circle for mark in marks for circle in elements(mark, "circle")]
    centers = [(number(circle, "cx"), number(circle, "cy")) for circle in circles]
    xs = [x for x, _ in centers]
    apart = [after - before for before, after in pairwise(xs)]
    assert min(apart) >= 60, "the number beside a mark ends before the next mark"
    ys = {y for _, y in centers}
    assert len(ys) == 1
    (y,) = ys
    inside = {id(text) for mark in marks for text in elements(mark, "text")}
    for text in elements(box, "text"):
        if id(text) not in inside and text["attrs"].get("class") != "num":
            covered = abs(number(text, "y") - 4 - y) < 8 + 5 and number(text, "x") >= xs[0] - 8
            assert not covered, text
    leaders = [bar for bar in elements(box, "rect") if number(bar, "height") == 18]
    assert leaders
    for bar in leaders:
        assert not number(bar, "y") - 8 < y < number(bar, "y") + 18 + 8, "a mark is on a leader's bar"
    for text in (text for mark in marks for text in elements(mark, "text")):
        end = number(text, "x") + (20 if text["attrs"]["text-anchor"] == "start" else 0)
        assert end <= width, "the number of the last mark is inside of the card"


def test_the_time_axis_begins_just_before_the_first_event(tmp_path: Path, draw: Callable[..., Element]) -> None:
    folder = make_run_folder(tmp_path / "run")
    about = json.loads((folder / "run.json").read_text())
    rows = [json.loads(line) for line in (folder / "faults.jsonl").read_text().splitlines()[:-1]]
    assert build_model(folder)["from"] == 0, "the traffic begins at once"
    started = min(row["t_ns"] for row in rows) - 60_000_000_000
    (folder / "run.json").write_text(json.dumps({**about, "started_ns": started}))
    model = build_model(folder)
    first = next(n for n, rate in enumerate(model["traffic"]["acked"]) if rate) * model["traffic"]["dt"]
    assert 0 < first - model["from"] < 0.05 * model["duration"]
    page = draw(model)
    axis = [text["text"] for text in elements(card(page, "Throughput"), "text", "num")]
    assert next(float(text[:-2]) for text in axis if text.endswith(" s")) >= model["from"]
    assert f"The charts begin at {model['from']:.2f} s" in page["text"]


def test_each_kind_guarantee_and_tile_links_to_its_sentence_on_the_page(
    model: Model, draw: Callable[..., Element]
) -> None:
    page = draw(model)
    links = {link["text"]: link["attrs"] for link in elements(page, "a", "word")}
    assert {"no-loss", "ordered", "lost-write", "Anomalies", "Unacknowledged"} <= links.keys()
    targets = {term["attrs"]["id"] for term in elements(page, "dt")}
    assert {attrs["href"].removeprefix("#") for attrs in links.values()} <= targets
    assert all(attrs["title"].endswith(".") for attrs in links.values())


def test_a_number_of_hidden_rows_names_its_limit(model: Model, draw: Callable[..., Element]) -> None:
    first = model["verdict"]["anomalies"][0]
    model["verdict"].update(
        anomalies=[first] * 39, anomalies_each=60, anomalies_hidden=5, reasons_hidden=3, notes_hidden=2
    )
    fault = model["faults"][0]
    model["faults"] = [{**fault, "s": fault["s"] + n / 100} for n in range(9)]
    text = draw(model)["text"]
    assert "38 more examples; this page has at most 60 of each kind" in text
    assert "5 more examples in verdict.json, which has the first of each kind and partition" in text
    assert "3 more reasons in verdict.json; the page has the first" in text
    assert "2 more in verdict.json" in text
    assert "+4 without name" in text
