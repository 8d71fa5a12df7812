"""Spark's Kafka source in a local session, with the jars that fit the installed PySpark.

The only place that says which settings such a session needs; tests ask it for a topic's records.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from attrs import define, field

from tests.kafka.node import jars
from tests.kafka.records import Stored
from tests.waiting import WATCHDOG_MS


@define(eq=False)
class SparkKafka:
    """A session on two local cores that reads topics of one cluster as batches.

    ``folder`` takes what Spark writes beside results. In a `with` the session is up, and stopped behind it.
    """

    bootstrap_servers: str
    folder: Path
    session: Any = field(default=None, init=False)

    def __enter__(self) -> Self:
        from pyspark.sql import SparkSession

        if SparkSession.getActiveSession() is not None:
            # The jars of a session are those of its start.
            raise RuntimeError("a Spark session is active in this process, without the Kafka source: stop it first")
        # Spark reads these when its Java starts and when it forks workers.
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings: dict[str, Any] = {
            "spark.jars": ",".join(map(str, jars("spark"))),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.local.dir": str(self.folder / "local"),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.ui.enabled": "false",
        }
        builder = SparkSession.builder.master("local[2]").appName("streams-kafka-tests")
        self.session = builder.config(map=settings).getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        return self

    def __exit__(self, *_: object) -> None:
        self.session.stop()
        self.session = None

    def frame(
        self,
        topic: str,
        starting: Mapping[int, int] | None = None,
        ending: Mapping[int, int] | None = None,
        *,
        poll_timeout_ms: int = WATCHDOG_MS,
    ) -> Any:
        """A topic as a DataFrame, one Spark partition for each of its partitions.

        Offsets by partition: ``starting`` is the first that is read, ``ending`` the first that is not;
        without them all there is. Given ones must name every partition of the topic. Of transactions
        the committed ones are read. An executor waits for ``poll_timeout_ms`` for an offset that is not there yet.
        """
        reader = self.session.read.format("kafka").options(
            **{
                "kafka.bootstrap.servers": self.bootstrap_servers,
                "subscribe": topic,
                "includeHeaders": "true",
                "kafka.isolation.level": "read_committed",
                # A record that is gone is an error, not a gap.
                "failOnDataLoss": "true",
                "kafkaConsumer.pollTimeoutMs": str(poll_timeout_ms),
            }
        )
        for option, offsets in (("startingOffsets", starting), ("endingOffsets", ending)):
            if offsets is not None:
                reader = reader.option(option, json.dumps({topic: {str(p): offset for p, offset in offsets.items()}}))
        return reader.load()

    def stored(
        self,
        topic: str,
        starting: Mapping[int, int] | None = None,
        ending: Mapping[int, int] | None = None,
        **options: int,
    ) -> list[Stored]:
        """Records of `frame`, by partition and offset."""
        from pyspark.sql import functions

        frame = self.frame(topic, starting, ending, **options)
        millis = functions.unix_millis("timestamp").alias("timestamp_ms")
        rows = frame.select("partition", "offset", millis, "key", "value", "headers").collect()
        return sorted((_stored(row) for row in rows), key=lambda record: record[:2])


def _stored(row: Any) -> Stored:
    """Spark's row; a record without headers has null in their column."""
    headers = tuple((header["key"], _bytes(header["value"])) for header in row["headers"] or ())
    return Stored(
        row["partition"], row["offset"], row["timestamp_ms"], _bytes(row["key"]), _bytes(row["value"]), headers
    )


def _bytes(value: "bytearray | bytes | None") -> bytes | None:
    return None if value is None else bytes(value)
