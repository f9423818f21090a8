"""A Spark structured streaming job: reads orders from Kafka, writes a bill for each order.

    python bills.py BOOTSTRAP_SERVERS FOLDER [--to-topic bills] [--jars JARS]

Bills go to Parquet files in FOLDER/bills, or to a topic. FOLDER/checkpoint says how far the job has read, so it
continues there after a restart. On SIGTERM the job finishes the orders that are there, and ends.
"""

import argparse
import os
import signal

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, struct, to_json
from pyspark.sql.streaming.query import StreamingQuery

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
ORDER = "order long, amount double"
TAX = 1.2


def spark_session(jars: str) -> SparkSession:
    """Starts Spark with its connector for Kafka: jars that are here, or from Maven Central."""
    connector = {"spark.jars": jars} if jars else {"spark.jars.packages": CONNECTOR}
    builder = SparkSession.builder.master("local[2]").appName("bills")
    for name, value in {**connector, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def bills(orders: DataFrame) -> DataFrame:
    """The transformation: a bill for each order."""
    parsed = orders.select("key", from_json(col("value").cast("string"), ORDER).alias("order"))
    return parsed.select("key", col("order.order"), (col("order.amount") * TAX).alias("total"))


def start(spark: SparkSession, servers: str, folder: str, topic: str) -> StreamingQuery:
    """Starts the query: from the topic `orders` to files or to a topic."""
    orders = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    written = bills(orders)
    if topic:
        value = to_json(struct("order", "total")).alias("value")
        sink = written.select("key", value).writeStream.format("kafka").option("topic", topic)
        sink = sink.option("kafka.bootstrap.servers", servers)
    else:
        sink = written.drop("key").writeStream.format("parquet").option("path", f"{folder}/bills")
    return sink.option("checkpointLocation", f"{folder}/checkpoint").start()


def main() -> None:
    """Runs the job until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("folder")
    parser.add_argument("--to-topic", default="")
    parser.add_argument("--jars", default=os.environ.get("SPARK_KAFKA_JARS", ""))
    given = parser.parse_args()
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    spark = spark_session(given.jars)
    query = start(spark, given.servers, given.folder, given.to_topic)
    print("ready", flush=True)
    while not stopping:
        query.awaitTermination(1)
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
