"""Event time in step on a real Kafka: two instances write what a run over files writes."""

from typing import Any

import pytest

from streams.clients import Producer
from streams.core.blocks.records import TopicPartition
from tests.kafka.node import KafkaNode
from tests.kafka.records import create_topic
from tests.runtime.test_in_step import (
    EXACTLY_ONCE,
    PARTITIONS,
    blocks,
    count_by_group,
    from_a_file,
    read_outputs,
    spread,
    until,
)

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.seeds("settings", [EXACTLY_ONCE, {}])
def test_two_instances_give_what_a_file_gives(own_kafka: KafkaNode, settings: dict[str, Any]) -> None:
    expected = from_a_file()
    client = {"bootstrap_servers": own_kafka.bootstrap_servers}
    for name in ("events", "counts"):
        create_topic(own_kafka.bootstrap_servers, name, partitions=PARTITIONS)
    with Producer(**client) as producer:
        for partition, block in blocks():
            producer.send_block(TopicPartition("events", partition), block)

    with spread(None, count_by_group, instances=2, **client, **settings) as made:
        for each in made:
            each.resume()
        until(lambda: len(read_outputs(**client)) >= len(expected), *made)

        assert sum(each.metrics.get("dropped-records-total") for each in made) == 0
        assert sum(each.metrics.get("repartition-wait-ended-total") for each in made) == 0
    assert read_outputs(**client) == expected
