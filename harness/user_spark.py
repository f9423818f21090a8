"""What a user says about the engine that judges: its name, an own Spark, and a folder for what executors judge."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from .engines import SPARK, check_engine


class UserSpark(NamedTuple):
    """What a user says about the Spark that judges; empty: Harrow starts one for the run."""

    address: str = ""
    """A master (`spark://host:7077`, `local[8]`) or a Spark Connect address (`sc://host:15002`)."""
    data: str = ""
    """A folder that this machine can write and all executors can read: an absolute path, or a URL.

    What a query judges is copied there and removed after it. Empty: the executors read the run folder. It has no
    meaning for Harrow's own Spark."""
    engine: str = SPARK
    """What judges: Spark or this process (`engines.py`)."""

    @property
    def remote(self) -> str | None:
        """Return the Connect address."""
        return self.address if self.address.startswith("sc://") else None

    @property
    def master(self) -> str | None:
        """Return the master."""
        return None if self.remote else self.address or None


def chosen_engine(engine: str, spark: object) -> str:
    """Return the engine that judges: `engine`, else that of `spark`, else Spark. Raises ConfigError."""
    # here, because a run without Harrow imports none of the cluster's modules
    from harrow.cluster.errors import ConfigError

    own = spark if isinstance(spark, UserSpark) else HARROWS_OWN
    try:
        check_engine(engine or own.engine, own.address)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return engine or own.engine


HARROWS_OWN = UserSpark()


def shown(url: str) -> str:
    """Return a URL without the name and the secret that it may have, for messages."""
    return re.sub(r"//[^/@]*@", "//…@", url)


def data_folder(value: object) -> str:
    """Parse the folder for data. Raises ValueError."""
    text = str(value)
    if text and "://" not in text and not os.path.isabs(text):
        raise ValueError(
            f"{text!r}: expected a URL such as file:///mnt/shared or s3://bucket/folder, or an absolute path: this "
            "machine and Spark's executors have different working folders"
        )
    if "#" in text:
        raise ValueError(f"{text!r}: expected a URL without '#'")
    return text.rstrip("/") if "?" not in text and not text.endswith("://") else text
