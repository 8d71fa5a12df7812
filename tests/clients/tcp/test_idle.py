"""A broker closes connections on which nothing has come for long: that is no trouble."""

import logging

from streams.broker import EmbeddedBroker
from streams.broker.tcp import Limits
from streams.clients import Consumer
from streams.core.blocks.records import TopicPartition


def test_the_end_of_an_idle_connection_is_no_warning(caplog):
    """Fetches have connections of their own; the one for all else has nothing to do while they go on.

    The limit is long for a client that is about to send: its request would meet a closed connection.
    """

    def ends():
        return [record for record in caplog.records if "it closed the connection" in record.getMessage()]

    with EmbeddedBroker() as broker, broker.serve("127.0.0.1:0", limits=Limits(idle_ms=2_000)) as server:
        broker.create_topic("words")
        with (
            caplog.at_level(logging.INFO),
            Consumer(bootstrap_servers=server.bootstrap_servers, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([TopicPartition("words", 0)])
            while not ends():
                consumer.poll(100)

            assert {record.levelno for record in ends()} == {logging.INFO}
