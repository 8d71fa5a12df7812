"""Kafka Streams' integration tests once more, with ``group.protocol=streams`` where a test names no protocol."""

from functools import partial

from attrs import evolve

from tests.outside.suites import kafka_streams

SUITE = evolve(
    kafka_streams.SUITE,
    name="kafka_streams_kip1071",
    title="Kafka Streams' integration tests, with the streams protocol",
    run=partial(kafka_streams.run, protocol="streams"),
)
