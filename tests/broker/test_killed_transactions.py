"""A producer whose requests and responses are lost, on a broker that is killed between any two of its writes."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from streams.broker.logs.array import ArrayStorage
from streams.broker.topics import Storages, Topics
from streams.core.blocks.records import Block, ProducerStamp, TopicPartition
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import EndTxn, InitProducerId, Produce
from tests.broker.test_transactions import Desk
from tests.properties.profile import examples

PARTITIONS = TopicPartition("topic", 0), TopicPartition("topic", 1)
TIMEOUT_MS = 5_000
#: So many requests of a producer may be on their way.
IN_FLIGHT = 5


class Killed(BaseException):
    """The process of the broker has ended."""


class Disk:
    """The storages of a broker that is killed after ``writes_left`` writes."""

    def __init__(self):
        self.writes_left = None

    def storage(self, context):
        disk = self

        class Storage(ArrayStorage):
            def append(self, block):
                if disk.writes_left is not None:
                    disk.writes_left -= 1
                    if disk.writes_left < 0:
                        raise Killed
                return super().append(block)

        return Storage()


class Client:
    """A transactional producer of version 2 (KIP-890) that repeats each request until it has read the response."""

    def __init__(self, random):
        self.random, self.disk = random, Disk()
        self.desk = Desk(Topics(Storages(self.disk.storage)))
        self.desk.machine.topics.create("topic", len(PARTITIONS))
        self.id, self.epoch = -1, -1
        #: A broker takes any sequence of a producer that it does not know: one request until it does.
        self.in_flight = dict.fromkeys(PARTITIONS, 1)
        self.committed = {partition: [] for partition in PARTITIONS}
        self.initialize()

    def asked(self, request):
        """Return the response, or None if it was lost; the broker has handled all, some or nothing of the request."""
        fate = self.random.random()
        if fate < 0.1:
            return None
        if fate < 0.4:
            self.disk.writes_left = self.random.randrange(4)
        try:
            answer = self.desk.ask(request)
        except Killed:
            answer = None
        if answer is None or self.disk.writes_left is not None:
            self.disk.writes_left = None
            self.desk = self.desk.restarted(self.desk.now_ms)
        return None if fate > 0.9 else answer

    def answer_to(self, request):
        while (answer := self.asked(request)) is None or answer.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            pass
        return answer

    def initialize(self):
        answer = self.answer_to(InitProducerId("tx", TIMEOUT_MS, self.id, self.epoch))
        assert answer.error is ErrorCode.NONE
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def write(self, partition, batches):
        """Write batches in a row; one that is sent behind others may arrive alone."""
        sequence, pending = 0, deque()
        for values in batches:
            stamp = ProducerStamp(self.id, self.epoch, sequence, is_transactional=True)
            pending.append(Block([b"k"] * len(values), values, [0] * len(values), producer=stamp))
            sequence += len(values)
        while pending:
            place = self.random.randrange(min(len(pending), self.in_flight[partition]))
            request = Produce({partition: [pending[place]]}, transactional_id="tx", adds_partitions=True)
            answer = self.asked(request)
            if answer is None:
                continue
            error = answer.partitions[partition].error
            if place == 0:
                assert error is ErrorCode.NONE
                pending.popleft()
                self.in_flight[partition] = IN_FLIGHT
            else:
                assert error in (ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    def end(self, values, how):
        if how == "timeout":
            self.desk.advance(TIMEOUT_MS)
        if how in ("timeout", "initialize"):
            self.initialize()
            return
        answer = self.answer_to(EndTxn("tx", self.id, self.epoch, how == "commit"))
        assert answer.error is ErrorCode.NONE
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        if how == "commit":
            for partition, batches in values.items():
                self.committed[partition] += [value for batch in batches for value in batch]


batches = st.lists(st.integers(1, 3), min_size=1, max_size=7)
transactions = st.tuples(
    st.dictionaries(st.sampled_from(PARTITIONS), batches, min_size=1),
    st.sampled_from(["commit", "commit", "abort", "timeout", "initialize"]),
)


@examples(100)
@given(st.lists(transactions, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_what_is_committed_is_read_once_and_in_order_whatever_is_lost(planned, random):
    client = Client(random)
    number = 0
    for sizes, how in planned:
        values = {}
        for partition, lengths in sizes.items():
            values[partition] = [[b"%d" % (number := number + 1) for _ in range(length)] for length in lengths]
            client.write(partition, values[partition])
        client.end(values, how)
    client.desk.advance(TIMEOUT_MS)
    for partition in PARTITIONS:
        assert client.desk.visible(partition) == client.committed[partition]
        log = client.desk.machine.topics.log(partition)
        assert log.last_stable_offset == log.high_watermark
