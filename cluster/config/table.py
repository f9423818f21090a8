"""The settings of brokers and topics under Apache Kafka's own names, with its units and defaults.

Owns: the table (`SETTINGS`; those of logs and topics are in `log_table.py`, those that running brokers only store in
`dynamic_table.py`), Kafka's coarser names for some of them (`COARSE`), and the names that are refused with a reason
(`REFUSED`). Harrow's own settings begin with `harrow.`. A setting is in the table only if a broker reads it
(`tests/unit/config/test_settings_are_read.py`), if only its default is accepted (`Setting.only_default`), or if topics
or running brokers store it without an effect (`Setting.stored`).

Source: Apache Kafka's documentation of broker and topic configurations.
"""

from __future__ import annotations

from collections.abc import Mapping

from .acl_table import ACL_SETTINGS
from .dynamic_table import DYNAMIC_SETTINGS
from .log_table import LOG_SETTINGS, THROTTLE_RATES, TOPIC_SETTINGS
from .sasl_table import MECHANISM_SETTINGS, SASL_SETTINGS, SERVED_MECHANISMS, TOKEN_SETTINGS
from .setting import INT_MAX, LONG_MAX, Change, Setting, bool_setting, int_setting, long_setting, text_setting
from .share_table import SHARE_SETTINGS
from .ssl_table import SSL_SETTINGS
from .streams_table import STREAMS_TASK_SETTINGS

LISTENER_PREFIX = "listener.name."
"""Before a setting, with the name of a listener in lower case: the value for one listener."""

