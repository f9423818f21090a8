"""The options of the plugin: the flag, ini setting, marker argument and default of each.

Precedence: flag, fixture factory argument, marker, ini, default. `config` is merged setting by setting in this
order. An invalid value is a `UsageError` that names its source and the valid values. Modules of the cluster are
imported only when a broker setting or a plant is given.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from ..backends.choice import (
    BACKENDS,
    EXTERNAL,
    LOCAL,
    ORIGIN_OPTIONS,
    ORIGINS,
    BackendChoice,
    choose_backend,
    unused_origin,
)
from ..engines import CHOICES, SPARK, check_engine
from ..security.choice import INSECURE, Security
from ..seeds import SEED_MAX
from ..user_spark import data_folder

SCOPES = ("test", "session")
HARROW_DEFAULTS, KAFKA_DEFAULTS = "harrow", "kafka"
AS_VERSIONS = ("3.9", "4.0", "4.2", "4.4")
"""Releases of Apache Kafka that `harrow.cluster.wire.release_table` has."""
BROKERS_MAX = 64
REPEAT_MAX = 10_000
SEEDS = 50
"""Seeds of a simulated test."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one test."""

    seed: int
    """The run's seed, or the marker's. The seed of a test is derived from it and the node id."""
    brokers: int = 3
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    """Broker settings by Kafka's names; they override the defaults that `defaults` names."""
    defaults: str = HARROW_DEFAULTS
    """Whose defaults the other broker settings have: Harrow's, which suit tests, or Apache Kafka's own."""
    as_version: str = ""
    """The release of Apache Kafka whose requests, versions and features clients see; empty: all that Harrow serves."""
    scope: str = "test"
    """`test`: a new cluster for each test. `session`: tests of one worker with equal options share a cluster.

    On a shared cluster each topic gets a name of its own (`orders-3fa9c1`), so a test must use `topic.name`. To share
    topics and a service between tests, use the fixture `harrow_session`."""
    keep: bool = False
    """Keep the clusters' data and the histories of passed tests."""
    out: Path = Path("harrow-out")
    """Folder for the folders of runs; a relative path starts at pytest's root folder."""
    plant: tuple[str, ...] = ()
    """Modules of planted bugs (`harrow.cluster.planting`); every output of the run names them."""
    spark: str = ""
    """The user's own Spark: a master (`spark://host:7077`, `local[8]`) or a Spark Connect address (`sc://host:15002`).

    Empty: Harrow starts a Spark server on this machine, which all tests and xdist workers of the run share."""
    engine: str = SPARK
    """What judges: Spark, or the same kernels in the process of the test (`engines.CHOICES`)."""
    spark_data: str = ""
    """A folder or URL that the executors of `spark` can read, where they cannot read the run folders."""
    backend: str = LOCAL
    """Where the brokers run: a name of `backend_choice.BACKENDS`."""
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where the brokers come from: the options of backends by name, such as `kafka` (`backend_choice.ORIGINS`)."""
    security: Security = INSECURE
    """How clients reach the brokers: TLS, SASL, ACLs."""
    repeat: int = 1
    """How often each test with a Harrow fixture runs, always with the same seed."""
    seeds: int = SEEDS
    """How many seeds a test of the backend simulated runs, from `seed` up."""
    reaches: tuple[str, ...] = ()
    """Labels of `sometimes` that the seeds of a simulated test must reach."""
    jobs: int = 0
    """How many processes run the seeds of such a test; 0: as many as there are cores, one under xdist."""
    shrink: int = 0
    """How many runs may be used to make the schedule of a failed test smaller; 0: none."""
    schedule: tuple[tuple[int, Path], ...] = ()
    """Files of recorded schedules, and which chaos block of a test each is for: it runs in place of the block's own."""
    keep_runs: int = 20
    """How many runs stay in the out folder, this one included."""

    @property
    def cluster_config(self) -> Mapping[str, object]:
        """The settings of the cluster: `config` over the defaults of Apache Kafka where these were chosen."""
        release = {"harrow.as.version": self.as_version} if self.as_version else {}
        if self.defaults == HARROW_DEFAULTS or self.backend == EXTERNAL:
            return {**release, **self.config}  # an external cluster has its own settings
        from harrow.cluster.defaults import kafka_defaults

        return {**kafka_defaults(), **release, **self.config}

    @property
    def backend_choice(self) -> BackendChoice:
        """Where the brokers run, and where they come from."""
        return choose_backend(self.backend, self.origins)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec:
    """One option with its flag, ini setting and marker argument."""

    name: str
    parse: Callable[[object], Any]
    doc: str
    metavar: str | None = None
    ini_type: Any = "string"
    marker: bool = False

    @property
    def flag(self) -> str:
        """Name on the command line."""
        return f"--harrow-{self.name.replace('_', '-')}"

    @property
    def ini(self) -> str:
        """Name in the configuration file."""
        return f"harrow_{self.name}"

    @property
    def field(self) -> str:
        """Name of the field of `Options`."""
        return "config" if self.name == "set" else self.name


