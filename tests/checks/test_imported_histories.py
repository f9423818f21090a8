"""Files of operations in each format: what they mean, and errors with the line and the remedy (L1, N1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from harrow.harness.checks import Verdict
from harrow.harness.checks.imported import judge_history, read_history_file
from harrow.harness.commands import cli
from harrow.harness.histories.format import OperationType
from harrow.harness.histories.imported.edn import read_edn
from harrow.harness.histories.imported.errors import ImportedHistoryError

Judge = Callable[..., Verdict]
COLUMNS = "process,type,f,topic,partition,offset,value,op,time,invoked,txn"


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    def judge_text(name: str, text: str, **options: Any) -> Verdict:
        file = tmp_path / name
        file.write_text(text)
        return judge_history(read_history_file(file), tmp_path / "run", engine="inline", **options)

    return judge_text


def csv(*rows: str) -> str:
    return "\n".join([COLUMNS, *rows]) + "\n"


def lines(*rows: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def problem(tmp_path: Path, name: str, text: str) -> str:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ImportedHistoryError) as error:
        read_history_file(file)
    return str(error.value)


def test_edn_is_read_with_its_lines_and_what_jepsen_writes_beside_operations() -> None:
    text = """; a comment
    #jepsen.history.Op{:index 0, :time 1N, :error [:crash "a \\"b\\"\\n"], #_ :left-out :f :send
     :value [[:send 3 [nil \\a]]] :set #{1 2}}
    #_{:not read} (1 -2.5e3 1/4 true nil) {[1 2] :pair}"""
    first, second, third = read_edn(text, "f.edn")
    assert (first.line, second.line, third.line) == (2, 4, 4)
    assert first.value == {
        "index": 0,
        "time": 1,
        "error": ["crash", 'a "b"\n'],
        "f": "send",
        "value": [["send", 3, [None, "a"]]],
        "set": [1, 2],
    }
    assert second.value == [1, -2500.0, 0.25, True, None]
    assert third.value == {(1, 2): "pair"}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("h.edn", "{:a 1}\n{:b [1}\n", "h.edn, line 2: '}' closes nothing, expected ]"),
        ("h.edn", "{:a\n 1 :b}", "h.edn, line 1: a map has a key without a value"),
        ("h.edn", "{:f :poll\n :value [", "h.edn, line 2: '[' is never closed; the file may be cut off"),
        ("h.edn", ":ok", "h.edn, line 1: 'ok' is no map"),
        ("h.jsonl", '{"f": "send"}\n\n{"f"\n', "h.jsonl, line 3: no JSON"),
        ("h.jsonl", "[1]\n", "h.jsonl, line 1: '[1]' is no object; write one JSON object a line"),
        ("h.jsonl", '{"f": "send", "type": "ok"}\n', "h.jsonl, line 1: no process; every row has process"),
        ("h.txt", "x", "h.txt: the format is not known by the name's end '.txt'; name the file with one of .jsonl"),
        ("h.csv", COLUMNS + "\n", "h.csv: the file has no operation"),
        ("h.csv", csv("1,ok,send,x,0,0,a,,,,,,,"), "h.csv, line 2: the row has more cells than the heading"),
        ("h.csv", csv("1,done,send,x,0,0,a"), "line 2: the type is 'done'; expected one of invoke, ok, fail, info"),
        ("h.csv", csv("1,ok,write,x,0,0,a"), "h.csv, line 2: the operation f is 'write'; expected one of send, poll"),
        ("h.csv", csv("1,ok,poll,x,,0,a"), "h.csv, line 2: poll has no partition"),
        ("h.csv", csv("1,ok,send,x,0,first,a"), "h.csv, line 2: offset is 'first'; expected a whole number"),
        ("h.csv", csv("1,ok,send,x,0,0,a,,7", "1,ok,send,x,0,1,b"), "line 3: no time, although line 2 has one"),
        ("h.csv", csv("1,ok,send,x,0,0,a,,7,9"), "line 2: it ends before it begins"),
        ("h.csv", csv("1,ok,txn,,,,"), "line 2: txn has no name; name the transaction in the column txn"),
        ("h.csv", csv("1,invoke,send,x,0,,a", "1,invoke,send,x,0,,b"), "began on line 2 and has not ended"),
        ("h.csv", csv("1,invoke,send,x,0,,a", "1,ok,poll,x,0,0,b"), "line 3: poll completes the send of line 2"),
        ("h.edn", "{:process 0 :type :ok :f :poll :value [[:read 1]]}", "['read', 1] is no micro-operation"),
        ("h.edn", "{:process 0 :type :ok :f :poll :value [[:poll {:x [1]}]]}", "1 is no [offset, value]"),
        ("h.edn", "{:process 0 :type :ok :f :send}", "send has neither a topic nor a value"),
        ("h.jsonl", lines({"process": 1, "type": "ok", "f": "producer", "acks": 2}), "a producer with acks='2'"),
    ],
)
def test_an_error_names_the_line_and_the_remedy(name: str, text: str, says: str, tmp_path: Path) -> None:
    said = problem(tmp_path, name, text)
    assert says in said
    assert said.endswith("(docs/histories.md)")