SETTINGS: tuple[Setting, ...] = (
    # replication
    int_setting("num.partitions", 1, "partitions of an auto-created topic", low=1),
    Setting(
        name="default.replication.factor",
        default=1,
        doc="replicas of an auto-created topic",
        low=1,
        high=32767,
        kind="",
    ),
    bool_setting("auto.create.topics.enable", True, "a metadata request or produce may create its topic"),
    bool_setting("delete.topic.enable", True, "DeleteTopics is allowed"),
    int_setting("min.insync.replicas", 1, "smallest ISR that acks=all accepts", low=1, topic="min.insync.replicas"),
    bool_setting(
        "unclean.leader.election.enable",
        False,
        "elect from outside the ISR rather than be offline",
        topic="unclean.leader.election.enable",
    ),
    long_setting("replica.lag.time.max.ms", 30_000, "a follower not caught up for so long leaves the ISR", low=1),
    int_setting("replica.fetch.wait.max.ms", 500, "how long a follower's fetch waits at the leader"),
    int_setting("replica.fetch.min.bytes", 1, "a follower's fetch answers at this many bytes"),
    int_setting("replica.fetch.max.bytes", 1_048_576, "most bytes for a partition in a follower's fetch"),
    int_setting("replica.fetch.response.max.bytes", 10_485_760, "most bytes in a follower's fetch"),
    int_setting("replica.fetch.backoff.ms", 1_000, "pause of a fetcher after an error"),
    Setting(
        name="replica.selector.class",
        default="",
        doc="which replica a consumer should read (KIP-392); '': the leader",
        choices=(
            "",
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
        unset=True,
    ),
    int_setting("replica.socket.timeout.ms", 30_000, "a peer that has not answered for so long is lost"),
    long_setting("replica.high.watermark.checkpoint.interval.ms", 5_000, "period of the HW checkpoint", low=1),
    # controller and registry
    Setting(name="broker.rack", default="", doc="where this broker stands: replicas are spread over racks", unset=True),
    text_setting("zookeeper.connect", "", "a ZooKeeper ensemble (host:port,…/chroot) instead of the own registry"),
    int_setting(
        "zookeeper.session.timeout.ms", 18_000, "a broker not heard by the registry for so long is gone", low=1
    ),
    int_setting("zookeeper.connection.timeout.ms", 18_000, "how long a broker tries to reach the registry", low=1),
    bool_setting("controlled.shutdown.enable", True, "move leaders away before a broker ends"),
    bool_setting("auto.leader.rebalance.enable", True, "elect preferred leaders from time to time"),
    long_setting("leader.imbalance.check.interval.seconds", 300, "period of that check", low=1),
    int_setting(
        "leader.imbalance.per.broker.percentage", 10, "share of a broker's preferred leaderships that may lie elsewhere"
    ),
    int_setting(
        "controller.socket.timeout.ms", 30_000, "a broker that has not answered the controller so long is lost"
    ),
    # requests
    int_setting("request.timeout.ms", 30_000, "how long a broker waits for its own requests"),
    int_setting("message.max.bytes", 1_048_588, "largest record batch accepted", topic="max.message.bytes"),
    int_setting("socket.request.max.bytes", 104_857_600, "largest request accepted", low=1),
    int_setting(
        "max.request.partition.size.limit", 2_000, "most partitions in a DescribeTopicPartitions response", low=1
    ),
    int_setting(
        "max.incremental.fetch.session.cache.slots",
        1_000,
        "fetch sessions of consumers (KIP-227); more consumers send full fetches",
    ),
    int_setting("fetch.max.bytes", 57_671_680, "most bytes in a fetch response", low=1024),
    # listeners (listeners.py has their rules)
    Setting(
        name="listeners",
        default="CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        doc="where the broker listens, as NAME://host:port,…; the supervisor resolves port 0 to a free one",
        kind="list",
        change=Change.BROKER,
    ),
    Setting(
        name="advertised.listeners",
        default="",
        doc="addresses given to clients and brokers; '': listeners",
        kind="list",
        unset=True,
    ),
    Setting(
        name="listener.security.protocol.map",
        default="CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        doc="the security protocol of each listener, as NAME:PROTOCOL,…",
        change=Change.BROKER,
    ),
    Setting(
        name="inter.broker.listener.name",
        default="BROKERS",
        doc="the listener on which brokers talk to brokers",
        unset=True,
    ),
    int_setting(
        "max.connections", INT_MAX, "open connections of the broker; more wait to be accepted", change=Change.CLUSTER
    ),
    int_setting(
        "max.connections.per.ip", INT_MAX, "open connections from one address; more are closed", change=Change.CLUSTER
    ),
    Setting(
        name="max.connections.per.ip.overrides",
        default="",
        doc="other bounds for single addresses, as ADDRESS:CONNECTIONS,…",
        pattern=r"(\S+:\d+(\s*,\s*\S+:\d+)*)?",
        change=Change.CLUSTER,
    ),
    long_setting(
        "connections.max.idle.ms", 600_000, "a connection of a client without requests for so long is closed; -1: never"
    ),
    int_setting(
        "queued.max.requests",
        500,
        "requests of clients that were read and wait for their handler; then reading stops",
        low=1,
    ),
    *ACL_SETTINGS,
    *SSL_SETTINGS,
    *SASL_SETTINGS,
    *TOKEN_SETTINGS,
    *LOG_SETTINGS,
    # producers
    int_setting(
        "producer.id.expiration.ms",
        86_400_000,
        "a silent producer id is forgotten after this",
        low=1,
        change=Change.CLUSTER,
    ),
    # groups
    int_setting("offsets.topic.num.partitions", 50, "partitions of __consumer_offsets", low=1),
    Setting(
        name="offsets.topic.replication.factor",
        default=3,
        doc="replicas of __consumer_offsets",
        low=1,
        high=32767,
        kind="short",
    ),
    int_setting("offsets.topic.segment.bytes", 104_857_600, "segment size of __consumer_offsets", low=1),
    int_setting("offsets.commit.timeout.ms", 5_000, "how long a commit waits for its replicas", low=1),
    int_setting("offsets.retention.minutes", 10_080, "committed offsets of an empty group expire after this", low=1),
    int_setting(
        "offsets.retention.check.interval.ms",
        600_000,
        "how often coordinators check for expired offsets",
        low=1,
        high=LONG_MAX,
    ),
    int_setting("offset.metadata.max.bytes", 4_096, "longest metadata string of a commit"),
    int_setting("group.min.session.timeout.ms", 6_000, "shortest session timeout a member may ask for"),
    int_setting("group.max.session.timeout.ms", 1_800_000, "longest session timeout a member may ask for"),
    int_setting("group.initial.rebalance.delay.ms", 3_000, "how long an empty group waits for more members"),
    int_setting("group.max.size", INT_MAX, "most members of a classic group", low=1),
    int_setting("group.consumer.session.timeout.ms", 45_000, "session timeout of consumer groups", low=1),
    int_setting("group.consumer.min.session.timeout.ms", 45_000, "shortest such session timeout", low=1),
    int_setting("group.consumer.max.session.timeout.ms", 60_000, "longest such session timeout", low=1),
    int_setting("group.consumer.heartbeat.interval.ms", 5_000, "how often such members send heartbeats", low=1),
    int_setting("group.consumer.min.heartbeat.interval.ms", 5_000, "shortest such interval", low=1),
    int_setting("group.consumer.max.heartbeat.interval.ms", 15_000, "longest such interval", low=1),
    int_setting("group.consumer.max.size", INT_MAX, "most members of a consumer group", low=1),
    Setting(
        name="group.consumer.assignors",
        default="uniform,range",
        doc="allowed assignors; the first is the default",
        kind="list",
    ),
    int_setting("group.streams.session.timeout.ms", 45_000, "session timeout of streams groups", low=1),
    int_setting("group.streams.min.session.timeout.ms", 45_000, "shortest such session timeout", low=1),
    int_setting("group.streams.max.session.timeout.ms", 60_000, "longest such session timeout", low=1),
    int_setting("group.streams.heartbeat.interval.ms", 5_000, "how often such members send heartbeats", low=1),
    int_setting("group.streams.min.heartbeat.interval.ms", 5_000, "shortest such interval", low=1),
    int_setting("group.streams.max.heartbeat.interval.ms", 15_000, "longest such interval", low=1),
    int_setting("group.streams.max.size", INT_MAX, "most members of a streams group", low=1),
    int_setting("group.streams.num.standby.replicas", 0, "standbys of each task of a streams group", low=0),
    int_setting("group.streams.max.standby.replicas", 2, "most such standbys", low=0),
    int_setting(
        "group.streams.initial.rebalance.delay.ms", 3_000, "how long an empty streams group waits for members", low=0
    ),
    *STREAMS_TASK_SETTINGS,
    Setting(
        name="group.streams.rack.aware.assignment.tags",
        default="",
        doc="client tags that each member of a streams group must have",
        kind="list",
    ),
    Setting(
        name="group.coordinator.rebalance.protocols",
        default="classic,consumer,streams",
        doc="protocols of groups that the coordinator serves; classic is always among them",
        kind="list",
        choices=("classic", "consumer", "streams"),
        pattern=r"(.*,)?classic(,.*)?",
    ),
    text_setting(
        "group.consumer.migration.policy",
        "bidirectional",
        "may groups change between the classic and the consumer protocol while members live",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    *SHARE_SETTINGS,
    # transactions
    int_setting("transaction.state.log.num.partitions", 50, "partitions of __transaction_state", low=1),
    Setting(
        name="transaction.state.log.replication.factor",
        default=3,
        doc="replicas of __transaction_state",
        low=1,
        high=32767,
        kind="short",
    ),
    int_setting("transaction.state.log.min.isr", 2, "smallest ISR of __transaction_state", low=1),
    int_setting("transaction.state.log.segment.bytes", 104_857_600, "segment size of __transaction_state", low=14),
    int_setting(
        "transaction.max.timeout.ms", 900_000, "longest transaction.timeout.ms that a producer may ask for", low=1
    ),
    int_setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "period of the check for transactions that have lasted too long",
        low=1,
    ),
    int_setting(
        "transactional.id.expiration.ms",
        604_800_000,
        "a transactional id without a transaction for so long is forgotten",
        low=1,
    ),
    int_setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "period of the check for expired transactional ids",
        low=1,
    ),
    bool_setting(
        "transaction.partition.verification.enable",
        True,
        "a leader asks the coordinator before a transaction begins in its log (KIP-890)",
        change=Change.CLUSTER,
    ),
    int_setting(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        "pause before a leader asks again while the last transaction ends",
        low=1,
    ),
    int_setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "how long a leader asks again before the producer must",
        low=0,
    ),
    Setting(
        name="transaction.two.phase.commit.enable",
        default=False,
        doc="transactions that an external coordinator ends",
        only_default="a transaction ends by EndTxn or by its timeout",
    ),
    # purgatories
    int_setting("producer.purgatory.purge.interval.requests", 1_000, "completed operations before a purge", low=1),
    int_setting("fetch.purgatory.purge.interval.requests", 1_000, "completed operations before a purge", low=1),
    int_setting("delete.records.purgatory.purge.interval.requests", 1, "completed operations before a purge", low=1),
    # Harrow's own
    text_setting(
        "harrow.replica.truncation",
        "kip-320",
        "how a follower truncates (C7)",
        ("high-watermark", "kip-101", "kip-279", "kip-320"),
    ),
    long_setting(
        "harrow.replica.silence.max.ms",
        0,
        "a follower that is behind and sent no fetch for so long leaves the ISR before replica.lag.time.max.ms; "
        "0: Kafka's rule alone",
        low=0,
    ),
    int_setting("harrow.trace.hw.interval.ms", 100, "most often that a partition's HW is traced; 0: every change"),
    int_setting(
        "harrow.metrics.port",
        -1,
        "metrics in Prometheus' format over HTTP on loopback; 0: any free port, -1: none",
        low=-1,
        high=65535,
    ),
    text_setting(
        "harrow.as.version",
        "",
        "list and serve to clients what this release of Kafka does; '': all that Harrow serves",
        ("", "3.9", "4.0", "4.2", "4.4"),
    ),
    bool_setting("harrow.tap", False, "write what the wire acknowledged and delivered to the tap (J6)"),
    int_setting("harrow.tail.bytes", 4_194_304, "bytes of each log kept in memory for fetches at its end"),
    int_setting("harrow.tail.total.bytes", 50_331_648, "bytes of all logs together kept so"),
    bool_setting("harrow.power.loss", False, "journal unsynced writes, so that power_loss can be played"),
)

