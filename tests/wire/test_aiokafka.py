"""aiokafka against ``streams broker``; its loop runs while a verb is waited for."""

import asyncio
import threading

import pytest

aiokafka = pytest.importorskip("aiokafka")
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # noqa: E402
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # noqa: E402

from tests.waiting import WATCHDOG_MS, WATCHDOG_S  # noqa: E402
from tests.wire import scenarios  # noqa: E402
from tests.wire.scenarios import Sent  # noqa: E402


class AioKafka:
    def __init__(self, address):
        self.address = address
        self.loop = asyncio.new_event_loop()
        self.producers = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        """Run the loop until it is stopped; then end the tasks that the clients have left, and close it."""
        self.loop.run_forever()
        self.loop.run_until_complete(self._end_tasks())
        self.loop.close()

    async def _end_tasks(self):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def close(self):
        for producer in self.producers:
            self.wait(producer.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    def wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WATCHDOG_S)

    async def _started(self, kind, *arguments, **settings):
        made = kind(*arguments, bootstrap_servers=self.address, **settings)
        await made.start()
        return made

    def started(self, kind, *arguments, **settings):
        return self.wait(self._started(kind, *arguments, **settings))

    def create_topic(self, name, partitions):
        async def create():
            admin = await self._started(AIOKafkaAdminClient)
            response = await admin.create_topics([NewTopic(name, partitions, 1)])
            await admin.close()
            assert response.topic_errors[0][1] == 0, response

        self.wait(create())

    def produce(self, topic, records, **settings):
        async def produce():
            producer = await self._started(AIOKafkaProducer, linger_ms=5, acks="all", **settings)
            futures = [
                await producer.send(
                    topic, r.value, r.key, partition=r.partition, timestamp_ms=r.timestamp_ms, headers=list(r.headers)
                )
                for r in records
            ]
            await asyncio.gather(*futures)
            await producer.stop()

        self.wait(produce())

    def consume(self, topic, count, *, is_committed_only=False):
        level = "read_committed" if is_committed_only else "read_uncommitted"

        async def consume():
            consumer = await self._started(AIOKafkaConsumer, isolation_level=level, auto_offset_reset="earliest")
            consumer.subscribe([topic])
            found = []
            while len(found) < count:
                batches = await consumer.getmany(timeout_ms=WATCHDOG_MS, max_records=count - len(found))
                assert batches, f"{len(found)} of {count} records, and no more"
                found += [
                    Sent(m.partition, m.key, m.value, tuple(m.headers), m.timestamp, m.offset)
                    for messages in batches.values()
                    for m in messages
                ]
            await consumer.stop()
            return found

        return self.wait(consume())

    def transactional(self, transactional_id):
        producer = self.started(AIOKafkaProducer, transactional_id=transactional_id)
        self.producers.append(producer)
        return Transactional(self, producer)


class Transactional:
    def __init__(self, client, producer):
        self.client, self.producer = client, producer

    def begin(self):
        self.client.wait(self.producer.begin_transaction())

    def send(self, topic, value):
        self.client.wait(self.producer.send_and_wait(topic, value, partition=0))

    def commit(self):
        self.client.wait(self.producer.commit_transaction())

    def abort(self):
        self.client.wait(self.producer.abort_transaction())


class Member:
    def __init__(self, client, topic, group):
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "heartbeat_interval_ms": 300}
        settings["session_timeout_ms"] = WATCHDOG_MS
        self.client, self.seen = client, set()
        self.consumer = client.started(AIOKafkaConsumer, topic, group_id=group, **settings)

    def poll(self):
        for partition, messages in self.client.wait(self.consumer.getmany(timeout_ms=100)).items():
            self.seen.update((partition.partition, message.offset) for message in messages)

    def assigned(self):
        return {found.partition for found in self.consumer.assignment()}

    def commit(self):
        self.client.wait(self.consumer.commit())

    def close(self):
        self.client.wait(self.consumer.stop())


@pytest.fixture(scope="module")
def client(address):
    client = AioKafka(address)
    yield client
    client.close()


@pytest.mark.parametrize("codec", [None, "gzip", "zstd"])
def test_records_arrive_as_they_were_sent(client, unique, codec):
    scenarios.round_trip(client, unique("aio-records"), compression_type=codec)


def test_what_is_aborted_is_not_read(client, unique):
    scenarios.transactions(client, client.transactional, unique("aio-transactions"), unique("aio-id"))


def test_a_group_shares_partitions(client, unique):
    def join(topic, group):
        return Member(client, topic, group)

    scenarios.group(client, join, unique("aio-shared"), unique("aio-group"))
