"""confluent-kafka (librdkafka) against ``streams broker``."""

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.waiting import WATCHDOG_MS, WATCHDOG_S
from tests.wire import scenarios
from tests.wire.scenarios import Sent


class Confluent:
    def __init__(self, address):
        self.settings = {"bootstrap.servers": address, "log_level": 2}
        self.admin = AdminClient(self.settings)

    def create_topic(self, name, partitions):
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WATCHDOG_S)

    def produce(self, topic, records, **settings):
        producer, errors = Producer({**self.settings, "linger.ms": 5, **settings}), []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=lambda error, _: errors.append(error) if error else None,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
        assert producer.flush(WATCHDOG_S) == 0
        assert not errors

    def consume(self, topic, count, *, is_committed_only=False):
        level = "read_committed" if is_committed_only else "read_uncommitted"
        consumer = Consumer({**self.settings, "group.id": "nobody", "isolation.level": level})
        partitions = consumer.list_topics(topic, WATCHDOG_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), WATCHDOG_S)
            assert messages, f"{len(found)} of {count} records, and no more"
            found += [
                Sent(m.partition(), m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1], m.offset())
                for m in messages
            ]
        consumer.close()
        return found

    def join(self, strategy, **settings):
        return lambda topic, group: Member(
            {**self.settings, "partition.assignment.strategy": strategy, "group.id": group, **settings}, topic
        )

    def join_consumer_group(self, topic, group, **settings):
        """Join with the protocol of KIP-848, where the broker sets the timeouts."""
        return Member({**self.settings, "group.protocol": "consumer", "group.id": group, **settings}, topic, {})

    def transactional(self, transactional_id):
        return Transactional(Producer({**self.settings, "transactional.id": transactional_id}))


class Transactional:
    def __init__(self, producer):
        self.producer = producer
        producer.init_transactions(WATCHDOG_S)
        self.begin = producer.begin_transaction
        self.commit = lambda: producer.commit_transaction(WATCHDOG_S)
        self.abort = lambda: producer.abort_transaction(WATCHDOG_S)

    def send(self, topic, value):
        self.producer.produce(topic, value, partition=0)
        assert self.producer.flush(WATCHDOG_S) == 0


_TIMEOUTS = {"heartbeat.interval.ms": 300, "session.timeout.ms": WATCHDOG_MS}


class Member:
    def __init__(self, settings, topic, timeouts=_TIMEOUTS):
        common = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        self.consumer = Consumer({**settings, **common, **timeouts})
        self.consumer.subscribe([topic])
        self.seen = set()

    def poll(self):
        for message in self.consumer.consume(100, 0.1):
            assert not message.error(), message.error()
            self.seen.add((message.partition(), message.offset()))

    def assigned(self):
        return {partition.partition for partition in self.consumer.assignment()}

    def commit(self):
        self.consumer.commit(asynchronous=False)

    def close(self):
        self.consumer.close()


@pytest.fixture(scope="module")
def client(address):
    return Confluent(address)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_arrive_as_they_were_sent(client, unique, codec):
    scenarios.round_trip(client, unique("records"), **{"compression.type": codec})


def test_records_of_an_idempotent_producer_arrive_once(client, unique):
    scenarios.round_trip(client, unique("idempotent"), **{"enable.idempotence": True})


def test_what_is_aborted_is_not_read(client, unique):
    scenarios.transactions(client, client.transactional, unique("transactions"), unique("id"))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_shares_partitions(client, unique, strategy):
    scenarios.group(client, client.join(strategy), unique("shared"), unique("group"))


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_a_consumer_group_shares_partitions(client, unique, assignor):
    """KIP-848: the broker assigns the partitions."""

    def join(topic, group):
        return client.join_consumer_group(topic, group, **{"group.remote.assignor": assignor})

    scenarios.group(client, join, unique("shared"), unique("group"))


def test_offsets_travel_with_a_transaction(client, unique):
    topic, group = unique("consumed"), unique("group")
    client.create_topic(topic, 1)
    consumer = Consumer({**client.settings, "group.id": group})
    producer = client.transactional(unique("id")).producer

    def send_offset(offset):
        producer.begin_transaction()
        position = [TopicPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), WATCHDOG_S)

    send_offset(7)
    producer.commit_transaction(WATCHDOG_S)
    send_offset(9)
    producer.abort_transaction(WATCHDOG_S)

    assert [found.offset for found in consumer.committed([TopicPartition(topic, 0)], WATCHDOG_S)] == [7]
    consumer.close()


def test_a_static_member_comes_back_to_what_it_had(client, unique):
    topic, group = unique("static"), unique("group")
    client.create_topic(topic, 4)
    join = [client.join("range", **{"group.instance.id": name}) for name in ("a", "b")]
    first, second = (one(topic, group) for one in join)
    scenarios.until(lambda: scenarios.shared([first, second], 4), first, second)
    before = second.assigned()

    second.close()
    again = join[1](topic, group)
    scenarios.until(again.assigned, again, first)

    assert again.assigned() == before
    assert first.assigned() == set(range(4)) - before
    first.close()
    again.close()


def test_topics_are_administered(client, unique):
    topic, admin = unique("administered"), client.admin
    client.create_topic(topic, 1)
    with pytest.raises(KafkaException, match="exists"):
        client.create_topic(topic, 1)

    change = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(WATCHDOG_S)
    asked = ConfigResource("topic", topic)
    assert admin.describe_configs([asked])[asked].result(WATCHDOG_S)["retention.ms"].value == "7200000"

    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WATCHDOG_S)
    assert len(admin.list_topics(topic, WATCHDOG_S).topics[topic].partitions) == 3

    client.produce(topic, [Sent(0, None, b"%d" % number, (), 1_000 + number) for number in range(10)])
    cut = TopicPartition(topic, 0, 4)
    assert admin.delete_records([cut])[cut].result(WATCHDOG_S).low_watermark == 4
    consumer = Consumer({**client.settings, "group.id": "probe"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WATCHDOG_S) == (4, 10)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1_006)], WATCHDOG_S)
    assert found.offset == 6
    consumer.close()

    admin.delete_topics([topic])[topic].result(WATCHDOG_S)
    assert topic not in admin.list_topics(timeout=WATCHDOG_S).topics


def test_groups_are_administered(client, unique):
    topic, group, admin = unique("described"), unique("group"), client.admin
    client.create_topic(topic, 2)
    member = client.join("range")(topic, group)
    scenarios.until(lambda: member.assigned() == {0, 1}, member)

    described = admin.describe_consumer_groups([group])[group].result(WATCHDOG_S)
    assert (described.state.name, len(described.members)) == ("STABLE", 1)
    assert group in {listed.group_id for listed in admin.list_consumer_groups().result(WATCHDOG_S).valid}
    with pytest.raises(KafkaException):
        admin.delete_consumer_groups([group])[group].result(WATCHDOG_S)

    member.close()
    admin.delete_consumer_groups([group])[group].result(WATCHDOG_S)
    assert group not in {listed.group_id for listed in admin.list_consumer_groups().result(WATCHDOG_S).valid}