COARSE_SETTINGS: tuple[Setting, ...] = tuple(
    Setting(
        name=name, default=default, doc=f"coarser than {fine}, which overrides it", low=low, high=INT_MAX, unset=unset
    )
    for name, fine, default, low, unset in (
        ("log.roll.hours", "log.roll.ms", 168, 1, False),
        ("log.roll.jitter.hours", "log.roll.jitter.ms", 0, 0, False),
        ("log.retention.minutes", "log.retention.ms", -1, -1, True),
        ("log.retention.hours", "log.retention.minutes", 168, -1, False),
    )
)
COARSE: Mapping[str, tuple[tuple[str, int], ...]] = {
    "log.roll.ms": (("log.roll.hours", 3_600_000),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", 3_600_000),),
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
}
"""Name in milliseconds → Kafka's names in minutes and hours, with factors. The name with the smallest unit wins."""

BROKER_SETTINGS: tuple[Setting, ...] = (*SETTINGS, *COARSE_SETTINGS, *DYNAMIC_SETTINGS)
"""Every setting that a broker describes."""
BY_NAME: Mapping[str, Setting] = {row.name: row for row in (*BROKER_SETTINGS, *THROTTLE_RATES)}
BY_TOPIC_NAME: Mapping[str, Setting] = {row.topic: row for row in (*SETTINGS, *TOPIC_SETTINGS) if row.topic}


def setting_of(name: str) -> Setting | None:
    """The row of a setting, also of one with the prefix of a listener (`listener.name.clients.`), and of a mechanism.

    None for a name that no broker has.
    """
    if not name.startswith(LISTENER_PREFIX):
        return BY_NAME.get(name)
    _, _, own = name.removeprefix(LISTENER_PREFIX).partition(".")
    mechanism, _, rest = own.partition(".")
    if mechanism.upper() in SERVED_MECHANISMS and rest in MECHANISM_SETTINGS:
        return BY_NAME[rest]
    return BY_NAME.get(own)


REFUSED: Mapping[str, str] = {
    "broker.id": "the supervisor numbers its brokers from 1 and `BrokerProcess.node_id` says the number; "
    "remove the setting"
}
"""Settings of Kafka that would be misleading if they were accepted: why, and the remedy."""