def test_the_same_history_is_judged_alike_in_every_format(judge: Judge, tmp_path: Path) -> None:
    flat = [
        {"process": "0", "type": "ok", "f": "send", "topic": "x", "partition": 0, "offset": 0, "value": "a"},
        {"process": "0", "type": "ok", "f": "send", "topic": "x", "partition": 0, "offset": 1, "value": "b"},
        {"process": "1", "type": "ok", "f": "poll", "topic": "x", "partition": 0, "offset": 1, "value": "b"},
    ]
    maps = [
        {"process": 0, "type": "ok", "f": "send", "value": [["send", "x", [0, "a"]], ["send", "x", [1, "b"]]]},
        {"process": 1, "type": "ok", "f": "poll", "value": [["poll", {"x": [[1, "b"]]}]]},
    ]
    edn = "\n".join(
        [
            "{:process 0 :type :ok :f :send :value [[:send :x [0 :a]] [:send :x [1 :b]]]}",
            "{:process 1 :type :ok :f :poll :value [[:poll {:x [[1 :b]]}]]}",
        ]
    )
    cells = csv(*(",".join(str(value) for value in row.values()) for row in flat))
    texts = {"a.jsonl": lines(*flat), "b.jsonl": lines(*maps), "c.edn": edn, "d.edn": f"[{edn}]", "e.csv": cells}
    for name, text in texts.items():
        file = tmp_path / name
        file.write_text(text)
        verdict = judge_history(read_history_file(file), tmp_path / f"run-{name}", engine="inline")
        assert verdict.anomaly_counts == {"lost-write": 1}, name
        assert "no reader received it, although readers received offsets up to 1" in str(verdict)


def test_sends_that_overlap_are_paired_by_their_number(judge: Judge) -> None:
    verdict = judge(
        "h.csv",
        csv(
            "1,invoke,send,x,0,,a,1",
            "1,invoke,send,x,0,,b,2",
            "1,ok,send,x,0,1,b,2",
            "1,ok,send,x,0,0,a,1",
            "2,ok,poll,x,0,0,a",
            "2,ok,poll,x,0,1,b",
        ),
    )
    assert verdict.valid, str(verdict)
    assert verdict.operation_counts["acknowledged"] == 2


def test_an_invocation_without_completion_may_have_happened(tmp_path: Path) -> None:
    file = tmp_path / "h.csv"
    file.write_text(csv("1,invoke,send,x,0,,a", "2,ok,poll,x,0,0,a"))
    outcomes = [row.outcome for row in read_history_file(file).operations if row.sent]
    assert outcomes == [OperationType.INFO]


def test_a_final_read_shows_a_loss_at_the_end(judge: Judge) -> None:
    verdict = judge(
        "h.csv", csv("1,ok,send,x,0,0,a", "1,ok,send,x,0,1,b", "9,ok,final-read,x,0,0,a", "9,ok,end,x,0,1,")
    )
    assert verdict.anomaly_counts == {"lost-write": 1}
    assert "the final high watermark is 1" in str(verdict)


def test_a_transaction_of_rows_has_the_outcome_of_its_own_row(judge: Judge) -> None:
    verdict = judge(
        "h.csv",
        csv(
            "1,ok,send,x,0,0,a,,,,t1",
            "1,ok,txn,,,,,,,,t1",
            "1,ok,send,x,0,2,b,,,,t2",
            "1,fail,txn,,,,,,,,t2",
            "2,ok,poll,x,0,0,a",
            "2,ok,poll,x,0,2,b",
        ),
    )
    assert verdict.guarantees == ("exactly-once", "ordered"), "a transaction needs an idempotent producer"
    assert verdict.anomaly_counts == {"failed-write": 1}


def test_readers_of_uncommitted_data_may_receive_aborted_records(judge: Judge) -> None:
    sent = ("1,ok,send,x,0,0,c", "1,ok,send,x,0,1,a,,,,t1", "1,fail,txn,,,,,,,,t1")
    text = csv(*sent, "2,ok,poll,x,0,0,c", "2,ok,poll,x,0,1,a")
    assert judge("h.csv", text, reads_committed=False).valid


