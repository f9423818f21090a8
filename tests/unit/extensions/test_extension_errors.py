"""An extension that cannot be used is named with its distribution and the remedy (J4)."""

from __future__ import annotations

from typing import Any

import pytest
from added_extensions import module_with, point, points
from harrow.faults.errors import ConfigError
from harrow.faults.extensions import Extensions, hookimpl


def names(found: Any) -> list[tuple[str, object]]:
    listed: list[object] = found
    if type(listed) is not list:
        raise TypeError(f"{found!r} is no list")
    return [(str(name), name) for name in listed]


def nothing() -> list[str]:
    return []


def table(*found: Any) -> dict[str, object]:
    return dict(Extensions(points(*found)).table("harrow_faults", names, own=("kill",)))


def problem(*found: Any) -> str:
    with pytest.raises(ConfigError) as error:
        table(*found)
    return str(error.value)


def test_the_hooks_of_all_distributions_are_merged() -> None:
    shop = module_with(harrow_faults=lambda: ["a", "b"])
    bank = module_with(harrow_faults=lambda: ["c"])
    silent = module_with(harrow_targets=lambda: ["x"])
    assert set(table(point("shop", shop), point("bank", bank), point("silent", silent))) == {"a", "b", "c"}
    assert table() == {}


def test_an_extension_that_cannot_be_imported_is_named_with_its_distribution() -> None:
    said = problem(point("harrow-shop", ModuleNotFoundError("No module named 'redis'"), "1.2"))
    assert said == (
        "the extension harrow-shop 1.2 (entry point shop = harrow-shop_module) cannot be imported: "
        "ModuleNotFoundError: No module named 'redis'; install what it needs, or pip uninstall harrow-shop"
    )


def test_two_extensions_with_one_name_are_both_named() -> None:
    shop = module_with(harrow_faults=lambda: ["stop_service"])
    bank = module_with(harrow_faults=lambda: ["stop_service"])
    said = problem(point("shop", shop, "1.0"), point("bank", bank, "2.0"))
    assert "'stop_service'" in said
    assert "shop 1.0" in said
    assert "bank 2.0" in said
    assert "pip uninstall shop" in said
    assert "pip uninstall bank" in said


def test_a_name_of_harrows_own_is_refused() -> None:
    said = problem(point("shop", module_with(harrow_faults=lambda: ["kill"])))
    assert "adds 'kill' by harrow_faults(), which Harrow has already; choose another name" in said


def test_a_wrong_type_is_named() -> None:
    said = problem(point("shop", module_with(harrow_faults=lambda: "kill_service"), "3.1"))
    assert "the extension shop 3.1 " in said
    assert "has a hook harrow_faults() that cannot be used: 'kill_service' is no list" in said


def test_a_hook_that_raises_is_named() -> None:
    def broken() -> Any:
        raise RuntimeError("no licence")

    assert "harrow_faults() that cannot be used: no licence" in problem(
        point("shop", module_with(harrow_faults=broken))
    )


@pytest.mark.parametrize(
    ("interface", "said"),
    [
        (None, "does not say for which interface it was written; it must have HARROW_INTERFACE = 1"),
        (2, "was written for the interface 2, and this Harrow has 1; upgrade pytest-harrow"),
        (0, "was written for the interface 0, and this Harrow has 1; upgrade the extension"),
        ("1", "was written for the interface '1', and this Harrow has 1; upgrade the extension"),
    ],
)
def test_an_interface_of_another_version_is_named_with_what_to_upgrade(interface: object, said: str) -> None:
    shop = module_with(interface=interface, harrow_faults=nothing)
    assert said in problem(point("shop", shop))


def test_a_hook_with_parameters_that_harrow_does_not_give_is_named() -> None:
    def with_parameter(cluster: object) -> Any:
        return [cluster]

    said = problem(point("shop", module_with(harrow_faults=with_parameter)))
    assert "the extension shop 1.0 " in said
    assert "other parameters than this Harrow calls" in said


def test_a_misspelt_hook_is_named_with_the_nearest() -> None:
    shop = module_with(harrow_fault=nothing)
    with pytest.raises(
        ConfigError, match=r"implements 'harrow_fault', which is no hook of Harrow; did you mean harrow_faults\?"
    ):
        Extensions(points(point("shop", shop))).check_hooks()


def test_entry_points_are_looked_up_once_and_not_before_they_are_needed() -> None:
    looked = 0

    def look() -> Any:
        nonlocal looked
        looked += 1
        return [point("shop", module_with(harrow_faults=lambda: ["a"]))]

    extensions = Extensions(look)
    assert looked == 0
    for _ in range(3):
        assert set(extensions.table("harrow_faults", names)) == {"a"}
    assert looked == 1


def test_after_an_error_the_next_call_has_the_same_error() -> None:
    extensions = Extensions(points(point("shop", ImportError("gone"))))
    for _ in range(2):
        with pytest.raises(ConfigError, match="gone"):
            extensions.table("harrow_faults", names)


def test_an_object_with_methods_as_hooks_is_an_extension_too() -> None:
    class Shop:
        HARROW_INTERFACE = 1

        @hookimpl
        def harrow_faults(self) -> list[str]:
            return ["a"]

    extensions = Extensions(points())
    shop = Shop()
    extensions.add(shop, "Shop")
    extensions.add(shop, "Shop")
    assert set(extensions.table("harrow_faults", names)) == {"a"}
    assert extensions.owner("harrow_faults", "a") == "Shop"
    extensions.remove(shop)
    assert not extensions.table("harrow_faults", names)
