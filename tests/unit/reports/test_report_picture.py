"""The HTML page and the terminal summary are bounded, self-contained and true to the run folder (J8)."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, cast

import pytest
from harrow.cluster.events import TraceEvent
from harrow.cluster.events.brokers import BrokerPlanted, BrokerReady, BrokerRegistered, BrokerStarting
from harrow.cluster.events.partitions import HighWatermarkMoved, PartitionLeader
from harrow.cluster.events.processes import FailpointFired
from harrow.faults.fault_kinds import FAULTS
from harrow.harness.checks.verdict import SCHEMA_VERSION, Status, Verdict
from harrow.harness.histories.format import HistoryWriter, OperationFunction, OperationType
from harrow.harness.reports import terminal_summary, write_picture
from harrow.harness.reports.findings import verdict_model
from harrow.harness.reports.page_model import FaultModel
from harrow.harness.reports.picture import BUCKETS_MOST, build_model
from harrow.harness.reports.summary import fault_marks, sparkline, spread, wrapped
from harrow.harness.reports.timeline import CHANGES_MOST, LANES_MOST
from rich.console import Console
from rich.text import Text
from run_folders import START_NS, make_run_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run_folder(tmp_path / "run")


def summary_of(folder: Path, width: int = 100) -> str:
    out = io.StringIO()
    terminal_summary(folder, Console(file=out, width=width))
    return out.getvalue()


def page_model(page: str) -> Any:
    found = re.search(r'<script id="run" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_writing_the_report_makes_a_self_contained_page_with_the_model(folder: Path) -> None:
    path = write_picture(folder)
    page = path.read_text()
    assert path == folder / "report.html"
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg|http-equiv", "", page)
    assert not re.search(r"%(STYLE|SCRIPT|DATA|TITLE)%", page)
    assert page_model(page) == json.loads(json.dumps(build_model(folder)))
    assert not list(folder.glob("*.partial"))


def test_building_the_model_takes_counts_from_the_history(folder: Path) -> None:
    model = build_model(folder)
    traffic = model["traffic"]
    assert traffic["source"] == "history"
    assert traffic["totals"]["acked"] == traffic["totals"]["delivered"]
    area = sum(traffic["acked"]) * traffic["dt"]
    assert area == pytest.approx(traffic["totals"]["acked"], rel=0.01)
    assert len(traffic["acked"]) <= BUCKETS_MOST + 1
    assert traffic["p50_all"] is not None
    assert traffic["p99_all"] is not None
    assert 0.5 < traffic["p50_all"] < 2 < traffic["p99_all"]


def test_without_histories_the_model_counts_taps_without_replicas_and_internal_topics(tmp_path: Path) -> None:
    history = build_model(make_run_folder(tmp_path / "a"))["traffic"]
    tap = build_model(make_run_folder(tmp_path / "b", tap=True))["traffic"]
    assert tap["source"] == "tap"
    assert tap["totals"]["acked"] == history["totals"]["acked"]
    assert tap["totals"]["failed"] == history["totals"]["failed"]
    assert tap["totals"]["delivered"] >= history["totals"]["delivered"]


def test_quantiles_are_within_five_percent(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "history", process="1") as history:
        for number in range(1, 1_001):
            end = START_NS + number * 1_000_000
            history.append(
                OperationFunction.SEND, OperationType.OK, 0, 0, 0, invoked_ns=end - number * 10_000, time_ns=end
            )
    traffic = build_model(tmp_path)["traffic"]
    assert traffic["p50_all"] == pytest.approx(5.0, rel=0.05)
    assert traffic["p99_all"] == pytest.approx(9.9, rel=0.05)


def test_lanes_show_broker_states_leaders_and_controllers(folder: Path) -> None:
    model = build_model(folder)
    states = {b["id"]: [span["state"] for span in b["spans"]] for b in model["brokers"]}
    assert states[1] == ["starting", "up", "dead", "up"]
    assert states[2] == ["starting", "up"]
    assert states[3] == ["starting", "up", "paused"]
    (dead,) = [s for s in model["brokers"][0]["spans"] if s["state"] == "dead"]
    lane = model["partitions"][0]
    assert [(row["leader"], row["epoch"]) for row in lane["leaders"]] == [(1, 0), (2, 1)]
    assert lane["leaders"][0]["e"] == dead["s"], "a dead leader leads no more"
    assert lane["leaders"][1]["s"] > dead["s"]
    assert [row["broker"] for row in model["controller"]] == [1, 2]
    assert model["controller"][0]["e"] == dead["s"]
    assert model["elections"] == 2
    assert model["internal_partitions"] == 50
    assert [row["isr"] for row in lane["isr"]][1] == [2, 3]


def test_high_watermarks_in_the_model_never_decrease(folder: Path) -> None:
    lanes = build_model(folder)["partitions"]
    assert lanes
    for lane in lanes:
        values = [value for _, value in lane["hw"]]
        assert values == sorted(values)
        assert values[-1] > 0


def test_faults_in_the_model_have_times_and_skipped_faults_a_reason(folder: Path) -> None:
    kill, pause, skipped = build_model(folder)["faults"]
    assert (kill["kind"], kill["nodes"], kill["healed"]) == ("kill", [1], True)
    assert kill["effect"] is not None
    assert kill["s"] < kill["effect"] < kill["e"]
    assert pause["skipped"] is None
    assert skipped["skipped"] == "the traffic had ended"


def test_the_report_of_an_empty_folder_shows_that_nothing_was_recorded(tmp_path: Path) -> None:
    page = write_picture(tmp_path).read_text()
    model = page_model(page)
    assert (model["empty"], model["verdict"], model["brokers"]) == (True, None, [])
    text = summary_of(tmp_path)
    assert "no operations were recorded" in text
    assert "not judged" in text


def test_names_with_html_characters_are_escaped(tmp_path: Path) -> None:
    about = {"test": "test_x[</script><b>]", "seed": 1}
    (tmp_path / "run.json").write_text(json.dumps(about))
    page = write_picture(tmp_path).read_text()
    assert page.count("</script>") == 2
    assert page_model(page)["title"] == about["test"]


def test_damaged_files_do_not_affect_the_rest_of_the_model(folder: Path) -> None:
    (folder / "verdict.json").write_text("{")
    (folder / "cluster/broker-2/trace.jsonl").write_bytes(b"\xff\xfe\n[]\n3\n")
    (folder / "history" / "other.ops").write_bytes(b"x" * 200)
    model = build_model(folder)
    assert model["verdict"] is None
    assert model["traffic"]["totals"]["acked"] > 0
    assert [b["id"] for b in model["brokers"]] == [1, 2, 3]


def test_verdict_of_another_schema_version_is_shown_as_unknown_with_the_remedy(folder: Path) -> None:
    path = folder / "verdict.json"
    old = {**json.loads(path.read_text()), "schema_version": 1}
    path.write_text(json.dumps(old))
    with pytest.raises(ValueError, match=r"schema version 1, .* reads version 3: .*harrow check"):
        Verdict.from_json(path.read_text())
    model = build_model(folder)["verdict"]
    assert model is not None
    assert model["status"] == "unknown"
    assert "schema version 1" in model["reasons"][0]
    assert "schema version 1" in summary_of(folder)


def test_the_model_of_a_large_run_is_bounded(tmp_path: Path) -> None:
    place = tmp_path / "cluster" / "broker-1"
    place.mkdir(parents=True)
    with (place / "trace.jsonl").open("w") as file:
        for number in range(60_000):
            row = {
                "t_ns": START_NS + number * 10_000_000,
                "event": ("partition.leader", "partition.isr", "partition.hw")[number % 3],
                "topic": "t",
                "partition": number % 90,
                "leader": 1,
                "leader_epoch": number,
                "isr": [1],
                "leo": number,
                "hw": number,
                "cause": "append",
            }
            file.write(json.dumps(row) + "\n")
    model = build_model(tmp_path)
    assert len(model["partitions"]) == LANES_MOST
    assert model["partitions_hidden"] == 50
    assert all(len(lane["leaders"]) <= CHANGES_MOST for lane in model["partitions"])
    assert all(len(lane["hw"]) <= BUCKETS_MOST + 1 for lane in model["partitions"])


def test_a_large_verdict_is_shortened_with_the_number_of_hidden_rows() -> None:
    anomaly = {"name": "duplicate", "operations": [{"op": 1}] * 90, "offsets": list(range(500))}
    stored = {"schema_version": SCHEMA_VERSION, "status": "invalid", "anomalies": [anomaly] * 300}
    cut = verdict_model(stored)
    assert cut is not None
    assert (len(cut["anomalies"]), cut["anomalies_hidden"]) == (60, 240)
    assert cut["anomalies"][0]["operations_hidden"] == 78
    assert cut["anomalies"][0]["offsets_hidden"] == 488


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (Status.VALID, "VALID"),
        (Status.INVALID, "2 records were acknowledged or read, and are not in the topic any more"),
        (Status.UNKNOWN, "unknown: no fault overlapped traffic"),
    ],
)
def test_the_summary_shows_status_and_faults_in_a_few_lines(tmp_path: Path, status: Status, says: str) -> None:
    text = summary_of(make_run_folder(tmp_path / "run", status=status))
    assert says in text
    assert "kill(leader(orders, 0)) on broker 1" in text
    assert "2 of partition leaders (orders-0, orders-2), 1 of the controller" in text
    assert len(text.splitlines()) <= 12


def test_a_long_cause_is_wrapped_between_words_below_its_first_word_in_a_terminal() -> None:
    cause = "cause: " + "broker 2 was isolated from 0.14 s to 4.16 s " * 4
    line = Text(" " * 15 + cause)
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    first, *others = (part.plain for part in wrapped(line, console))
    assert first.startswith(" " * 15 + "cause: broker 2")
    assert len(others) > 1
    assert all(part.startswith(" " * 15) and part[15] != " " for part in others)
    assert max(map(len, (first, *others))) <= 80
    assert " ".join(" ".join((first, *others)).split()) == cause.strip()


def test_a_sparkline_has_the_requested_width() -> None:
    assert spread([1.0] * 7, 20) == [1.0] * 20
    assert sparkline([0, 1, 2, 4]) == " ▂▄█"
    row = {"s": 5.0, "e": 10.0, "kind": "pause", "skipped": None}
    assert fault_marks([cast("FaultModel", row)], 10.0, 10) == "     ‖────"


def test_writing_the_report_uses_the_given_seed_and_command(folder: Path) -> None:
    model = page_model(write_picture(folder, seed=5, command="again").read_text())
    assert (model["seed"], model["command"]) == ("5", "again")
    (folder / "run.json").unlink()
    assert build_model(folder, command="again")["title"] == folder.name
    named = build_model(folder, command="pytest 'tests/t.py::test_a[b c]' --harrow-seed=5")
    assert named["title"] == "tests/t.py::test_a[b c]"
    assert build_model(folder, command="pytest 'open")["title"] == folder.name


def test_a_new_epoch_of_the_same_leader_is_no_election_and_a_crash_shows(tmp_path: Path) -> None:
    def leads(epoch: int) -> PartitionLeader:
        return PartitionLeader(topic="t", partition=0, leader=1, leader_epoch=epoch, isr=(1,))

    trace_of_broker_1(
        tmp_path,
        (0, READY),
        (1, leads(0)),
        (2, leads(1)),
        (3, FailpointFired(name="log.after-append", action="crash", hit=1)),
        (4, READY),
        (5, leads(2)),
        (9, REGISTERED),
    )
    model = build_model(tmp_path)
    assert model["elections"] == 1
    assert [span["state"] for span in model["brokers"][0]["spans"]] == ["up", "dead", "up"]
    assert model["brokers"][0]["marks"][0]["kind"] == "failpoint.fired"
    assert model["partitions"][0]["leaders"][1]["e"] == 3


STARTING, READY, PLANTED = BrokerStarting(node_id=1), BrokerReady(node_id=1), BrokerPlanted(plants=())
REGISTERED = BrokerRegistered(node_id=1, epoch=7)
MOVED = HighWatermarkMoved(topic="__consumer_offsets", partition=0, hw=1, leo=1, cause="append")


def trace_of_broker_1(folder: Path, *events: tuple[float, TraceEvent]) -> None:
    place = folder / "cluster" / "broker-1"
    place.mkdir(parents=True)
    rows: list[dict[str, Any]] = [
        {"t_ns": START_NS + int(at * 1e9), "event": event.event_name, **event.fields()} for at, event in events
    ]
    (place / "trace.jsonl").write_text("\n".join(map(json.dumps, rows)))


def lane_of_broker_1(folder: Path) -> list[tuple[str, float, float]]:
    spans = build_model(folder)["brokers"][0]["spans"]
    return [(span["state"], span["s"], span["e"]) for span in spans]


def test_a_broker_that_ended_without_a_word_is_dead_from_its_last_event_on(tmp_path: Path) -> None:
    trace_of_broker_1(
        tmp_path,
        (0, STARTING),
        (1, READY),
        (3, MOVED),
        (5, PLANTED),
        (5.1, STARTING),
        (5.5, REGISTERED),
        (6, READY),
        (8, MOVED),
    )
    assert lane_of_broker_1(tmp_path) == [("starting", 0, 1), ("up", 1, 3), ("dead", 3, 6), ("up", 6, 8)]


@pytest.mark.parametrize("kind", sorted(kind for kind, fault in FAULTS.items() if fault.ends_process))
def test_every_fault_that_ends_a_process_shows_its_broker_dead(tmp_path: Path, kind: str) -> None:
    later = [(4, STARTING), (5, READY), (9, MOVED)]
    trace_of_broker_1(tmp_path, (0, STARTING), (1, READY), (2, MOVED), *later)
    rows = [
        {"t_ns": START_NS + int(at * 1e9), "event": event, "id": "f1", "fault": kind, "targets": [1]}
        for at, event in ((2.8, "inject"), (3.0, "effect"), (5.0, "heal"), (5.0, "healed"))
    ]
    (tmp_path / "faults.jsonl").write_text("\n".join(map(json.dumps, rows)))
    # a fault that hits one broker after the other has one effect for all of them: the last event says more
    dead = 2 if FAULTS[kind].one_at_a_time else 3
    assert lane_of_broker_1(tmp_path) == [("starting", 0, 1), ("up", 1, dead), ("dead", dead, 5), ("up", 5, 9)]


def test_anomalies_have_the_time_of_their_lane_and_exact_texts(tmp_path: Path) -> None:
    folder = make_run_folder(tmp_path / "run", status=Status.INVALID)
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "started_ns": START_NS, "seed": 2**63 - 25}))
    stored = json.loads((folder / "verdict.json").read_text())
    stored |= {"started_ns": START_NS, "causes": {"lost-write": ["broker 1 was killed at 7.20 s"]}}
    (folder / "verdict.json").write_text(json.dumps(stored))
    model = build_model(folder)
    assert model["seed"] == "9223372036854775783", "a number of JavaScript would be rounded"
    verdict = model["verdict"]
    assert verdict is not None
    (kind,) = verdict["kinds"]
    assert kind["causes"] == ["broker 1 was killed at 7.20 s"]
    (anomaly,) = verdict["anomalies"]
    assert anomaly["place"] in [lane["name"] for lane in model["partitions"]]
    assert anomaly["t"] == pytest.approx(7.2)
    assert anomaly["operations"][0] == {
        "what": "sent at 7.20 s, acknowledged at 7.21 s",
        "where": "offset 1204",
        "key": "order-81",
        "value": "",
        "id": "",
        "client": "app-1",
        "more": "",
    }


def test_every_kind_of_anomaly_is_on_the_page_however_many_the_worst_has() -> None:
    many = [{"name": "lost-write", "topic": "t", "partition": 0}] * 10_000
    rare = [{"name": "duplicate", "topic": "t", "partition": 1}]
    cut = verdict_model({"schema_version": SCHEMA_VERSION, "status": "invalid", "anomalies": many + rare})
    assert cut is not None
    assert {row["name"] for row in cut["anomalies"]} == {"lost-write", "duplicate"}
    assert len(cut["anomalies"]) + cut["anomalies_hidden"] == 10_001


def test_events_of_earlier_tests_on_a_shared_cluster_are_not_drawn(folder: Path) -> None:
    whole = build_model(folder)
    later_ns = START_NS + 12_000_000_000  # after the kill and its election
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "started_ns": later_ns}))
    model = build_model(folder)
    assert whole["elections"] == 2
    assert model["elections"] == 1
    assert model["duration"] == pytest.approx(whole["duration"] - 12, abs=0.1)
    lane = model["partitions"][0]
    assert (lane["leaders"][0]["s"], lane["leaders"][0]["leader"]) == (0, 2), "the leader at the start"
    spans = [span for broker in model["brokers"] for span in broker["spans"]]
    assert min(span["s"] for span in spans) == 0
    assert all(mark["t"] >= 0 for broker in model["brokers"] for mark in broker["marks"])


def test_reads_of_a_client_without_recorder_are_counted_by_the_taps(tmp_path: Path) -> None:
    folder = make_run_folder(tmp_path / "run", tap=True)
    tapped = build_model(folder)
    with HistoryWriter(folder / "history") as history:
        who, topic = history.name("app"), history.name("orders")
        for number in range(5):
            history.append(
                OperationFunction.SEND,
                OperationType.OK,
                who,
                topic,
                0,
                number,
                invoked_ns=START_NS,
                time_ns=START_NS + 1,
            )
    model = build_model(folder)
    traffic = model["traffic"]
    assert (traffic["source"], traffic["delivered_source"]) == ("history", "tap")
    assert traffic["totals"]["acked"] == 5
    assert traffic["totals"]["delivered"] == tapped["traffic"]["totals"]["delivered"]
