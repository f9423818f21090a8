"""docs/clients.md has every suite of `make client-suites`, and the command says what is missing (N1)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from suite_processes import bounded
from suite_results import report, store
from suites_of_clients import BY_NAME, FAILED, PASSED, SKIPPED, SUITES, Selection, Suite

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clients.md"


def asked(*words: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command without checkouts in its environment."""
    variables = {suite.checkout_variable for suite in SUITES}
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    return subprocess.run(
        [sys.executable, ROOT / "tests" / "client_suites.py", *words],
        env=environment | ({} if path is None else {"PATH": path}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def checkout(suite: Suite, folder: Path) -> str:
    """Make a folder that looks like a checkout of the client."""
    file, text = suite.marker
    (folder / file).write_text(text)
    return str(folder)


def test_the_page_has_the_version_and_the_command_of_every_suite() -> None:
    text = PAGE.read_text()
    for suite in SUITES:
        assert f"`make client-suites SUITE={suite.name}`" in text, suite.name
        assert any(suite.version in line for line in text.splitlines() if f"SUITE={suite.name}`" in line)
        assert suite.checkout_variable in text


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_suite_without_a_checkout_ends_with_the_command_that_makes_one(suite: Suite) -> None:
    done = asked(suite.name)
    assert done.returncode == 2
    assert f"git clone --branch {suite.version} --depth 1 {suite.repository}" in done.stderr
    assert suite.checkout_variable in done.stderr


def test_a_folder_of_another_project_is_refused(tmp_path: Path) -> None:
    done = asked("kafkajs", "--checkout", checkout(BY_NAME["platformatic-kafka"], tmp_path))
    assert done.returncode == 2
    assert "is no checkout of kafkajs: it has no package.json with" in done.stderr


@pytest.mark.parametrize(("name", "tool"), [("kafka-go", "go"), ("kafkajs", "node")])
def test_a_missing_toolchain_is_named_with_its_place(name: str, tool: str, tmp_path: Path) -> None:
    done = asked(name, "--checkout", checkout(BY_NAME[name], tmp_path), path=str(tmp_path))
    assert done.returncode == 2
    assert f"{name} needs {tool}, which is not on the PATH; install it from https://" in done.stderr


def test_a_node_that_is_too_old_is_named_with_the_remedy(tmp_path: Path) -> None:
    for tool, said in (("node", "v20.1.0"), ("npm", "11.0.0")):
        (tmp_path / tool).write_text(f"#!/bin/sh\necho {said}\n")
        (tmp_path / tool).chmod(0o755)
    given = checkout(BY_NAME["platformatic-kafka"], tmp_path)
    done = asked("platformatic-kafka", "--checkout", given, path=f"{tmp_path}:/bin:/usr/bin")
    assert done.returncode == 2
    assert "needs node 22 or later, and the PATH has v20.1.0" in done.stderr
    assert "node@22" in done.stderr


def results(name: str, folder: Path, text: str, only: tuple[str, ...] = ()) -> dict[str, str]:
    """Read results of a suite."""
    file = folder / "results"
    file.write_text(text)
    return BY_NAME[name].outcomes(Selection(folder=folder, results=file, only=only))


def test_go_counts_subtests_and_a_test_that_never_ended_has_failed(tmp_path: Path) -> None:
    rows = [
        ("run", "TestA"),
        ("run", "TestA/one"),
        ("pass", "TestA/one"),
        ("fail", "TestA/two"),
        ("fail", "TestA"),
        ("run", "TestStuck"),
        ("skip", "TestSkipped"),
        ("pass", "TestParent/x"),
        ("fail", "TestParent"),
    ]
    text = "".join(json.dumps({"Action": action, "Test": test}) + "\n" for action, test in rows)
    assert results("kafka-go", tmp_path, text + "panic: no JSON\n") == {
        "TestA/one": PASSED,
        "TestA/two": FAILED,
        "TestStuck": FAILED,
        "TestSkipped": SKIPPED,
        "TestParent/x": PASSED,
        "TestParent": FAILED,
    }


def test_go_tests_that_did_not_begin_after_a_panic_are_found(tmp_path: Path) -> None:
    (tmp_path / "a_test.go").write_text("func TestA(t *testing.T) {\nfunc TestB(t *testing.T) {\nfunc TestMain(")
    (tmp_path / "acl_test.go").write_text("func TestCreateACLs(t *testing.T) {\n")
    assert BY_NAME["kafka-go"].missing(tmp_path, {"TestA/x": PASSED}) == ["TestB"]
    assert BY_NAME["kafkajs"].missing(tmp_path, {}) == []


def test_jest_tests_of_one_name_are_numbered_and_left_out_tests_are_none(tmp_path: Path) -> None:
    tests = [("a", "passed"), ("a", "failed"), ("left out", "pending")]
    rows = [{"fullName": name, "status": status} for name, status in tests]
    row = {"file": str(tmp_path / "x.spec.js"), "error": "", "tests": rows}
    found = results("kafkajs", tmp_path, json.dumps(row))
    assert found == {"x.spec.js: a": PASSED, "x.spec.js: a #2": FAILED}


def test_node_results_have_the_file_which_is_a_result_only_if_none_of_its_tests_ended(tmp_path: Path) -> None:
    file = str(tmp_path / "test" / "a.test.ts")
    rows = [
        {"file": file, "name": "sends", "result": "passed", "skip": False},
        {"file": file, "name": "later", "result": "passed", "skip": True},
        {"file": file, "name": file, "result": "failed", "skip": False},
        {"file": file, "name": "test/a.test.ts", "result": "failed", "skip": False},
        {"file": f"{tmp_path}/b.test.ts", "name": "b.test.ts", "result": "failed", "skip": False},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    found = results("platformatic-kafka", tmp_path, text)
    assert found == {"test/a.test.ts: sends": PASSED, "test/a.test.ts: later": SKIPPED, "b.test.ts: (file)": FAILED}


def test_node_leaves_tests_out_by_a_pattern_of_names_that_it_skips(tmp_path: Path) -> None:
    selection = Selection(folder=tmp_path, results=tmp_path / "r")
    command = BY_NAME["platformatic-kafka"].command(selection)
    assert any(word.startswith("--test-skip-pattern=/") and "ACL" in word for word in command)
    assert not any(word.startswith("--test-name-pattern") for word in command)


def test_pytest_results_are_node_ids_that_pytest_takes(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").touch()
    text = (
        '<testsuites><testsuite><testcase classname="tests.test_a" name="test_x[1]"/>'
        '<testcase classname="tests.test_a.TestB" name="test_y"><error/></testcase></testsuite></testsuites>'
    )
    found = results("confluent-kafka-python", tmp_path, text)
    assert found == {"tests/test_a.py::test_x[1]": PASSED, "tests/test_a.py::TestB::test_y": FAILED}


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_failed_tests_are_repeated_alone_by_their_names(suite: Suite, tmp_path: Path) -> None:
    only = {"kafkajs": "x.spec.js: a b", "platformatic-kafka": "x.test.ts: a b"}
    only |= dict.fromkeys(("kafka-go", "franz-go-shares"), "TestA/two")
    name = only.get(suite.name, "tests/test_a.py::test_x")
    command = suite.command(Selection(folder=tmp_path, results=tmp_path / "r", only=(name,)))
    wanted = {"kafkajs": r"^(a\ b)$", "platformatic-kafka": r"--test-name-pattern=/^(a\ b)$/"}
    wanted |= dict.fromkeys(("kafka-go", "franz-go-shares"), "^(TestA)$")
    assert wanted.get(suite.name, name) in command


def test_left_out_files_of_pytest_are_not_named_because_it_runs_every_file_that_is_named(tmp_path: Path) -> None:
    admin = tmp_path / "tests" / "integration" / "admin"
    admin.mkdir(parents=True)
    for name in ("list_offsets", "user_scram_credentials", "describe_operations"):
        (admin / f"test_{name}.py").touch()
    selection = Selection(folder=tmp_path, results=tmp_path / "r")
    command = BY_NAME["confluent-kafka-python"].command(selection)
    files = [word for word in command if word.endswith(".py")]
    assert files == ["tests/integration/admin/test_list_offsets.py"]


def test_kafka_and_harrow_get_the_same_settings_except_for_the_listener_of_kafkas_controller(tmp_path: Path) -> None:
    listeners = BY_NAME["aiokafka-security"].listeners
    assert listeners is not None
    kafka, ours = (listeners.settings(29_600, tmp_path, has_controller=has) for has in (True, False))
    other = {name for name in kafka if kafka[name] != ours.get(name)}
    of_the_controller = {name for name in other if "controller" in name}
    assert other - of_the_controller == {"listeners", "listener.security.protocol.map"}
    assert str(kafka["listeners"]) == f"{ours['listeners']},CONTROLLER://127.0.0.1:19601"
    assert not ours.keys() - kafka.keys()


def test_a_copy_gets_the_fixtures_for_the_broker_and_keeps_its_own(tmp_path: Path) -> None:
    listeners = BY_NAME["kafka-python-security"].listeners
    assert listeners is not None
    name, lines = listeners.overlay
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text("class KafkaFixture: ...\n")
    listeners.add_overlay(tmp_path)
    assert path.read_text() == f"class KafkaFixture: ...\n\n{lines}\n"
    assert "def running(" in (tmp_path / "suite_overlay.py").read_text()


def test_a_process_at_its_limit_is_interrupted_and_writes_its_results_before_it_is_killed(tmp_path: Path) -> None:
    command = ["sh", "-c", "trap 'echo results > r; exit 1' INT; while :; do sleep 1; done"]
    assert not bounded(command, tmp_path, {}, tmp_path / "log", limit_s=2)
    assert (tmp_path / "r").read_text() == "results\n"


def test_the_results_of_a_part_join_those_of_earlier_parts(tmp_path: Path) -> None:
    path = tmp_path / "kafka.json"
    store(path, {"a": PASSED, "b": FAILED}, part="a|b")
    store(path, {"b": PASSED, "c": PASSED}, part="c")
    assert json.loads(path.read_text()) == {"a": PASSED, "b": PASSED, "c": PASSED}
    store(path, {"c": FAILED}, part="")
    assert json.loads(path.read_text()) == {"c": FAILED}


def test_the_row_counts_what_ended_on_both_systems_and_names_each_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kafka = {"a": PASSED, "b": FAILED, "c": PASSED, "only here": PASSED}
    assert not report(BY_NAME["kafkajs"], {"kafka": kafka, "harrow": kafka | {"c": FAILED}})
    said = capsys.readouterr().out
    assert "| 3 passed, 1 failed, 0 skipped | 2 passed, 2 failed, 0 skipped | 1 fail on both |" in said
    assert "| `c` | passed | failed |" in said
    ours = {name: result for name, result in kafka.items() if name != "only here"}
    assert not report(BY_NAME["kafkajs"], {"kafka": kafka, "harrow": ours})
    said = capsys.readouterr().out
    assert "| 2 passed, 1 failed, 0 skipped | 2 passed, 1 failed, 0 skipped | 1 fail on both |" in said
    assert "1 tests ran on one system only, such as only here" in said
    assert report(BY_NAME["kafkajs"], {"kafka": ours, "harrow": ours})


def test_a_system_without_results_is_said_to_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(BY_NAME["kafkajs"], {"harrow": {"a": PASSED}})
    assert "| not run | 1 passed, 0 failed, 0 skipped |" in capsys.readouterr().out
