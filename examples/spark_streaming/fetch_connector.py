"""Fetches Spark's connector for Kafka from Maven Central into `jars/`: `python fetch_connector.py [VERSION]`."""

import shutil
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

HERE = Path(__file__).parent
VERSION = sys.argv[1] if len(sys.argv) > 1 else pyspark.__version__
IVY = HERE / "ivy"
package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}"
builder = SparkSession.builder.master("local[1]").config("spark.jars.packages", package)
builder.config("spark.jars.ivy", str(IVY)).config("spark.ui.enabled", "false").getOrCreate().stop()
(HERE / "jars").mkdir(exist_ok=True)
for jar in (IVY / "jars").glob("*.jar"):
    if not jar.name.startswith(("org.apache.hadoop_", "org.slf4j_", "org.lz4_", "org.xerial.")):  # Spark has these
        shutil.copy(jar, HERE / "jars")
print(*sorted(jar.name for jar in (HERE / "jars").iterdir()), sep="\n")
