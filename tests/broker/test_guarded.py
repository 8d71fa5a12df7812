"""A storage of the user's that raises, lies or lacks something: named, and never acknowledged."""

import pytest

from streams.broker import ArrayStorage, EmbeddedBroker
from streams.clients import Producer
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import BrokerError
from streams.protocol.error_codes import ErrorCode

T = TopicPartition("t", 0)


class Failing(ArrayStorage):
    """Memory whose verbs can be broken."""

    def __init__(self, *verbs):
        super().__init__()
        self.broken = set(verbs)

    def __getattribute__(self, name):
        if name != "broken" and name in getattr(self, "broken", ()):
            return self._fail
        return super().__getattribute__(name)

    def _fail(self, *_):
        raise ZeroDivisionError("of the user's")


def one(value=b"v"):
    return Block([b"k"], [value], [5])


CALLS = {
    "append": lambda broker: broker.append(T, one()),
    "read": lambda broker: broker.read(T, 0),
    "truncate_before": lambda broker: broker.delete_records(T, 1),
    "offset_for_timestamp": lambda broker: broker.offset_for_time(T, 0),
    "flush": lambda broker: broker.flush(),
    "delete": lambda broker: broker.delete_topic("t"),
}


@pytest.mark.parametrize("verb", CALLS)
def test_whatever_a_verb_raises_is_a_named_error(verb):
    storage = Failing()
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 1, storage=lambda context: storage)
        broker.append(T, one())
        storage.broken = {verb}

        with pytest.raises(BrokerError, match=r"t-0.*ZeroDivisionError.*of the user's") as caught:
            CALLS[verb](broker)

        assert caught.value.code == ErrorCode.STORAGE_ERROR
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        storage.broken = set()


def test_a_failing_close_keeps_no_other_log_open(tmp_path):
    broker = EmbeddedBroker(tmp_path)
    broker.create_topic("t", 1, storage=lambda context: Failing("close"))
    broker.create_topic("files", 1)
    with pytest.raises(BrokerError, match=r"close t-0"):
        broker.close()
    with EmbeddedBroker(tmp_path, storages={"t": lambda context: ArrayStorage()}) as reopened:
        assert reopened.topics() == {"t": 1, "files": 1}


def test_maintenance_reports_a_failing_log_and_goes_on_with_the_others(caplog):
    storage = Failing("extents")
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 1, {"retention.ms": "1"}, storage=lambda context: storage)
        broker.create_topic("u", 1, {"retention.ms": "1"})
        broker.append(T, one())
        broker.append(TopicPartition("u", 0), one())
        broker.maintain(1_000)

        assert "t-0" in caplog.text
        assert broker.start_offset(TopicPartition("u", 0)) == 1


class Forgetful(ArrayStorage):
    """Says that it has kept what it has not."""

    def append(self, block):
        return self.end_offset


class Misnumbering(ArrayStorage):
    def append(self, block):
        return super().append(block) + 1


@pytest.mark.parametrize("kind", [Forgetful, Misnumbering])
def test_a_storage_that_keeps_other_than_it_was_given_is_not_believed(kind):
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 1, storage=lambda context: kind())
        with Producer(broker) as producer:
            delivery = producer.send("t", b"v")
            with pytest.raises(BrokerError, match=r"t-0.*offset 0 were to end at 1") as caught:
                delivery.result()
            with pytest.raises(BrokerError):
                producer.flush()
    assert caught.value.code == ErrorCode.STORAGE_ERROR


def test_a_factory_that_fails_leaves_no_topic_behind():
    def factory(context):
        if context.partition.partition == 2:
            raise ConnectionError("no more rooms")
        return ArrayStorage()

    with EmbeddedBroker() as broker:
        with pytest.raises(BrokerError, match=r"'t'.*t-2.*no more rooms") as caught:
            broker.create_topic("t", 3, storage=factory)
        assert caught.value.code == ErrorCode.STORAGE_ERROR
        assert broker.topics() == {}
        broker.create_topic("t", 2, storage=factory)
        with pytest.raises(BrokerError, match="t-2"):
            broker.add_partitions("t", 3)
        assert broker.topics() == {"t": 2}


def test_an_object_that_is_no_storage_is_named_with_what_it_lacks():
    class Half:
        start_offset = end_offset = 0

        def append(self, block):
            return 0

    with EmbeddedBroker() as broker:
        with pytest.raises(BrokerError, match=r"t-0 is a .*Half without close, delete, extents"):
            broker.create_topic("t", 1, storage=lambda context: Half())


def test_a_storage_without_compaction_serves_a_compacted_topic_uncompacted():
    class Plain:
        """The few verbs that every storage has, over another one."""

        def __init__(self):
            self._inner = ArrayStorage()
            for verb in [
                "append",
                "read",
                "truncate_before",
                "offset_for_timestamp",
                "extents",
                "flush",
                "close",
                "delete",
            ]:
                setattr(self, verb, getattr(self._inner, verb))

        @property
        def start_offset(self):
            return self._inner.start_offset

        @property
        def end_offset(self):
            return self._inner.end_offset

    with EmbeddedBroker() as broker:
        broker.create_topic("t", 1, {"cleanup.policy": "compact"}, storage=lambda context: Plain())
        for _ in range(3):
            broker.append(T, one())
        broker.maintain()

        assert sum(map(len, broker.read(T, 0))) == 3
