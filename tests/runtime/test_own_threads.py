"""An application that is closed, awaited or made smaller in one of its own threads: it would wait for itself."""

import threading

import pytest

from streams import EmbeddedBroker, Producer, State, Streams, StreamsBuilder, StreamsError, Topic
from tests.waiting import WATCHDOG_MS

words = Topic("words", key=str, value=str, partitions=2)
names = Topic("names", key=str, value=str, partitions=1)
FAST = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10}


class InOwnThread:
    """Calls a function once in a thread of the application, at the first record; has what it returned or raised."""

    def __init__(self, act):
        self.act, self.result, self.is_done = act, None, threading.Event()

    def __call__(self, value):
        if not self.is_done.is_set():
            try:
                self.result = self.act(self.streams)
            except BaseException as error:
                self.result = error
            self.is_done.set()
        return value

    def of(self, broker, topology, **settings):
        self.streams = Streams(topology, application_id="own-threads", broker=broker, **FAST, **settings)
        return self.streams


def mapped(act):
    return lambda builder: builder.stream(words).map_values(act).for_each(lambda key, value: None)


def send(broker, topic=words):
    with Producer(broker) as producer:
        producer.send(topic, "value", key="key").result(WATCHDOG_MS)


@pytest.mark.parametrize("method", ["close", "wait", "remove_thread"])
def test_own_thread_may_not_wait_for_its_end(method):
    act = InOwnThread(lambda streams: getattr(streams, method)())
    with EmbeddedBroker() as broker, act.of(broker, mapped(act)) as streams:
        send(broker)
        assert act.is_done.wait(WATCHDOG_MS / 1000)

        assert isinstance(act.result, StreamsError)
        assert str(act.result) == (
            f"{method}() was called in a thread of application 'own-threads' and would wait for its own end: raise an "
            f"exception, which stops the application, or let another thread call {method}(); close(timeout_ms=0) only "
            "asks the threads to stop"
        )
        assert streams.state is not State.PENDING_SHUTDOWN


def test_exception_that_is_not_caught_is_that_of_the_application():
    with (
        EmbeddedBroker() as broker,
        pytest.raises(StreamsError, match=r"close\(\) was called in a thread of application 'own-threads'"),
        Streams(mapped(lambda value: streams.close()), application_id="own-threads", broker=broker, **FAST) as streams,
    ):
        send(broker)
        streams.wait(WATCHDOG_MS)


def test_close_with_a_timeout_in_a_mapper_stops_all_threads_and_another_thread_closes():
    act = InOwnThread(lambda streams: streams.close(timeout_ms=0))
    with EmbeddedBroker() as broker, act.of(broker, mapped(act), num_stream_threads=2) as streams:
        send(broker)
        assert streams.wait(WATCHDOG_MS)

        assert act.result is False
        assert streams.state is State.PENDING_SHUTDOWN
        assert streams.close()
        assert streams.state is State.NOT_RUNNING


def test_only_thread_that_removes_itself_with_a_timeout_ends_afterwards():
    act = InOwnThread(lambda streams: streams.remove_thread(timeout_ms=0))
    with EmbeddedBroker() as broker, act.of(broker, mapped(act)) as streams:
        send(broker)
        assert streams.wait(WATCHDOG_MS)

    assert act.result is None


@pytest.mark.parametrize("timeout_ms", [None, 0])
def test_thread_of_global_tables_may_not_close(timeout_ms):
    act = InOwnThread(lambda streams: streams.close(timeout_ms))

    def timestamp(value):
        act(value)
        return 0

    def topology(builder: StreamsBuilder) -> None:
        table = builder.global_table(Topic("names", key=str, value=str, timestamp=timestamp), name="names-store")
        builder.stream(words).join(table, lambda value, name: name, key=lambda key, value: value).for_each(
            lambda key, value: None
        )

    with EmbeddedBroker() as broker:
        for topic in (words, names):
            broker.create_topic(topic.name, partitions=topic.partitions)
        with act.of(broker, topology):
            send(broker, names)
            assert act.is_done.wait(WATCHDOG_MS / 1000)

    if timeout_ms is None:
        assert "close() was called in a thread of application 'own-threads'" in str(act.result)
    else:
        assert act.result is False
