"""Which backend a user chose, and where its brokers come from: the same by option, mark, fixture and command (J2)."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner
from harrow.harness.backends.choice import BACKENDS, ORIGIN_OPTIONS, ORIGINS, BackendChoice, choose_backend
from harrow.harness.backends.kinds import KINDS, backend_words
from harrow.harness.commands.backend_options import backend_options, take_backend
from harrow.harness.plugin.options import MARKER_ARGUMENTS, OPTIONS, make_options


def test_every_backend_is_known_by_the_same_name_everywhere() -> None:
    assert tuple(KINDS) == BACKENDS
    assert set(ORIGINS) <= set(BACKENDS)
    assert set(ORIGIN_OPTIONS) <= {row.name for row in OPTIONS}
    assert set(ORIGIN_OPTIONS) <= set(MARKER_ARGUMENTS)


def test_the_origin_is_the_value_of_the_backends_own_option() -> None:
    given = {"kafka": "/opt/kafka", "scope": "test"}
    assert choose_backend("apache", given) == BackendChoice("apache", "/opt/kafka")
    assert choose_backend("apache", {}) == BackendChoice("apache")
    assert choose_backend("local", given) == BackendChoice("local")


def test_the_layer_with_priority_decides_about_each_option() -> None:
    chosen = make_options(
        {"seed": 1, "kafka": "/of/the/ini"}, {"backend": "apache", "kafka": "/of/the/mark"}, {"brokers": 1}
    )
    assert chosen.backend_choice == BackendChoice("apache", "/of/the/mark")
    assert chosen.brokers == 1


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (BackendChoice("local"), "--backend local"),
        (BackendChoice("apache"), "--backend apache"),
        (BackendChoice("apache", "/opt/my kafka"), "--backend apache --kafka '/opt/my kafka'"),
    ],
)
def test_a_choice_is_repeated_by_its_words(choice: BackendChoice, words: str) -> None:
    assert backend_words(choice) == words


def test_a_command_takes_the_choice_and_refuses_a_backend_that_is_not_here() -> None:
    taken: list[BackendChoice] = []

    @click.command()
    @backend_options
    def command(**given: str) -> None:
        taken.append(take_backend(given))
        assert not given

    run = CliRunner()
    assert run.invoke(command, []).exit_code == 0
    assert taken == [BackendChoice("local")]
    refused = run.invoke(command, ["--backend", "apache", "--kafka", "/nowhere"])
    assert refused.exit_code == 2
    assert "--backend apache: --harrow-kafka=/nowhere: no Apache Kafka there" in refused.output
