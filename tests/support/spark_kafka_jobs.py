"""Jobs of Spark's own Kafka source and sink, in a process of their own: `python spark_kafka_jobs.py SERVERS JAR…`.

Reads one JSON object a line from the standard input and writes one a line: {"result": …} or {"error": …}. The methods
of `Jobs` are the calls. Ends when the standard input does.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


class Jobs:
    """The jobs on one cluster."""

    def __init__(self, servers: str, jars: list[str]) -> None:
        builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(jars))
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._servers = servers
        self._query: StreamingQuery | None = None

    def write(self, topic: str, first: int, count: int) -> None:
        """A batch write of the numbers from `first` on."""
        rows = self._spark.range(first, first + count, 1, 4)
        texts = rows.selectExpr("cast(id % 7 as string) key", "cast(id as string) value")
        sink = texts.write.format("kafka").option("kafka.bootstrap.servers", self._servers)
        sink.option("topic", topic).save()

    def read(self, topic: str, isolation: str = "read_uncommitted") -> list[str]:
        """The values that a batch read returns."""
        source = self._spark.read.format("kafka").option("subscribe", topic)
        source = source.option("kafka.bootstrap.servers", self._servers)
        source = source.option("kafka.isolation.level", isolation).option("startingOffsets", "earliest")
        return _values(source.load())

    def files(self, path: str) -> list[str]:
        """The values in the files of a stream."""
        return _values(self._spark.read.parquet(path))

    def stream(self, topic: str, sink: str, checkpoint: str) -> None:
        """Starts a query from `topic` to a folder (a path) or to a topic (a name)."""
        source = self._spark.readStream.format("kafka").option("subscribe", topic)
        source = source.option("kafka.bootstrap.servers", self._servers)
        source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "200")
        # Java's Admin waits so long for a leader that has left the metadata before Spark makes another; 60 s by default
        source = source.option("kafka.default.api.timeout.ms", "8000").option("kafka.request.timeout.ms", "5000")
        rows = source.load().selectExpr("key", "value")
        if sink.startswith("/"):
            writer = rows.writeStream.format("parquet").option("path", sink)
        else:
            writer = rows.writeStream.format("kafka").option("topic", sink)
            writer = writer.option("kafka.bootstrap.servers", self._servers)
        self._query = writer.option("checkpointLocation", checkpoint).start()

    def processed(self) -> int:
        """The number of batches that the query has finished; its error where it has failed."""
        assert self._query is not None
        if (failed := self._query.exception()) is not None:
            raise failed
        return len(self._query.recentProgress)

    def stop(self, *, drain: bool) -> None:
        """Stops the query; with `drain` after it has processed what is there."""
        assert self._query is not None
        if drain:
            self._query.processAllAvailable()
        self._query.stop()


def _values(frame: DataFrame) -> list[str]:
    return sorted(row.value for row in frame.selectExpr("cast(value as string) value").collect())


def main() -> None:
    """Serves calls until the standard input ends."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints is no result
    jobs = Jobs(sys.argv[1], sys.argv[2:])
    for line in sys.stdin:
        call: dict[str, Any] = json.loads(line)
        try:
            answer = {"result": getattr(jobs, call.pop("do"))(**call)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:2_000]}
        print(json.dumps(answer), file=results, flush=True)


if __name__ == "__main__":
    main()
