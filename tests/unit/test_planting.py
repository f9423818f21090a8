"""Planted bugs: what a plant may replace, and what is refused (M1)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.planting import Planter, apply_plants, load_plants
from harrow.cluster.replication.truncation_strategies import STRATEGIES
from harrow.cluster.simulation import SimulatedCluster
from harrow.faults import zoo
from harrow.faults.zoo.bug import Bug
from harrow.harness.zoo.catalog import ZOO

KIP_101 = "harrow.faults.zoo.kip_101"


class Rules:
    @property
    def limit(self) -> int:
        return 5

    @staticmethod
    def twice(number: int) -> int:
        return 2 * number

    def allowed(self, node: int) -> bool:
        return node > 0


def always(self: Rules, node: int) -> bool:
    del self, node
    return True


def lowest(self: Rules) -> int:
    del self
    return 1


def unchanged(number: int) -> int:
    return number


def replaces_nothing(planter: Planter) -> None:
    del planter


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A module that tests may fill, importable as `planted_by_a_test`."""
    made = ModuleType("planted_by_a_test")
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def test_replaced_methods_act_and_undo_restores_them() -> None:
    planter = Planter()
    planter.replace_method(Rules, "allowed", always)
    planter.replace_method(Rules, "limit", lowest)
    planter.replace_method(Rules, "twice", unchanged)
    assert (Rules().allowed(-1), Rules().limit, Rules.twice(4)) == (True, 1, 4)
    planter.undo()
    assert (Rules().allowed(-1), Rules().limit, Rules.twice(4)) == (False, 5, 8)


def test_a_replacement_with_other_parameters_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Rules.allowed takes \(self, node\), the replacement \(self\)"):
        Planter().replace_method(Rules, "allowed", lowest)


def test_an_unknown_method_is_refused_and_the_nearest_name_is_suggested() -> None:
    with pytest.raises(ConfigError, match=r"has no 'alowed'; did you mean allowed\?"):
        Planter().replace_method(Rules, "alowed", always)


def test_a_strategy_is_replaced_only_by_an_object_with_its_attributes() -> None:
    table: dict[str, object] = {"default": Rules()}
    with pytest.raises(ConfigError, match="object has no allowed, limit, twice; Rules"):
        Planter().replace_entry(table, "default", object())
    with pytest.raises(ConfigError, match="no 'defualt'; did you mean default"):
        Planter().replace_entry(table, "defualt", Rules())


@pytest.mark.parametrize(
    ("name", "message"),
    [("harrow.faults.zoo.no_such_bug", "cannot be imported"), ("", "cannot be imported"), ("json", "needs TITLE")],
)
def test_what_is_no_plant_is_refused_with_the_remedy(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_plants([name])


def test_a_plant_that_replaces_nothing_is_refused_and_nothing_stays_replaced(module: ModuleType) -> None:
    vars(module).update(TITLE="replaces nothing", plant=replaces_nothing)
    before = STRATEGIES["kip-320"]
    with pytest.raises(ConfigError, match=r"planted_by_a_test: plant\(\) replaced nothing"):
        apply_plants(load_plants([KIP_101, module.__name__]))
    assert STRATEGIES["kip-320"] is before


def test_every_module_of_the_zoo_is_a_bug_or_what_bugs_share() -> None:
    modules = {path.stem for path in Path(zoo.__path__[0]).glob("[!_]*.py")}
    assert modules == {*(bug.name for bug in ZOO), "bug", "shared"}


@pytest.mark.parametrize("bug", ZOO, ids=lambda bug: bug.name)
def test_the_plant_of_every_bug_has_its_title_and_replaces_something(bug: Bug) -> None:
    (plant,) = load_plants([bug.module])
    assert plant.title == bug.title
    planter = apply_plants([plant])
    assert planter.replacements > 0
    planter.undo()


def test_a_simulated_cluster_says_that_it_is_planted_and_restores_the_rules_at_its_end() -> None:
    before = STRATEGIES["kip-320"]
    with SimulatedCluster(brokers=1, plants=[KIP_101]) as cluster:
        cluster.start()
        assert STRATEGIES["kip-320"] is not before
        assert f'"{KIP_101}"' in cluster.world.trace.text()
    assert STRATEGIES["kip-320"] is before
