"""Relations, backends and workloads of an extension: by name, and what is said of names that do not exist (J2, J4)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from added_extensions import added
from click.testing import CliRunner
from harrow import Harrow, RecordRelation
from harrow.cluster.errors import ConfigError
from harrow.harness.backends.choice import BackendChoice
from harrow.harness.backends.clusters import OwnCluster
from harrow.harness.backends.kinds import KINDS, BackendKind, check_backend, new_source
from harrow.harness.commands import cli
from harrow.harness.promises.pipeline_promise import PipelinePromise
from harrow.harness.promises.relations import identity
from harrow.harness.workloads.by_name import new_workload
from harrow.harness.workloads.scenario import drawn_scenario


class Same(RecordRelation):
    """Each input comes out."""

    def outputs(self, record: Any) -> Any:
        return (record,)


class RackedClusters(OwnCluster):
    backend = "racks"


class Misnamed(OwnCluster):
    backend = "rack"


def racks(source: Any = RackedClusters) -> BackendKind:
    return BackendKind(
        brokers="Harrow's brokers in racks",
        describe=lambda choice: f"racks of {choice.name}",
        capabilities=KINDS["local"].capabilities,
        source=lambda choice, before: source(before),
    )


def no_workload(*_: object) -> object:
    return object()


def pipeline(relation: Any) -> Any:
    return PipelinePromise.of(
        "orders", "bills", guarantee=None, record_id="order", relation=relation, group=None
    ).relation


def test_a_relation_is_found_by_its_name() -> None:
    with added(harrow_relations=lambda: {"same": Same()}):
        assert pipeline("same") == Same()
        assert pipeline("identity") is identity
        with pytest.raises(ConfigError, match=r"relation='sam'\): expected identity.*an extension's \(same\)"):
            pipeline("sam")
    with pytest.raises(ConfigError, match=r"relation='same'\): expected identity, mapped\(f\)"):
        pipeline("same")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"same": Same}, "'same' is <class .*expected a Relation"),
        ([Same()], "expected a mapping of names"),
        ({"identity": Same()}, "adds 'identity' by harrow_relations.., which Harrow has already"),
    ],
)
def test_a_relation_that_cannot_be_used_is_refused(found: Any, said: str) -> None:
    with added(harrow_relations=lambda: found), pytest.raises(ConfigError, match=said):
        pipeline("same")


def test_a_backend_is_found_by_its_name() -> None:
    with added(harrow_backends=lambda: {"racks": racks()}):
        assert check_backend(BackendChoice("racks")) == "racks of racks"
        assert isinstance(new_source(BackendChoice("racks")), RackedClusters)
        shown = CliRunner().invoke(cli, ["backends"]).output
        assert "racks     Harrow's brokers in racks\n          here: racks of racks" in shown
        with pytest.raises(ConfigError, match=r"'rack': expected one of local, apache.*, racks; a backend of an"):
            check_backend(BackendChoice("rack"))


def test_a_backend_whose_source_has_another_name_is_refused() -> None:
    with (
        added(harrow_backends=lambda: {"racks": racks(Misnamed)}),
        pytest.raises(ConfigError, match="backend = 'rack'"),
    ):
        new_source(BackendChoice("racks"))


def test_a_test_runs_on_the_backend_of_an_extension(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import sys
        from harrow import add_extension, hookimpl
        from harrow.harness.backends.kinds import KINDS, BackendKind
        from harrow.harness.backends.clusters import OwnCluster

        HARROW_INTERFACE = 1

        class Racks(OwnCluster):
            backend = "racks"

            def make(self, folder, **given):
                given["config"] = {**given["config"], "num.partitions": 5}
                return super().make(folder, **given)

        @hookimpl
        def harrow_backends():
            kind = BackendKind(
                brokers="racks", describe=lambda _: "racks", capabilities=KINDS["local"].capabilities,
                source=lambda _, before: Racks(before),
            )
            return {"racks": kind}

        add_extension(sys.modules[__name__])
        """
    )
    pytester.makepyfile(
        """
        def test_on_racks(harrow):
            harrow.topic("orders")
            assert harrow.backend == "racks"
            assert harrow.cluster.config.number("num.partitions") == 5
        """
    )
    arguments = ("-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:randomly")
    result = pytester.runpytest_subprocess(*arguments, "--harrow-backend=racks")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["harrow: *backend racks*"])
    result = pytester.runpytest_subprocess(*arguments, "--harrow-backend=rucks")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--harrow-backend: 'rucks': expected one of local, apache*racks*"])


def test_a_workload_is_chosen_by_its_name_and_repeated(tmp_path: Path) -> None:
    with added(harrow_workloads=lambda: {"shop": no_workload}):
        scenario = drawn_scenario(3, seconds=1, variant="acks-1", brokers=3, repertoire="kill,pause", workload="shop")
        assert scenario.workload == "shop"
        assert scenario.faults["kinds"] == ("kill", "pause")
        assert scenario.repeat.endswith("--variant acks-1 --brokers 3 --faults kill,pause --workload shop")
        harrow: Any = Harrow(tmp_path)
        with pytest.raises(
            ConfigError, match=r"'shop' of the extension of this test is .* no __enter__, __exit__, judge"
        ):
            new_workload("shop", harrow, harrow, {})
    assert drawn_scenario(3, seconds=1, variant="safe", brokers=3, repertoire="usual").workload == "orders"
    exactly_once = drawn_scenario(3, seconds=1, variant="exactly-once", brokers=3, repertoire="usual")
    assert exactly_once.workload == "exactly-once"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workload", "shop"], "workload 'shop': expected one of orders, exactly-once; a workload of an extension"),
        (["--faults", "kill,no_such"], "fault 'no_such': expected one of kill"),
        (["--faults", ","], "or one of usual, all"),
        (["--backend", "no-such"], "'no-such': expected one of local, apache"),
    ],
)
def test_the_command_refuses_names_that_do_not_exist(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["chaos", *arguments])
    assert result.exit_code == click.UsageError.exit_code
    assert said in result.output


def test_the_command_lists_what_each_extension_adds() -> None:
    with added(harrow_relations=lambda: {"same": Same()}, harrow_workloads=lambda: {"shop": no_workload}):
        shown = CliRunner().invoke(cli, ["extensions"]).output
    assert shown == "the extension of this test\n    relation  same\n    workload  shop\n"
    assert "no extension is installed here" in CliRunner().invoke(cli, ["extensions"]).output


def test_importing_harrow_and_planning_its_own_faults_looks_up_no_entry_point() -> None:
    code = (
        "import sys, harrow, harrow.harness.plugin.hooks\n"
        "from harrow import kill, leader\n"
        "from harrow.faults import random_schedule, Schedule\n"
        "schedule = random_schedule(1, topics=['orders'])\n"
        "assert Schedule.from_json(schedule.to_json()) == schedule\n"
        "from harrow.faults.extensions import EXTENSIONS\n"
        "assert EXTENSIONS._loaded is None\n"
        "assert not {'polars', 'pyspark'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