def test_the_settings_of_producers_derive_the_guarantee(judge: Judge) -> None:
    rows = [
        {"process": 1, "type": "ok", "f": "producer", "acks": 1, "idempotent": False},
        {"process": 1, "type": "ok", "f": "send", "topic": "x", "partition": 0, "offset": 0, "value": {"n": 1}},
        {"process": 2, "type": "ok", "f": "poll", "topic": "x", "partition": 0, "offset": 0, "value": {"n": 1}},
    ]
    verdict = judge("h.jsonl", lines(*rows))
    assert verdict.guarantees == ("best-effort",)
    assert "acks=1" in str(verdict.guarantee_reason)


def test_an_assignment_of_several_rows_is_one(judge: Judge) -> None:
    """Both partitions stay assigned, so that their positions stay, and offset 1 of partition 0 was passed over."""
    sent = [f"1,ok,send,x,0,{at},{at}" for at in range(3)] + ["1,ok,send,x,1,0,z"]
    read = [f"3,ok,poll,x,0,{at},{at}" for at in range(3)] + ["3,ok,poll,x,1,0,z"]
    both = ["2,ok,assign,x,0,,", "2,ok,assign,x,1,,"]
    own = [*both, "2,ok,poll,x,0,0,0", *both, "2,ok,poll,x,0,2,2"]
    assert judge("h.csv", csv(*sent, *read, *own)).anomaly_counts == {"poll-skip": 1}


def test_a_seek_may_jump(judge: Judge) -> None:
    sent = [f"1,ok,send,x,0,{at},{at}" for at in range(3)]
    read = [f"3,ok,poll,x,0,{at},{at}" for at in range(3)]
    own = ["2,ok,assign,x,0,,", "2,ok,poll,x,0,0,0", "2,ok,seek,x,0,,", "2,ok,poll,x,0,2,2"]
    assert not judge("h.csv", csv(*sent, *read, *own)).anomaly_counts


def test_rows_of_one_poll_are_compared_with_subscribe(judge: Judge) -> None:
    """A rebalance may move the position between two polls, but not within one."""
    sent = [f"1,ok,send,x,0,{at},{at}" for at in range(3)]
    read = [f"3,ok,poll,x,0,{at},{at}" for at in range(3)]
    in_a_poll = ["2,ok,subscribe,x,,,", "2,ok,poll,x,0,0,0,7", "2,ok,poll,x,0,2,2,7"]
    between = ["4,ok,subscribe,x,,,", "4,ok,poll,x,0,0,0,8", "4,ok,poll,x,0,2,2,9"]
    assert judge("h.csv", csv(*sent, *read, *in_a_poll, *between)).anomaly_counts == {"poll-skip": 1}


def test_operations_of_other_kinds_are_counted(judge: Judge) -> None:
    verdict = judge(
        "h.edn",
        "{:process :nemesis :type :info :f :kill :value nil}\n{:process 0 :type :info :f :crash}\n"
        "{:process 0 :type :ok :f :send :value [[:send 1 [0 5]]]}\n"
        "{:process 1 :type :ok :f :poll :value [[:poll {1 [[0 5]]}]]}",
    )
    assert verdict.valid
    assert "2 rows of other kinds were not read: crash, kill" in verdict.notes


def test_the_command_refuses_both_and_neither_and_a_file_that_it_cannot_read(tmp_path: Path) -> None:
    file = tmp_path / "h.csv"
    file.write_text(csv("1,ok,send,x,0,zero,a"))
    out = ("--out", str(tmp_path / "out"))
    for arguments in ((), (str(tmp_path), "--history", str(file)), (str(tmp_path), "--read-uncommitted")):
        ran = CliRunner().invoke(cli, ["check", *arguments, *out])
        assert ran.exit_code == 2, ran.output
        assert "--history" in ran.output
    ran = CliRunner().invoke(cli, ["check", "--history", str(file), *out])
    assert ran.exit_code == 1
    assert "line 2: offset is 'zero'" in str(ran.exception)
    assert not (tmp_path / "out").exists(), "nothing was written"


def test_the_command_judges_a_history_and_its_run_folder_again(tmp_path: Path) -> None:
    file = tmp_path / "h.csv"
    file.write_text(csv("1,ok,send,x,0,0,a", "2,ok,poll,x,0,0,a"))
    ran = CliRunner().invoke(cli, ["check", "--history", str(file), "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    assert ran.output.startswith("VALID: no-loss")
    (folder,) = (tmp_path / "out").glob("h-*")
    assert f"run folder: {folder}" in ran.output
    again = CliRunner().invoke(cli, ["check", str(folder), "--guarantee", "ordered"])
    assert again.output.startswith("VALID: ordered"), again.output
