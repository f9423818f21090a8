"""`harrow.values`: values that depend only on the seed, without Faker (J5)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from harrow.cluster.errors import ConfigError
from harrow.harness.run.harrow import Harrow
from harrow.harness.run.values import Values

KINDS: tuple[Callable[[Values], object], ...] = (
    Values.name,
    Values.user_name,
    Values.email,
    Values.city,
    Values.product,
    Values.amount,
    Values.uuid,
    Values.word,
    Values.sentence,
)


def drawn(seed: int) -> list[object]:
    values = Values(seed)
    return [kind(values) for _ in range(20) for kind in KINDS]


def test_equal_seeds_give_equal_values_and_other_seeds_others() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_values_of_a_seed_are_the_same_in_each_python_version() -> None:
    values = Values(1)
    assert [values.name(), values.user_name(), values.product(), values.number(1, 100)] == PINNED


PINNED = ["Elif Sousa", "carlos.ito1932", "pillow", 98]


def test_values_have_the_documented_form() -> None:
    values = Values(3)
    for _ in range(100):
        assert 1 <= values.amount() <= 500
        assert UUID(values.uuid()).version == 4
        assert values.email().endswith("@example.com")
        assert len(values.sentence(5).split()) == 5
    assert len({values.user_name() for _ in range(1000)}) > 990


def test_faker_is_asked_for_without_its_extra_and_the_error_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faker", None)  # as where Faker is not installed
    run = Harrow(tmp_path)
    assert run.values.name() == Harrow(tmp_path).values.name()
    with pytest.raises(ConfigError, match=r"pytest-harrow\[faker\].*harrow\.values"):
        _ = run.faker
