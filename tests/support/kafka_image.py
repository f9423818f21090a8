"""The image with Apache Kafka for the tests of the backend `docker`: HARROW_IMAGE, where the daemon has it.

Where no registry can be reached, `docker import` makes an image of a folder with /bin/sh, Java, its libraries, and the
jars in /opt/kafka/libs; `-c "ENV PATH=…"` puts Java on the path.
"""

from __future__ import annotations

import contextlib
import os

from harrow.faults.errors import CapabilityError

IMAGE = os.environ.get("HARROW_IMAGE", "apache/kafka:4.2.0")


def missing() -> str:
    """Return why no container of the image can be started here; empty when it can."""
    from harrow.harness.backends.docker.daemon import connect, has_image

    try:
        with contextlib.closing(connect()) as client:
            here = has_image(client, IMAGE)
    except CapabilityError as error:
        return str(error)
    return (
        ""
        if here
        else f"Docker does not have the image {IMAGE}: docker pull {IMAGE}, or HARROW_IMAGE=…"
    )


MISSING = missing()