def _whole(low: int, high: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        try:
            number = int(str(value))
        except ValueError:
            raise ValueError(f"{value!r}: expected a whole number") from None
        if isinstance(value, bool) or not low <= number <= high:
            raise ValueError(f"{value}: expected a whole number from {low} to {high}")
        return number

    return parse


def _one_of(names: Sequence[str]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in names:
            raise ValueError(f"{value!r}: expected {' or '.join(names)}{_nearest(str(value), names)}")
        return str(value)

    return parse


def _settings(value: object) -> dict[str, object]:
    """Parse a mapping or `name=value` lines to broker settings; the names and values are checked."""
    if isinstance(value, Mapping):
        pairs: dict[str, object] = {str(name): setting for name, setting in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - a marker's argument may be anything
    elif isinstance(value, list | tuple):
        pairs = dict(_pair(str(line)) for line in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - as above
    else:
        raise ValueError(f"{value!r}: expected a mapping of broker settings")  # noqa: TRY004 - one kind for callers
    if pairs:
        from harrow.cluster.config import BrokerConfig
        from harrow.cluster.errors import ConfigError

        try:
            BrokerConfig.parse(pairs)
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return pairs


def _pair(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{line!r}: expected NAME=VALUE, as in min.insync.replicas=2")
    return name.strip(), value.strip()


def _plants(value: object) -> tuple[str, ...]:
    """Parse one module name or several; each module must be a plant that can be imported."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):  # pyright: ignore[reportUnknownVariableType] - a marker's argument may be anything
        raise ValueError(f"{value!r}: expected the dotted name of a module, or several")
    modules: tuple[str, ...] = tuple(names)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - checked above
    if modules:
        from harrow.cluster.errors import ConfigError
        from harrow.cluster.planting import load_plants

        try:
            load_plants(modules)
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return modules


def _backend(value: object) -> str:
    """Return the name of a backend. Extensions are looked up only for a name that Harrow does not have."""
    if value in BACKENDS:
        return str(value)
    from harrow.cluster.errors import ConfigError

    from ..backends.kinds import backend_kind

    try:
        backend_kind(str(value))
    except ConfigError as error:
        raise ValueError(f"{error}{_nearest(str(value), BACKENDS)}") from None
    return str(value)


def _security(value: object) -> Security:
    if not isinstance(value, str | Security):
        raise ValueError(f"{value!r}: expected a text or a Security")  # noqa: TRY004 - one kind for callers
    from harrow.cluster.errors import ConfigError

    try:
        return Security.of(value)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("security=")) from None


def _labels(value: object) -> tuple[str, ...]:
    """Parse one label or several."""
    labels = (value,) if isinstance(value, str) else value
    if not isinstance(labels, list | tuple) or not all(isinstance(label, str) for label in labels):  # pyright: ignore[reportUnknownVariableType] - a marker's argument may be anything
        raise ValueError(f"{value!r}: expected a label of sometimes(…), or several")
    return tuple(labels)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - checked above


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r}: expected a text")  # noqa: TRY004 - one kind for callers
    return value


def _schedule_files(value: object) -> tuple[tuple[int, Path], ...]:
    """Parse a file, or a folder with the files of a run, to files by the number of the block, from 1 up."""
    given = Path(str(value)).absolute()
    if given.is_file():
        return ((1, given),)
    from .. import run_folder

    files = tuple(run_folder.numbered_files(given, run_folder.SCHEDULE)) if given.is_dir() else ()
    if not files:
        raise ValueError(f"{value}: expected a schedule.json, or the folder of a run that has one")
    return files


def _path(value: object) -> Path:
    return Path(str(value))


OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec(
        name="seed",
        parse=_whole(0, SEED_MAX),
        metavar="N",
        doc="seed of the run; the report of a failed test prints it",
        marker=True,
    ),
    OptionSpec(
        name="brokers",
        parse=_whole(1, BROKERS_MAX),
        metavar="N",
        doc="brokers of each cluster (default 3)",
        marker=True,
    ),
    OptionSpec(
        name="set",
        parse=_settings,
        metavar="NAME=VALUE",
        ini_type="linelist",
        doc="a broker setting by Kafka's name; repeatable",
    ),
    OptionSpec(
        name="defaults",
        parse=_one_of((HARROW_DEFAULTS, KAFKA_DEFAULTS)),
        metavar="harrow|kafka",
        doc="whose defaults the broker settings have: Harrow's, which suit tests (default), or Apache Kafka's own",
        marker=True,
    ),
    OptionSpec(
        name="as_version",
        parse=_one_of(AS_VERSIONS),
        metavar="RELEASE",
        doc=f"requests, versions and features as brokers of this release of Kafka: {', '.join(AS_VERSIONS)}",
        marker=True,
    ),
    OptionSpec(
        name="plant",
        parse=_plants,
        metavar="MODULE",
        ini_type="linelist",
        doc="start the brokers with a planted bug, such as harrow.faults.zoo.kip_101; repeatable",
        marker=True,
    ),
    OptionSpec(
        name="scope",
        parse=_one_of(SCOPES),
        metavar="test|session",
        doc="a new cluster for each test (default), or a cluster shared by tests that request the same",
        marker=True,
    ),
    OptionSpec(name="keep", parse=bool, ini_type="bool", doc="keep the folders of passed tests"),
    OptionSpec(name="out", parse=_path, metavar="DIR", doc="folder for the run folders (default harrow-out)"),
    OptionSpec(
        name="keep_runs",
        parse=_whole(1, 1_000_000),
        metavar="N",
        doc="how many runs stay in the out folder (default 20); older ones are removed",
    ),
    OptionSpec(
        name="repeat",
        parse=_whole(1, REPEAT_MAX),
        metavar="N",
        doc="run each test with a Harrow fixture N times with the same seed, and count how often its failure came back",
    ),
    OptionSpec(
        name="shrink",
        parse=_whole(0, REPEAT_MAX),
        metavar="RUNS",
        doc="run each failed test up to RUNS more times with ever fewer faults, and print the smallest schedule with "
        "which it still fails, as a test to paste",
    ),
    OptionSpec(
        name="schedule",
        parse=_schedule_files,
        metavar="PATH",
        doc="what the chaos blocks of a test run in place of their own faults: a schedule.json of a run, or a run "
        "folder with those of all its blocks; on real brokers by roles",
    ),
    OptionSpec(
        name="seeds",
        parse=_whole(1, 10_000_000),
        metavar="N",
        doc=f"how many seeds a test of the backend simulated runs (default {SEEDS}), from --harrow-seed up",
        marker=True,
    ),
    OptionSpec(
        name="jobs",
        parse=_whole(0, 1_000),
        metavar="N",
        doc="how many processes run the seeds of a simulated test (default: one for each core; one under xdist)",
    ),
    OptionSpec(
        name="backend",
        parse=_backend,
        metavar="NAME",
        doc=f"where the brokers run: {', '.join(BACKENDS)} (default {LOCAL}); see `harrow backends`",
        marker=True,
    ),
    *(
        OptionSpec(name=row.option, parse=_text, metavar=row.metavar, doc=row.doc, marker=True)
        for row in ORIGINS.values()
    ),
    OptionSpec(
        name="security",
        parse=_security,
        metavar="PROTOCOL",
        doc="how clients reach the brokers: none (default), ssl, mtls, sasl_plaintext or sasl_ssl, with a mechanism as "
        "in sasl_ssl:PLAIN",
        marker=True,
    ),
    OptionSpec(
        name="engine",
        parse=_one_of(CHOICES),
        metavar="NAME",
        doc="what judges: spark (the default), inline (in the process of the test, without a JVM) or auto (by size)",
        marker=True,
    ),
    OptionSpec(
        name="spark",
        parse=str,
        metavar="ADDRESS",
        doc="your own Spark: a master or a Connect address (default: a Spark server started for the run)",
    ),
    OptionSpec(
        name="spark_data",
        parse=data_folder,
        metavar="URL",
        doc="a folder or URL that executors of --harrow-spark can read, when they cannot read the run folders",
    ),
)
MARKER_ARGUMENTS: Mapping[str, Callable[[object], Any]] = {
    **{row.name: row.parse for row in OPTIONS if row.marker},
    "config": _settings,
    "reaches": _labels,
}
MARKER_LINE = (
    "harrow(brokers=3, config={...}, defaults='harrow', scope='test', seed=N, plant='MODULE', backend='local', "
    "security='none', engine='spark'): the cluster of this test's `harrow` fixture; config holds broker settings by "
    "Kafka's names"
)


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def add_options(parser: pytest.Parser) -> None:
    """Declare the flag and the ini setting of each option."""
    group = parser.getgroup("harrow", "Harrow: what happens when Kafka breaks")
    for row in OPTIONS:
        if row.name == "keep":
            group.addoption(row.flag, action="store_true", default=None, help=row.doc)
        else:
            action = "append" if row.ini_type == "linelist" else "store"
            group.addoption(row.flag, action=action, default=None, metavar=row.metavar, help=row.doc)
        parser.addini(row.ini, f"{row.doc} (as {row.flag})", type=row.ini_type, default=None)


def read_flags(config: pytest.Config) -> dict[str, Any]:
    """Return the parsed values of the command line, by field of `Options`."""
    given = ((row, row.flag, config.getoption(row.flag)) for row in OPTIONS)
    return _parse(given)


def read_ini(config: pytest.Config) -> dict[str, Any]:
    """Return the parsed values of the configuration file, by field of `Options`."""
    given = ((row, row.ini, config.getini(row.ini)) for row in OPTIONS)
    return _parse(entry for entry in given if entry[2] not in ("", []))


def _parse(given: Iterable[tuple[OptionSpec, str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for row, source, value in given:
        if value is not None:
            try:
                values[row.field] = row.parse(value)
            except ValueError as error:
                raise pytest.UsageError(f"{source}: {error}") from None
    return values


def check_arguments(arguments: Mapping[str, object], source: str) -> dict[str, Any]:
    """Return the parsed arguments of a marker or factory; None means "not given"."""
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        parse = MARKER_ARGUMENTS.get(name)
        if parse is None:
            hint = _nearest(name, MARKER_ARGUMENTS)
            known = ", ".join(MARKER_ARGUMENTS)
            raise pytest.UsageError(f"{source}: no argument {name!r}{hint} (known: {known})")
        if value is not None:
            try:
                values[name] = parse(value)
            except ValueError as error:
                raise pytest.UsageError(f"{source}: {name}={error}") from None
    return values


def read_marker(item: pytest.Item) -> dict[str, Any]:
    """Return the merged arguments of the item's `harrow` markers; the closest marker has priority."""
    merged: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("harrow"))):
        source = f"{item.nodeid}: @pytest.mark.harrow"
        if marker.args:
            raise pytest.UsageError(f"{source}: takes named arguments only, got {marker.args!r}")
        merged = merge(merged, check_arguments(marker.kwargs, source))
    return merged


def make_options(*layers: Mapping[str, Any]) -> Options:
    """Return the options of a test from layers of values by name; a later layer has priority."""
    values = merge(*layers)
    origins = {name: values.pop(name) for name in ORIGIN_OPTIONS if name in values}
    try:
        check_engine(values.get("engine", SPARK), values.get("spark", ""))
    except ValueError as error:
        raise pytest.UsageError(f"{error}: leave out --harrow-engine or --harrow-spark") from None
    return Options(origins=origins, **values)


def check_origins(backend: str, given: Mapping[str, object], prefix: str = "") -> None:
    """Raise UsageError for an option of `given` that says where the brokers of another backend come from."""
    for name in ORIGIN_OPTIONS:
        if name in given and (why := unused_origin(backend, name)):
            raise pytest.UsageError(f"{prefix}{name}={given[name]}: {why}")


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `layers`; a later layer has priority, and `config` is merged setting by setting."""
    merged: dict[str, Any] = {}
    config: dict[str, object] = {}
    for layer in layers:
        merged |= layer
        config |= layer.get("config", NOTHING)
    return merged | {"config": config} if config else merged
