"""Transactions at the broker's machine: fencing, markers, what readers may see, restarts, timeouts."""

from random import Random

import pytest
from attrs import evolve

from streams import Consumer, EmbeddedBroker, Producer, TopicPartition
from streams.broker.handlers import HANDLERS
from streams.broker.logs.config import BrokerConfig
from streams.broker.service import Broker
from streams.broker.topics import Storages, Topics
from streams.broker.transaction_log import TransactionMetadata, transaction_key, transaction_value
from streams.clients.records import GroupMetadata
from streams.core.blocks.records import Block, ProducerStamp
from streams.group import Coordinator, CoordinatorConfig
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetAndMetadata, OffsetFetch
from streams.protocol.messages import (
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    Fetch,
    InitProducerId,
    ListOffsets,
    Produce,
    TxnOffsetCommit,
)

P0, P1 = TopicPartition("topic", 0), TopicPartition("topic", 1)
OK = ErrorCode.NONE


class Desk:
    """A broker that is asked directly; every answer comes at once or in a later call."""

    def __init__(self, topics=None, now_ms=1_000):
        self.now_ms = now_ms
        self.machine = Broker(
            topics or Topics(Storages()),
            Coordinator(CoordinatorConfig(), Random(1)),
            BrokerConfig(maintenance_interval_ms=None),
            handlers=HANDLERS,
        )
        if topics is None:
            self.machine.topics.create("topic", 2)
        else:
            self.machine.load(self.now_ms)

    def ask(self, request):
        answers = []
        self.machine.handle(request, self.now_ms, answers.append)
        return answers[0] if answers else None

    def restarted(self, at_ms=1_000):
        return Desk(self.machine.topics.reopened(), at_ms)

    def advance(self, by_ms):
        self.now_ms += by_ms
        self.machine.tick(self.now_ms)

    def visible(self, partition, isolation_level=READ_COMMITTED):
        """What a consumer of this isolation level is handed out of a partition."""
        found = self.ask(Fetch({partition: 0}, 0, 1_000, isolation_level)).partitions[partition]
        aborted = sorted(found.aborted, key=lambda item: item.first_offset)
        open_ids, values = set(), []
        for block in found.blocks:
            stamp = block.producer
            while aborted and aborted[0].first_offset <= block.offsets[0]:
                open_ids.add(aborted.pop(0).producer_id)
            if stamp is not None and stamp.is_control:
                open_ids.discard(stamp.producer_id)
            elif stamp is None or not (stamp.is_transactional and stamp.producer_id in open_ids):
                values += block.values
        return values


class Writer:
    """A transactional producer, word for word."""

    def __init__(self, desk, name="tx", timeout_ms=10_000):
        self.desk, self.name = desk, name
        self.sequences = {}
        self.timeout_ms = timeout_ms
        self.initialize()

    def initialize(self):
        for _ in range(3):
            found = self.desk.ask(InitProducerId(self.name, self.timeout_ms))
            if found.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
        assert found.error is OK
        self.id, self.epoch = found.producer_id, found.producer_epoch
        self.sequences.clear()

    def add(self, *partitions):
        return set(self.desk.ask(AddPartitionsToTxn(self.name, self.id, self.epoch, partitions)).errors.values())

    def write(self, partition, *values):
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        return self.repeat(partition, sequence, *values)

    def repeat(self, partition, sequence, *values):
        stamp = ProducerStamp(self.id, self.epoch, sequence, is_transactional=True)
        block = Block([b"k"] * len(values), list(values), [0] * len(values), producer=stamp)
        result = self.desk.ask(Produce({partition: [block]}, transactional_id=self.name)).partitions[partition]
        return result.error, result.base_offset

    def end(self, *, commit):
        found = self.desk.ask(EndTxn(self.name, self.id, self.epoch, commit))
        if found.error is OK:
            self.id, self.epoch = found.producer_id, found.producer_epoch
            self.sequences.clear()
        return found.error


def test_records_of_a_transaction_count_from_its_commit_marker_on():
    desk = Desk()
    writer = Writer(desk)
    assert writer.add(P0, P1) == {OK}
    writer.write(P0, b"a", b"b")
    writer.write(P1, b"c")

    assert desk.visible(P0) == []
    assert desk.visible(P0, 0) == [b"a", b"b"]

    assert writer.end(commit=True) is OK
    assert (desk.visible(P0), desk.visible(P1)) == ([b"a", b"b"], [b"c"])
    assert desk.machine.topics.log(P0).high_watermark == 3


