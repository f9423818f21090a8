"""`Harrow`: what a test sees of its cluster, its faults and its verdicts. The `harrow` fixture yields it.

It also works without pytest:

```python
with Harrow("out/run-1", seed=7) as harrow:
    orders = harrow.topic("orders", partitions=3)
    with harrow.chaos(kill(leader(orders))):
        place_orders(harrow.bootstrap_servers)
    print(harrow.verify(orders, guarantee="no-loss"))
```

It is a facade over `HarrowRun` (`harrow_run.py`), which does the work: the types and the words of the arguments are
here, and nothing that only the plugin needs.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from harrow.cluster.argument_types import checked
from harrow.cluster.errors import HarrowError
from harrow.faults.schedule import Schedule
from harrow.faults.spec import Fault

from ..chaos.blocks import REACHED_WITHIN_S, Chaos
from ..chaos.plan import ChaosRequest
from ..checks.guarantees import Guarantees
from ..promises.record_ids import IdSource
from ..promises.relations import Relation
from ..promises.retries import ATTEMPTS_HEADER, DUE_HEADER
from ..security.choice import APP, INSECURE, Security
from ..topics import Topic
from ..user_spark import UserSpark
from ..waits import AsyncWaits
from ..waits.conditions import Assigned, CaughtUp, Led, Records, Requested, nodes_of, topic_of
from ..waits.wait_loop import TIMEOUT_S
from .harrow_run import HarrowRun
from .program_calls import ProgramCalls
from .recording import AIOKafkaClients, KafkaPythonClients
from .recovery import recovery_bound
from .share_claims import share_groups
from .values import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from faker import Faker

    from ..backends.clusters import ClusterSource
    from ..checks import SparkHandle, Verdict
    from ..clients.consumer import Consumer
    from ..clients.producer import Producer
    from ..running_cluster import RunningCluster


@checked
class Harrow(ProgramCalls):
    """A cluster, faults that break it, and verdicts on what the clients did meanwhile."""

    def __init__(
        self,
        folder: str | Path,
        *,
        seed: int = 0,
        seed_names: Sequence[str] = (),
        brokers: int = 3,
        config: Mapping[str, object] | None = None,
        plants: Sequence[str] = (),
        spark: Callable[[], SparkHandle] | UserSpark | str = "",
        name: str = "harrow",
        repeat: str = "",
        engine: str = "",
        early_spark: bool = True,
        clusters: ClusterSource | None = None,
        converge_timeout_s: float | None = None,
        security: Security | str = INSECURE,
    ) -> None:
        """`seed_names`: random values derive from the seed and these names; the plugin gives the test's node id.

        `engine`: what judges (`engines.py`), Spark by default. `converge_timeout_s`: how long each verdict waits for
        the cluster to converge, a minute by default. `security`: how clients reach the brokers, such as "sasl_ssl".
        """
        self._run = HarrowRun(
            folder,
            seed=seed,
            seed_names=seed_names,
            brokers=brokers,
            config=config,
            plants=plants,
            spark=spark,
            name=name,
            repeat=repeat,
            engine=engine,
            early_spark=early_spark,
            clusters=clusters,
            converge_timeout_s=converge_timeout_s,
            security=Security.of(security),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        failures = self.close()
        if failures and error is not None:
            error.add_note(f"harrow: {'; '.join(failures)}")
        elif failures:
            raise HarrowError("; ".join(failures))

    def __repr__(self) -> str:
        state = "running" if self._run.is_started else "not started"
        return f"<Harrow {self.folder.name} seed={self.seed} brokers={self.brokers} {state}>"

    @property
    def folder(self) -> Path:
        """The run folder: everything that the verdict and the report read, and both of them."""
        return self._run.folder

    @property
    def seed(self) -> int:
        """All random values derive from it."""
        return self._run.seed

    @property
    def backend(self) -> str:
        """Where the brokers run: `local`, `apache`, …"""
        return self._run.backend

    @property
    def brokers(self) -> int:
        """How many brokers the cluster has."""
        return self._run.brokers

    @property
    def repeat(self) -> str:
        """The command that repeats the run; failures and the report show it."""
        return self._run.repeat

    # ---------------------------------------------------------------------------------- cluster

    @property
    def cluster(self) -> RunningCluster:
        """The cluster; the first access starts it."""
        return self._run.cluster

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` setting for any Kafka client; the first access starts the cluster."""
        return self.cluster.bootstrap_servers

    def topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> Topic:
        """Create a topic and wait for its leaders. Default replication factor: 3, at most the number of brokers.

        A topic that was deleted may be created again, with other arguments, too.
        On the cluster of `harrow_session`, a call with the arguments of an earlier test returns that test's topic.
        """
        return self._run.topic(name, partitions, replication_factor, config)

    def up_to(self, most: int, of: str = "records", *, least: int = 1) -> int:
        """Return `most`: how many records, orders or users the test has, such as `range(harrow.up_to(200, "orders"))`.

        While the failure of a simulated test is made smaller (docs/simulate-your-service.md) it returns fewer, `least`
        or more, so that the report has the failure with few records. `of`: what is counted, for the report; the same
        name stands for the same number in the whole test.
        """
        return self._run.sizes.up_to(most, of, least)

    # ---------------------------------------------------------------------------------- clients

    def client_config(self, user: str = APP, *, library: str = "librdkafka") -> dict[str, Any]:
        """Return the settings of a client of `user`, the addresses of the brokers included.

        `library`: `librdkafka` (confluent-kafka, and libraries over librdkafka in other languages), `kafka-python` or
        `aiokafka` (keyword arguments), or `java` (properties). A user who is not there is made.
        """
        return self._run.credentials.client_config(user, library)

    def allow(
        self,
        user: str,
        operation: str,
        topic: Topic | str | None = None,
        *,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """Allow a user one operation on a topic, a group, a transactional id, or else on the cluster itself.

        For a cluster with ACLs: `Security("sasl_ssl", acls=True)`. `operation`: Kafka's name, such as READ, WRITE,
        DESCRIBE, CREATE or ALL. A name that ends with `*` is a prefix, and `*` alone is every name. Every running
        broker acts by it when the call returns.
        """
        named = None if topic is None else str(topic)
        self._run.credentials.allow(user, operation, topic=named, group=group, transactional_id=transactional_id)

    def producer(self, **config: object) -> Producer:
        """Return a confluent-kafka Producer that records its operations. Settings have underscores: `client_id="a"`.

        Defaults: idempotent, acks=all, and librdkafka does not log each connection that a fault breaks (`log_level=6`
        does). Each operation is appended to the history when it happens. `user="alice"`: who it logs in as.
        """
        return self._run.clients.producer(**config)

    def consumer(self, **config: object) -> Consumer:
        """Return a confluent-kafka Consumer that records its operations.

        Defaults: group `harrow`, earliest offset, and librdkafka does not log each connection that a fault breaks.
        """
        return self._run.clients.consumer(**config)

    @property
    def kafka_python(self) -> KafkaPythonClients:
        """Recording clients of kafka-python: `harrow.kafka_python.producer()`, `.consumer("orders")`."""
        return self._run.clients.kafka_python

    @property
    def aiokafka(self) -> AIOKafkaClients:
        """Recording clients of aiokafka: `harrow.aiokafka.producer()`, `.consumer("orders")`."""
        return self._run.clients.aiokafka

    # ----------------------------------------------------------------------------------- values

    @property
    def faker(self) -> Faker:
        """A Faker whose values depend only on the seed; it needs the extra `faker`."""
        return self._run.faker

    @property
    def values(self) -> Values:
        """Values for records, such as names, products and amounts, that depend only on the seed."""
        return self._run.values

    @property
    def random(self) -> random.Random:
        """Random numbers that depend only on the seed."""
        return self._run.random

    # ------------------------------------------------------------------------------------ waits

    @property
    def aio(self) -> AsyncWaits:
        """The same waits for async tests: `await harrow.aio.await_assigned("billing")`."""
        return self._run.waits.aio

    def await_assigned(self, group: str, *, members: int | None = None, timeout: float = TIMEOUT_S) -> int:
        """Wait until a consumer group is stable, and return how many members it has.

        `members`: how many it must have, no more and no less; None: any. `timeout`: seconds; then WaitTimeoutError,
        with the state and the members of the group. On Harrow's own brokers the taps of the coordinators say it; others
        are polled with DescribeGroups.
        """
        return self._run.waits.wait_until(Assigned(group=group, members=members), timeout)

    def await_caught_up(self, group: str, *topics: Topic | str, timeout: float = TIMEOUT_S) -> None:
        """Wait until a consumer group has committed every record that the topics have at that moment.

        Markers of transactions and records of aborted ones do not count, because no consumer receives them. `timeout`:
        seconds; then WaitTimeoutError, with the number of records of each partition that are not committed. On
        Harrow's own brokers taps and logs say it; others are polled with OffsetFetch and ListOffsets.
        """
        names = tuple(topic_of(topic, "await_caught_up") for topic in topics)
        self._run.waits.wait_until(CaughtUp(group=group, topics=names), timeout)

    def await_records(self, topic: Topic | str, count: int, *, timeout: float = TIMEOUT_S) -> int:
        """Wait until a topic has at least `count` records, and return how many it has.

        Those count that a consumer of committed data can read at that moment. `timeout`: seconds; then
        WaitTimeoutError, with the number of records of each partition. On Harrow's own brokers the logs say it; from
        others a consumer of Harrow's reads them.
        """
        name = topic_of(topic, "await_records")
        return self._run.waits.wait_until(Records(topic=name, count=count), timeout)

    def await_request(self, api: str | int, *, client: str = "*", count: int = 1, timeout: float = TIMEOUT_S) -> int:
        """Wait until brokers have responded to `count` requests of an API since the test began; return how many.

        A request that came before the call counts too, so no wait is too late. To wait for a further one:
        `seen = harrow.await_request("OffsetCommit")`, then `harrow.await_request("OffsetCommit", count=seen + 1)`.

        `api`: Kafka's name or number. `client`: a pattern of client ids, `billing*`. Requests of Harrow's own clients
        do not count. `timeout`: seconds; then WaitTimeoutError, with the client ids of this API and the other requests.
        The taps of the brokers, or of the proxy before them, say it on every backend.
        """
        waits = self._run.waits
        condition = Requested(api=api, client=client, count=count, before=waits.requests_before)
        return waits.wait_until(condition, timeout)

    def await_leader(
        self,
        topic: Topic | str,
        partition: int = 0,
        *,
        other_than: int | Collection[int] | None = None,
        timeout: float = TIMEOUT_S,
    ) -> int:
        """Wait until a partition has a leader that is registered, and return its node id.

        `other_than`: node ids that do not count, such as that of the leader before a fault. `timeout`: seconds; then
        WaitTimeoutError, with the leader of each partition. Harrow's registry is asked every 20 ms; brokers of other
        backends are polled with Metadata.
        """
        led = Led(topic=topic_of(topic, "await_leader"), partition=partition, other_than=nodes_of(other_than))
        return self._run.waits.wait_until(led, timeout)

    # ----------------------------------------------------------------------------------- faults

    def chaos(
        self,
        *faults: Fault,
        duration: float | None = None,
        cap: int | None = None,
        kinds: Sequence[str] | Mapping[str, int] | None = None,
        schedule: Schedule | None = None,
        reached_within: float = REACHED_WITHIN_S,
        recovers_within: float | None = None,
    ) -> Chaos:
        """Return a block that injects `faults` into the cluster, in sequence and in the background.

        Use it with `with` or, so that the end of the block does not stop an event loop, with `async with`; a test that
        makes a block and does not enter it fails. The first fault waits for the first traffic, and each later one until
        the earlier one is healed.

        * `faults`: such as `kill(leader("orders"))`. Each must take effect, else the block raises NemesisError. Without
          faults: random ones of the kinds `kinds`, for 5 s.
        * `duration`: seconds after the first traffic. The faults are injected once in the given order, and again in
          random orders while the block lasts and the duration has not passed.
        * `kinds`: names as in a schedule file (`harrow.faults.planning.RANDOM_FAULTS`: kill, pause, isolate, …), those
          of extensions too; `{"kill": 3, "pause": 1}` draws kills three times as often. Default: kill, pause and
          isolate, as far as the backend can inject them.
        * `cap`: the maximum number of brokers that are disturbed at the same time. Default: as many as may fail while
          every topic accepts acks=all, and at least what a named target such as `majority` needs.
        * `reached_within`: a fault that acts at a request, a call or a place in the code fails when none was reached in
          so many seconds in which there was traffic.
        * `schedule`: a recorded schedule to replay, `Schedule.from_json(text)`; it has its own duration and cap.
        * `recovers_within`: seconds; a client that makes no progress for longer because of a fault of this block,
          although the cluster could serve it, makes the verdict invalid (`stalled`). Default: it is reported.

        ConfigError for an argument that cannot be used, such as a topic that the cluster does not have.
        """
        request = ChaosRequest.of(faults, duration, cap, kinds, schedule, reached_within)
        return self._run.chaos(request, recovery_bound("chaos", recovers_within))

    @property
    def schedule(self) -> Schedule:
        """The schedule of the last chaos block with its resolved targets; its JSON form can be replayed."""
        return self._run.schedule

    @property
    def schedules(self) -> list[Schedule]:
        """The schedules of all chaos blocks of the running test, resolved."""
        return self._run.schedules

    # --------------------------------------------------------------------------------- verdicts

    def verify(
        self,
        *topics: Topic | str,
        guarantee: Guarantees | None = None,
        record_id: IdSource | None = None,
        expected: Iterable[object] | None = None,
        order_key: IdSource | None = None,
        recovers_within: float | None = None,
        consumed_by: str | Sequence[str] = (),
    ) -> Verdict:
        """Wait for convergence, do the final read and judge on Spark; raise VerdictError unless the verdict is valid.

        `guarantee`: best-effort, no-loss, at-least-once, at-most-once, exactly-once, ordered, or several with commas.
        None derives it from the producer settings that were observed. Without topics: all topics of this test.
        `record_id`: by what the application recognises a record: a field path of the JSON value (`"customer.id"`), or a
        function of the `Record`. `expected`: the ids (or records) that the application believes that it sent; a list
        also says in which order. `order_key`: field path or function; records with the same key have an order. By
        default it is Kafka's record key. It adds `ordered` to a derived guarantee; an explicit one must name it.

        `recovers_within`: seconds. A client, group or transactional id that makes no progress for longer, although it
        has work and the cluster can serve it, makes the verdict invalid (`stalled`). None: it is reported.
        `consumed_by`: share groups (KIP-932) that must have accepted or rejected every record from their start on.
        """
        __tracebackhide__ = True  # so pytest shows the caller's line
        from ..promises.topic_promise import TopicPromise

        promise = TopicPromise.of(guarantee=guarantee, record_id=record_id, expected=expected, order_key=order_key)
        within = recovery_bound("verify", recovers_within)
        return self._run.verify(topics, guarantee, promise, within, share_groups(consumed_by))

    def verify_pipeline(
        self,
        source: Topic | str,
        sink: Any,
        *,
        guarantee: Guarantees | None = None,
        record_id: IdSource | None = None,
        relation: Relation | str | None = None,
        group: str | None = None,
        retry_topics: Topic | str | Iterable[Topic | str] = (),
        dead_letters: Topic | str | None = None,
        attempts: int | None = None,
        order_key: IdSource | None = None,
        attempts_header: str = ATTEMPTS_HEADER,
        due_header: str = DUE_HEADER,
        recovers_within: float | None = None,
    ) -> Verdict:
        """Judge what came out of a pipeline for what went in; raise VerdictError unless the verdict is valid.

        Call it when the job has finished or was stopped. It waits for convergence, reads the topics, judges on Spark.

        `sink`: a topic, `table(url_or_connection, query)`, `files(path)`, a pandas, polars, Arrow or Spark frame, or an
        iterable of rows. `relation`: what an input requires: `identity`, `mapped(f)`, `filtered(f)`, `flat_mapped(f)`,
        `folded(f, initial)`, `windowed(seconds, f)`, or the name of an extension's; without it, an output with the same
        record id. `record_id`: by what outputs and inputs belong together: a field path of the JSON value or row, or a
        function of the `Record`.
        `guarantee`: no-loss, at-least-once (the default), at-most-once, exactly-once, ordered, or several with commas.
        `group`: the pipeline's consumer group, where others commit offsets of the source too.
        `retry_topics`: the topics to which the job sends an input that it works on again later, with the same record
        id. The offset of an input that such a topic has may be committed before its output is there.
        `dead_letters`: the topic of the inputs that the job gave up: each input has its output or lies there.
        `attempts`: how often the job tries an input, the first attempt included.
        `order_key`: by what inputs have an order: a field path or a function of the `Record`; by default it is Kafka's
        record key. It adds `ordered` to the default guarantee; an explicit one must name it.
        `attempts_header`, `due_header`: the headers of a record in a retry topic with the number of attempts that were
        made, and with the time of the next one in milliseconds since 1970.

        `recovers_within`: seconds. A job that makes no progress for longer, although the cluster can serve it, makes
        the verdict invalid (`stalled`).

        An input that the job has not processed yet is a missing output; the message says how far the job has committed.
        """
        __tracebackhide__ = True  # so pytest shows the caller's line
        from ..promises.pipeline_promise import PipelinePromise, forbids_duplicates, guarantee_of
        from ..promises.retries import RetryPromise

        bound = recovery_bound("verify_pipeline", recovers_within)
        named = guarantee_of(guarantee, order_key)
        retry = RetryPromise.of(
            retry_topics=retry_topics,
            dead_letters=dead_letters,
            attempts=attempts,
            attempts_header=attempts_header,
            due_header=due_header,
            once=forbids_duplicates(named),
        )
        promise = PipelinePromise.of(
            source,
            sink,
            guarantee=named,
            record_id=record_id,
            relation=relation,
            group=group,
            retry=retry,
            order_key=order_key,
        )
        return self._run.verify(promise.topics, named, promise, bound)

    @property
    def verdicts(self) -> list[Verdict]:
        """All verdicts so far, the newest last."""
        return self._run.made.verdicts

    def close(self) -> list[str]:
        """Stop everything; return the reasons for which the test must fail."""
        return self._run.close()


def run_of(harrow: Harrow) -> HarrowRun:
    """Return the run behind a `Harrow`: for the plugin, the workloads and the commands."""
    return harrow._run  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the one way to it
