"""The user's own Spark: its address, and a folder for the data that executors on other machines judge."""

from __future__ import annotations

import os
import re
from typing import NamedTuple


class UserSpark(NamedTuple):
    """What a user says about the Spark that judges; empty: Harrow starts one for the run."""

    address: str = ""
    """A master (`spark://host:7077`, `local[8]`) or a Spark Connect address (`sc://host:15002`)."""
    data: str = ""
    """A folder that this machine can write and all executors can read: an absolute path, or a URL.

    What a query judges is copied there and removed after it. Empty: the executors read the run folder. It has no
    meaning for Harrow's own Spark."""

    @property
    def remote(self) -> str | None:
        """Return the Connect address."""
        return self.address if self.address.startswith("sc://") else None

    @property
    def master(self) -> str | None:
        """Return the master."""
        return None if self.remote else self.address or None


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