def test_aborted_records_are_named_to_readers_and_others_around_them_stay():
    desk = Desk()
    one, two = Writer(desk, "one"), Writer(desk, "two")
    for writer, values in ((one, (b"a1", b"a2")), (two, (b"b1",)), (one, (b"a3",))):
        writer.add(P0)
        writer.write(P0, *values)
    two.end(commit=True)
    assert desk.visible(P0) == []
    one.end(commit=False)
    assert desk.visible(P0) == [b"b1"]


def test_last_stable_offset_is_the_oldest_open_transaction_and_the_end_for_committed_readers():
    desk = Desk()
    one, two = Writer(desk, "one"), Writer(desk, "two")
    one.add(P0)
    two.add(P0)
    two.write(P0, b"b")
    one.write(P0, b"a")

    def ends():
        found = [desk.ask(ListOffsets({P0: LATEST_TIMESTAMP}, level)).partitions[P0][2] for level in (0, 1)]
        return tuple(found)

    assert ends() == (2, 0)
    two.end(commit=True)
    assert ends() == (3, 1)
    one.end(commit=True)
    assert ends() == (4, 4)


def test_open_transaction_ends_what_is_read_of_committed_records():
    """Also if its first record is the first of those that are read: nothing is left of their block."""
    with EmbeddedBroker() as broker, Producer(broker, transactional_id="tx") as producer:
        broker.create_topic("t", 1)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result()

        assert broker.read(TopicPartition("t", 0), 0, committed_only=True) == []
        producer.abort_transaction()


def test_waiting_reader_gets_the_records_when_the_transaction_ends():
    desk = Desk()
    writer = Writer(desk)
    writer.add(P0)
    writer.write(P0, b"a")
    answers = []
    desk.machine.handle(Fetch({P0: 0}, 60_000, 100, READ_COMMITTED), desk.now_ms, answers.append)
    assert answers == []

    writer.end(commit=True)
    assert [value for block in answers[0].partitions[P0].blocks for value in block.values][:1] == [b"a"]


def test_later_owner_of_a_transactional_id_fences_the_earlier_one():
    desk = Desk()
    old = Writer(desk)
    old.add(P0)
    old.write(P0, b"old")
    new = Writer(desk)

    assert old.write(P0, b"late")[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.add(P1) == {ErrorCode.PRODUCER_FENCED}
    assert old.end(commit=True) is ErrorCode.PRODUCER_FENCED
    new.add(P0)
    new.write(P0, b"new")
    new.end(commit=True)
    assert desk.visible(P0) == [b"new"]


@pytest.mark.parametrize("restart_ms", [None, 4_000, 0])
def test_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced(restart_ms):
    """Its time counts from its start, not from a restart of the broker, unless that is earlier by the wall clock."""
    desk = Desk()
    writer = Writer(desk, timeout_ms=5_000)
    writer.add(P0)
    writer.write(P0, b"a")
    if restart_ms is not None:
        writer.desk = desk = desk.restarted(restart_ms)

    desk.advance(min(desk.now_ms, 1_000) + 4_999 - desk.now_ms)
    assert desk.machine.topics.log(P0).last_stable_offset == 0
    desk.advance(1)
    assert desk.machine.topics.log(P0).last_stable_offset == 2
    assert desk.visible(P0) == []
    assert writer.end(commit=True) is ErrorCode.PRODUCER_FENCED


def test_end_that_is_asked_for_again_is_answered_as_before_and_changes_nothing():
    desk = Desk()
    writer = Writer(desk)
    writer.add(P0)
    writer.write(P0, b"a")
    request = EndTxn(writer.name, writer.id, writer.epoch, is_commit=True)
    first, again = desk.ask(request), desk.ask(request)
    assert first == again
    end = desk.machine.topics.log(P0).high_watermark

    # In the next transaction it is too late for it.
    writer.id, writer.epoch = first.producer_id, first.producer_epoch
    writer.sequences.clear()
    writer.add(P0)
    writer.write(P0, b"b")
    assert desk.ask(request).error is ErrorCode.PRODUCER_FENCED
    assert desk.machine.topics.log(P0).high_watermark == end + 1
    assert desk.visible(P0) == [b"a"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("bump", ["commit", "timeout", "initialize", "initialize in a transaction"])
def test_producer_that_has_not_read_its_next_epoch_is_given_it_again(bump, restarts):
    """The connection or the broker ended before the response: it asks with the epoch that it knows (KIP-360)."""
    writer = SecondWriter(Desk(), timeout_ms=5_000)
    asks = InitProducerId("tx", 5_000, writer.id, writer.epoch)
    end = EndTxn("tx", writer.id, writer.epoch, is_commit=True)
    if bump != "initialize":
        writer.write(P0, b"a")
    if bump == "timeout":
        writer.desk.advance(5_000)
    elif bump == "initialize in a transaction":
        assert writer.desk.ask(asks).error is ErrorCode.CONCURRENT_TRANSACTIONS
    else:
        writer.desk.ask(end if bump == "commit" else asks)
    if restarts:
        writer.desk = writer.desk.restarted(writer.desk.now_ms)

    for _ in range(2):
        answer = writer.desk.ask(asks)
        assert (answer.error, answer.producer_id, answer.producer_epoch) == (OK, writer.id, writer.epoch + 1)
    assert writer.desk.ask(end).error is ErrorCode.PRODUCER_FENCED
    writer.epoch = answer.producer_epoch
    writer.sequences.clear()
    assert writer.write(P0, b"b")[0] is OK
    assert writer.desk.ask(asks).error is ErrorCode.PRODUCER_FENCED
    assert writer.end(commit=True) is OK
    assert writer.desk.visible(P0) == ([b"a", b"b"] if bump == "commit" else [b"b"])


@pytest.mark.parametrize("distance", [0, 1])
def test_producer_of_another_id_or_of_an_earlier_owner_is_fenced(distance):
    desk = Desk()
    writer = Writer(desk)
    asks = InitProducerId("tx", 5_000, writer.id + distance, writer.epoch)
    assert desk.ask(asks).error is (ErrorCode.PRODUCER_FENCED if distance else OK)
    # A new producer of this name: nobody before it is answered.
    Writer(desk)
    assert desk.ask(asks).error is ErrorCode.PRODUCER_FENCED


def test_records_only_go_where_the_transaction_was_announced():
    desk = Desk()
    writer = Writer(desk)
    assert writer.write(P0, b"a")[0] is ErrorCode.INVALID_TXN_STATE
    writer.sequences.clear()
    writer.add(P0)
    assert writer.write(P1, b"a")[0] is ErrorCode.INVALID_TXN_STATE
    assert writer.write(P0, b"a") == (OK, 0)


class SecondWriter(Writer):
    """A producer of transaction version 2: it announces nothing, and every end gives it another epoch (KIP-890)."""

    def repeat(self, partition, sequence, *values):
        stamp = ProducerStamp(self.id, self.epoch, sequence, is_transactional=True)
        block = Block([b"k"] * len(values), list(values), [0] * len(values), producer=stamp)
        request = Produce({partition: [block]}, transactional_id=self.name, adds_partitions=True)
        result = self.desk.ask(request).partitions[partition]
        return result.error, result.base_offset

    def commit_offset(self, offset):
        offsets = {P0: OffsetAndMetadata(offset)}
        request = TxnOffsetCommit(self.name, "group", self.id, self.epoch, offsets, adds_group=True)
        return self.desk.ask(request).errors[P0]


def test_records_add_their_partition_to_the_transaction():
    desk = Desk()
    writer = SecondWriter(desk)
    epoch = writer.epoch

    assert writer.write(P0, b"a") == (OK, 0)
    assert writer.write(P1, b"b") == (OK, 0)
    assert desk.visible(P0) == []
    assert desk.machine.transactions.get("tx").partitions == (P0, P1)
    assert writer.end(commit=True) is OK
    assert (writer.epoch, desk.visible(P0), desk.visible(P1)) == (epoch + 1, [b"a"], [b"b"])


def test_offsets_add_their_group_to_the_transaction():
    writer = SecondWriter(Desk())

    assert writer.commit_offset(5) is OK
    assert offset_of(writer.desk) == -1
    writer.end(commit=True)
    assert offset_of(writer.desk) == 5


def test_late_records_of_an_ended_transaction_are_refused():
    """They would open the next transaction, and come with what it commits."""
    desk = Desk()
    writer = SecondWriter(desk)
    late = SecondWriter.__new__(SecondWriter)
    late.__dict__ |= writer.__dict__
    writer.write(P0, b"a")
    writer.end(commit=False)

    assert late.repeat(P0, 1, b"late")[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert late.repeat(P1, 0, b"late")[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert late.commit_offset(5) is not OK
    assert desk.machine.transactions.get("tx").partitions == ()


def test_abort_of_nothing_gives_another_epoch_and_commit_of_nothing_is_refused():
    writer = SecondWriter(Desk())
    epoch = writer.epoch

    assert writer.end(commit=True) is ErrorCode.INVALID_TXN_STATE
    assert writer.end(commit=False) is OK
    assert writer.epoch == epoch + 1
    writer.write(P0, b"a")
    assert writer.end(commit=True) is OK


def test_records_for_an_unknown_topic_add_nothing():
    desk = Desk()
    writer = SecondWriter(desk)

    assert writer.write(TopicPartition("nowhere", 0), b"a")[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert desk.machine.transactions.get("tx").partitions == ()


def test_one_unknown_partition_refuses_all_that_are_announced_with_it():
    writer = Writer(Desk())
    unknown = TopicPartition("nowhere", 0)
    errors = writer.desk.ask(AddPartitionsToTxn("tx", writer.id, writer.epoch, [P0, unknown])).errors
    assert errors == {P0: ErrorCode.OPERATION_NOT_ATTEMPTED, unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_repeated_block_is_not_appended_again_and_a_gap_is_refused():
    desk = Desk()
    writer = Writer(desk)
    writer.add(P0)
    assert writer.write(P0, b"a", b"b") == (OK, 0)
    assert writer.write(P0, b"c") == (OK, 2)
    assert writer.repeat(P0, 0, b"a", b"b") == (OK, 0)
    assert writer.repeat(P0, 2, b"c") == (OK, 2)
    assert writer.repeat(P0, 9, b"x")[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert desk.machine.topics.log(P0).high_watermark == 3


def test_log_takes_the_latest_epoch_of_an_idempotent_producer_from_its_first_record_on():
    """No transaction coordinator looks at these records before the log does."""
    desk = Desk()

    def write(epoch, sequence):
        block = Block([b"k"], [b"v"], [0], producer=ProducerStamp(7, epoch, sequence))
        return desk.ask(Produce({P0: [block]})).partitions[P0].error

    assert write(0, 5) is OK
    assert write(1, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(1, 0) is OK
    assert write(0, 6) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(1, 1) is OK
    assert desk.machine.topics.log(P0).high_watermark == 3


@pytest.mark.parametrize("restarts", [False, True])
def test_second_batch_of_an_epoch_does_not_come_before_the_first(restarts):
    """The commit marker begins the epoch: a batch whose connection was lost comes after the one sent behind it."""
    writer = SecondWriter(Desk())
    writer.write(P0, b"a", b"b")
    assert writer.end(commit=True) is OK
    if restarts:
        writer.desk = writer.desk.restarted()

    assert writer.repeat(P0, 2, b"e")[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert writer.repeat(P0, 0, b"c", b"d") == (OK, 3)
    assert writer.repeat(P0, 2, b"e") == (OK, 5)
    assert writer.end(commit=True) is OK
    assert writer.desk.visible(P0) == [b"a", b"b", b"c", b"d", b"e"]


def test_sequence_goes_on_after_a_marker_whose_records_were_deleted():
    """Without epochs of their own, transactions share one sequence; the restarted broker cannot tell how far it was."""
    writer = Writer(Desk())
    writer.add(P0)
    writer.write(P0, b"a", b"b")
    assert writer.desk.ask(EndTxn("tx", writer.id, writer.epoch, True, bumps_epoch=False)).error is OK
    writer.desk.machine.topics.log(P0).delete_records(2)
    writer.desk = writer.desk.restarted()

    writer.add(P0)
    assert writer.write(P0, b"c") == (OK, 3)
    assert writer.repeat(P0, 9, b"x")[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("files", [False, True])
def test_sequence_goes_on_after_compaction_and_a_restart(tmp_path, files):
    """Another producer has replaced the last record of a producer, which its sequence is read from."""
    desk = Desk(Topics(Storages("file", data_dir=tmp_path)) if files else None)
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "100"}
    log = desk.machine.topics.create("table", 1, config).logs[0]
    first, second = (desk.ask(InitProducerId()).producer_id for _ in range(2))

    def write(desk, producer_id, sequence, key):
        block = Block([key], [b"v"], [0], producer=ProducerStamp(producer_id, 0, sequence))
        result = desk.ask(Produce({log.partition: [block]})).partitions[log.partition]
        return result.error, result.base_offset

    for producer_id, keys in ((first, (b"x", b"a", b"b")), (second, (b"a", b"b", b"c"))):
        for sequence, key in enumerate(keys):
            write(desk, producer_id, sequence, key)
    assert log.compact(desk.now_ms)
    assert [offset for block in log.read(0, 10) for offset in block.offsets] == [0, 2, 3, 4, 5]

    desk = desk.restarted()
    assert write(desk, first, 2, b"b") == (OK, 2)
    assert write(desk, first, 3, b"d") == (OK, 6)


def commit_offset(writer, offset):
    writer.desk.ask(AddOffsetsToTxn(writer.name, writer.id, writer.epoch, "group"))
    request = TxnOffsetCommit(writer.name, "group", writer.id, writer.epoch, {P0: OffsetAndMetadata(offset)})
    return writer.desk.ask(request).errors[P0]


def offset_of(desk, *, stable=False):
    found = desk.ask(OffsetFetch("group", [P0], stable))
    return found.error if found.error is not OK else found.offsets.get(P0, OffsetAndMetadata(-1)).offset


@pytest.mark.parametrize("restarts", [False, True])
def test_offsets_of_a_transaction_count_with_it(restarts):
    desk = Desk()
    writer = Writer(desk)
    assert commit_offset(writer, 5) is OK
    if restarts:
        writer.desk = desk = desk.restarted()
    assert offset_of(desk) == -1
    assert offset_of(desk, stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT

    writer.end(commit=True)
    assert offset_of(desk, stable=True) == 5

    commit_offset(writer, 9)
    writer.end(commit=False)
    assert offset_of(desk, stable=True) == 5
    assert offset_of(desk.restarted(), stable=True) == 5


def test_restarted_broker_knows_open_transactions_and_what_was_aborted():
    desk = Desk()
    gone, there = Writer(desk, "gone"), Writer(desk, "there")
    gone.add(P0)
    gone.write(P0, b"x")
    gone.end(commit=False)
    there.add(P0)
    there.write(P0, b"a")

    there.desk = desk = desk.restarted()
    assert desk.machine.topics.log(P0).last_stable_offset == 2
    assert there.repeat(P0, 0, b"a") == (OK, 2)
    there.end(commit=True)
    assert desk.visible(P0) == [b"a"]


def test_producer_id_is_never_given_twice_also_after_a_restart():
    """Even one with which nothing was ever written: its owner may be about to."""
    desk = Desk()
    given = {desk.ask(InitProducerId()).producer_id for _ in range(5)}
    desk = desk.restarted()
    again = {desk.ask(InitProducerId()).producer_id for _ in range(5)}
    assert len(given | again) == 10


def test_producer_id_of_a_transaction_is_not_given_again_where_the_note_of_given_ids_is_lost():
    """As with the end of the log, where compaction has left only the latest note."""
    transactions = Desk().machine.transactions
    transactions.load([(transaction_key("tx"), transaction_value(TransactionMetadata("tx", 7, 0, 10_000)))], 0)

    *_, answered = transactions.handle(InitProducerId(), 0, None)

    assert answered.response.producer_id == 8


def test_transactional_id_is_removed_after_a_week_without_use():
    desk = Desk(now_ms=0)
    Writer(desk)
    week_ms = 7 * 24 * 3_600_000

    desk.machine.maintain(desk.machine.wall_ms(week_ms))
    assert desk.machine.transactions.get("tx") is not None
    desk.machine.maintain(desk.machine.wall_ms(week_ms + 1))
    assert desk.machine.transactions.get("tx") is None
    assert desk.restarted().machine.transactions.get("tx") is None


@pytest.mark.parametrize("timeout_ms", [0, 900_001])
def test_timeout_of_a_transaction_has_bounds(timeout_ms):
    assert Desk().ask(InitProducerId("tx", timeout_ms)).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_last_epoch_is_followed_by_another_producer_id():
    desk = Desk()
    writer = Writer(desk)
    first = writer.id
    known = desk.machine.transactions.get("tx")
    desk.machine.transactions.restore("tx", evolve(known, epoch=32_766))
    writer.epoch = 32_766
    writer.add(P0)
    writer.write(P0, b"a")
    assert writer.end(commit=True) is OK
    assert (writer.id != first, writer.epoch) == (True, 0)
    assert desk.visible(P0) == [b"a"]
    writer.add(P0)
    writer.write(P0, b"b")
    writer.end(commit=True)
    assert desk.visible(P0) == [b"a", b"b"]


@pytest.mark.parametrize("commit", [True, False])
def test_restart_before_the_markers_of_the_last_epoch_ends_the_transaction_of_the_previous_producer_id(commit):
    """The outcome is in the log, the markers are not; they belong to the ID with which the records were written."""
    desk = Desk()
    writer = SecondWriter(desk)
    coordinator = desk.machine.transactions
    coordinator.restore("tx", evolve(coordinator.get("tx"), epoch=32_766))
    writer.epoch = 32_766
    writer.write(P0, b"a")
    coordinator.handle(EndTxn("tx", writer.id, writer.epoch, commit), desk.now_ms, None)
    desk.machine._append_internal(
        TopicPartition("__transaction_state", 0),
        [Block([transaction_key("tx")], [transaction_value(coordinator.get("tx"))], [desk.now_ms])],
        desk.now_ms,
    )

    desk = desk.restarted()

    known = desk.machine.transactions.get("tx")
    assert (known.producer_id != writer.id, known.epoch, known.previous_producer_id) == (True, 0, -1)
    assert desk.visible(P0) == ([b"a"] if commit else [])
    assert desk.machine.topics.log(P0).last_stable_offset == 2


def test_compaction_keeps_what_counts_when_a_later_value_of_the_key_was_aborted():
    desk = Desk()
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    desk.machine.topics.create("table", 1, config)
    table = TopicPartition("table", 0)
    writer = Writer(desk)
    for values, commit in (((b"old",), True), ((b"good",), True), ((b"bad",), False)):
        writer.add(table)
        writer.write(table, *values)
        writer.end(commit=commit)
    writer.add(table)
    writer.write(table, b"open")
    log = desk.machine.topics.log(table)
    log.compact(desk.now_ms)

    assert desk.visible(table) == [b"good"]
    writer.end(commit=True)
    assert desk.visible(table)[-1] == b"open"


def test_transactions_against_a_model():
    """Several producers at random: committed readers see just the committed records, in the order of the log."""
    for seed in range(60):
        rng = Random(seed)
        desk = Desk()
        writers = [Writer(desk, f"tx{number}") for number in range(3)]
        pending = {writer.name: [] for writer in writers}
        log, committed = [], set()
        for step in range(60):
            writer = rng.choice(writers)
            action = rng.random()
            if action < 0.6:
                value = b"%d" % step
                writer.add(P0)
                assert writer.write(P0, value)[0] is OK
                pending[writer.name].append(value)
                log.append(value)
            elif action < 0.95 and pending[writer.name]:
                commit = rng.random() < 0.5
                assert writer.end(commit=commit) is OK
                if commit:
                    committed.update(pending[writer.name])
                pending[writer.name].clear()
            elif action > 0.97:
                desk = desk.restarted()
                for other in writers:
                    other.desk = desk
        for writer in writers:
            if pending[writer.name]:
                writer.end(commit=False)
        assert desk.visible(P0) == [value for value in log if value in committed]


def test_files_keep_what_was_committed_and_what_was_not(tmp_path):
    """Through real clients, closed and opened again: offsets, aborted records and a repeated end."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("topic", 1)
        with Producer(broker, transactional_id="tx") as producer:
            producer.init_transactions()
            for number in range(6):
                producer.begin_transaction()
                producer.send("topic", b"%d" % number, key=b"k")
                producer.send_offsets_to_transaction({P0: number + 1}, GroupMetadata("group"))
                if number % 2:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
    with EmbeddedBroker(tmp_path) as broker:
        values = [value for block in broker.read(P0, 0, committed_only=True) for value in block.values]
        assert values == [b"0", b"2", b"4"]
        with Consumer(broker, "group", isolation_level="read_committed") as consumer:
            assert consumer.committed([P0])[P0].offset == 5
            consumer.assign([P0])
            consumer.seek(P0, 0)
            read = []
            while consumer.position(P0) < broker.end_offset(P0):
                read += [record.value for record in consumer.poll(100)]
            assert read == values
        with Producer(broker, transactional_id="tx") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("topic", b"more", key=b"k")
        assert broker.read(P0, 0, committed_only=True)[-1].values[-1] == b"more"


@pytest.mark.parametrize("forged", [2**63 - 1, 2**62, 0, 3])
def test_ids_that_nobody_was_given_are_given_to_nobody_and_stop_nobody(forged):
    """A client may write under any producer id, as in Kafka."""
    desk = Desk()
    block = Block([b"k"], [b"v"], [0], None, range(1), ProducerStamp(forged, 0, 0))
    assert desk.ask(Produce({P0: [block]})).partitions[P0].error is OK

    for found in (desk, desk.restarted(), desk.restarted().restarted()):
        given = [found.ask(InitProducerId()).producer_id for _ in range(10)]
        assert len(set(given)) == 10
        assert forged not in given
        assert max(given) < 10_000
