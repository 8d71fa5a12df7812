"""Transactions: what is committed is read, all at once; what is aborted is not; one producer per transactional id."""

from random import Random

import pytest

from streams.clients import Consumer, GroupMetadata, Producer, RequestTimeoutError
from streams.clients.producer.transaction import _TRANSITIONS, Transaction, TransactionPhase
from streams.core.blocks.records import Block, TopicPartition
from streams.core.errors import (
    ConfigError,
    MemberFencedError,
    ProducerFencedError,
    RecordTooLargeError,
    StreamsError,
    TransactionError,
)
from streams.protocol.error_codes import ErrorCode
from streams.protocol.group_messages import OffsetAndMetadata, OffsetCommit
from streams.protocol.messages import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    EndTxnResponse,
    FindCoordinator,
    InitProducerId,
    Produce,
    TxnOffsetCommit,
)

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


@pytest.fixture
def make(broker, clock):
    """Make transactional producers."""

    def make(cluster=None, transactional_id="x", **settings):
        producer = Producer(cluster or broker, clock=clock, transactional_id=transactional_id, **settings)
        producer.init_transactions()
        return producer

    return make


@pytest.fixture
def consume(broker, clock):
    """Make consumers of both partitions."""

    def consume(isolation_level="read_committed", **settings):
        consumer = Consumer(
            broker, clock=clock, auto_offset_reset="earliest", isolation_level=isolation_level, **settings
        )
        consumer.assign([P0, P1])
        return consumer

    return consume


def drain(consumer):
    """Everything that there is to read, values by partition."""
    found = {}
    for _ in range(20):
        for record in consumer.poll():
            found.setdefault(record.partition, []).append(record.value)
    return found


def kinds(cluster, *wanted):
    return [type(request).__name__ for request in cluster.sent if isinstance(request, wanted)]


def test_committed_records_are_read_all_at_once(make, consume):
    producer, committed, uncommitted = make(), consume(), consume("read_uncommitted")
    producer.begin_transaction()
    producer.send("t", b"a", partition=0)
    producer.send("t", b"b", partition=1).result()

    assert drain(committed) == {}
    assert drain(uncommitted) == {0: [b"a"], 1: [b"b"]}

    producer.commit_transaction()

    assert drain(committed) == {0: [b"a"], 1: [b"b"]}
    assert drain(uncommitted) == {}


def test_aborted_records_are_left_out_and_positions_move_past_them(make, consume):
    producer, committed, uncommitted = make(), consume(), consume("read_uncommitted")
    with pytest.raises(ValueError, match="no"), producer.transaction():
        producer.send_block(P0, Block([None] * 3, [b"1", b"2", b"3"], [0] * 3)).result()
        raise ValueError("no")

    assert drain(committed) == {}
    assert committed.known_position(P0) == committed.known_end(P0) == 4
    assert drain(uncommitted) == {0: [b"1", b"2", b"3"]}

    with producer.transaction():
        producer.send("t", b"4", partition=0)

    assert drain(committed) == {0: [b"4"]}
    assert committed.position(P0) == committed.known_end(P0) == 6, "the marker has an offset of its own"


def test_interleaved_transactions_are_told_apart(make, consume):
    one, two = make(transactional_id="one"), make(transactional_id="two")
    plain = consume()
    for producer in (one, two):
        producer.begin_transaction()
    for n in range(3):
        one.send("t", b"one%d" % n, partition=0).result()
        two.send("t", b"two%d" % n, partition=0).result()
    one.abort_transaction()

    assert drain(plain) == {}, "the other one is still open"

    two.commit_transaction()

    assert drain(plain) == {0: [b"two0", b"two1", b"two2"]}


def test_records_are_cut_by_the_limit_of_a_poll_and_positions_still_fit(make, clock, broker, consume):
    producer = make()
    for n in range(6):
        producer.begin_transaction()
        producer.send_block(P0, Block([None] * 2, [b"%d" % n] * 2, [0] * 2))
        producer.abort_transaction() if n % 2 else producer.commit_transaction()
    consumer = consume(max_poll_records=3)

    values, positions = [], []
    for _ in range(8):
        values += [record.value for record in consumer.poll()]
        positions.append(consumer.known_position(P0))

    assert values == [b"0", b"0", b"2", b"2", b"4", b"4"]
    assert positions[-1] == consumer.known_end(P0)
    assert positions[-1] >= 16


def test_end_offsets_know_open_transactions(make, consume):
    producer, consumer = make(), consume()
    producer.begin_transaction()
    producer.send("t", b"a", partition=0).result()

    assert consumer.end_offsets([P0]) == {P0: 0}
    assert consumer.end_offsets([P0], isolation_level=READ_COMMITTED) == {P0: 0}
    assert consumer.end_offsets([P0], isolation_level=READ_UNCOMMITTED) == {P0: 1}

    producer.commit_transaction()

    assert consumer.end_offsets([P0]) == {P0: 2}


def test_transaction_of_the_second_version_has_an_epoch_of_its_own_and_adds_nothing(
    make, cluster, consume, broker, clock
):
    """Brokers add partitions and groups by themselves (KIP-890)."""
    producer, committed = make(cluster), consume()
    consumer = Consumer(broker, "g", clock=clock)
    pairs = [producer._transaction.identity.pair]
    cluster.sent.clear()
    for n in range(3):
        producer.begin_transaction()
        producer.send("t", b"%d" % n, partition=n % 2)
        producer.send_offsets_to_transaction({P0: n}, consumer.group_metadata)
        if n == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        pairs.append(producer._transaction.identity.pair)

    assert kinds(cluster, AddPartitionsToTxn, AddOffsetsToTxn, InitProducerId) == []
    assert pairs == [(pairs[0][0], pairs[0][1] + n) for n in range(4)]
    assert drain(committed) == {0: [b"0", b"2"]}
    assert consumer.committed([P0])[P0].offset == 2


@pytest.mark.parametrize("is_commit", [True, False])
def test_end_of_the_second_version_whose_answer_is_lost_is_asked_again(make, cluster, first_of, consume, is_commit):
    producer, committed = make(cluster), consume()
    epoch = producer._transaction.identity.epoch
    cluster.loses_answer = first_of(1, EndTxn)
    producer.begin_transaction()
    producer.send("t", b"a", partition=0).result()
    producer.commit_transaction() if is_commit else producer.abort_transaction()

    assert kinds(cluster, EndTxn) == ["EndTxn", "EndTxn"]
    assert producer._transaction.identity.epoch == epoch + 1
    assert drain(committed) == ({0: [b"a"]} if is_commit else {})


def test_abort_of_records_that_never_came_ends_their_epoch(make, cluster, consume, clock):
    """The request is lost, so there is no transaction at the broker; what comes late is kept out all the same."""
    producer, committed = make(cluster), consume()
    epoch = producer._transaction.identity.epoch
    cluster.fails = lambda request: isinstance(request, Produce)
    producer.begin_transaction()
    producer.send("t", b"a", partition=0)
    producer._sender.run_once(0)
    producer.abort_transaction()

    assert producer._transaction.identity.epoch == epoch + 1
    cluster.fails = lambda request: False
    clock.advance(1_000)
    producer.begin_transaction()
    producer.send("t", b"b", partition=0)
    producer.commit_transaction()
    assert drain(committed) == {0: [b"b"]}


def test_abortable_error_of_a_commit_leaves_only_the_abort(make, cluster, consume):
    """TRANSACTION_ABORTABLE: the producer stays in use (KIP-1050)."""
    producer, committed = make(cluster), consume()
    abortable = EndTxnResponse(ErrorCode.TRANSACTION_ABORTABLE)
    cluster.answers = lambda request: abortable if isinstance(request, EndTxn) and request.is_commit else None
    producer.begin_transaction()
    producer.send("t", b"a", partition=0).result()
    with pytest.raises(TransactionError, match="only abort_transaction"):
        producer.commit_transaction()
    producer.abort_transaction()
    cluster.answers = lambda request: None
    with producer.transaction():
        producer.send("t", b"b", partition=0)

    assert drain(committed) == {0: [b"b"]}


def test_partitions_of_the_first_version_are_added_together_and_only_once(make, cluster):
    cluster.is_first_version = True
    producer = make(cluster)
    producer.begin_transaction()
    cluster.sent.clear()
    for n in range(3):
        producer.send("t", b"%d" % n, partition=n % 2).result()
    producer.commit_transaction()

    assert kinds(cluster, AddPartitionsToTxn, EndTxn) == ["AddPartitionsToTxn", "AddPartitionsToTxn", "EndTxn"]

    cluster.sent.clear()
    lingering = make(cluster, transactional_id="y", linger_ms=10)
    lingering.begin_transaction()
    lingering.send("t", b"a", partition=0)
    lingering.send("t", b"b", partition=1)
    lingering.commit_transaction()

    (added,) = [request for request in cluster.sent if isinstance(request, AddPartitionsToTxn)]
    assert sorted(added.partitions) == [P0, P1]


def test_empty_transactions_cost_no_request(make, cluster):
    producer = make(cluster)
    cluster.sent.clear()
    with producer.transaction():
        pass
    producer.begin_transaction()
    producer.abort_transaction()

    assert cluster.sent == []


def test_offsets_count_with_the_transaction(make, broker, clock):
    producer = make()
    consumer = Consumer(broker, "g", clock=clock, default_api_timeout_ms=1_000)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({P0: 5, P1: OffsetAndMetadata(7, "note")}, consumer.group_metadata)

    assert consumer.committed([P0, P1]) == {}

    producer.commit_transaction()

    assert consumer.committed([P0, P1]) == {P0: OffsetAndMetadata(5), P1: OffsetAndMetadata(7, "note")}

    producer.begin_transaction()
    producer.send_offsets_to_transaction({P0: 9}, consumer.group_metadata)
    producer.abort_transaction()

    assert consumer.committed([P0]) == {P0: OffsetAndMetadata(5)}


def test_committed_offsets_wait_for_open_transactions(make, broker, clock):
    producer = make()
    settings = {"clock": clock, "default_api_timeout_ms": 1_000, "auto_offset_reset": "earliest"}
    consumer = Consumer(broker, "g", isolation_level="read_committed", **settings)
    consumer.assign([P0])
    broker.append(P0, Block([None] * 9, [b"v"] * 9, [0] * 9))
    producer.begin_transaction()
    producer.send_offsets_to_transaction({P0: 5}, GroupMetadata("g"))

    with pytest.raises(RequestTimeoutError, match="group 'g'"):
        consumer.committed([P0])
    consumer.poll()
    assert consumer.known_position(P0) is None

    producer.commit_transaction()
    clock.advance(200)

    assert [record.offset for record in consumer.poll()] == [5, 6, 7, 8]
    assert consumer.committed([P0]) == {P0: OffsetAndMetadata(5)}


def test_stale_member_cannot_commit_offsets(make, broker, clock):
    producer = make()
    consumer = Consumer(broker, "g", clock=clock)
    consumer.subscribe(["t"])
    for _ in range(20):
        consumer.poll()
        clock.advance(500)
    metadata = consumer.group_metadata
    producer.begin_transaction()

    with pytest.raises(TransactionError) as error:
        producer.send_offsets_to_transaction({P0: 5}, metadata._replace(generation_id=metadata.generation_id + 1))

    assert isinstance(error.value.__cause__, MemberFencedError)
    assert error.value.transactional_id == "x"
    with pytest.raises(TransactionError):
        producer.commit_transaction()
    with pytest.raises(TransactionError):
        producer.send("t", b"v")

    producer.abort_transaction()
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 5}, metadata)
    assert consumer.committed([P0]) == {P0: OffsetAndMetadata(5)}


def test_second_producer_fences_the_first_and_ends_what_it_left_open(make, consume):
    first = make()
    first.begin_transaction()
    first.send("t", b"lost", partition=0).result()

    second = make()

    with pytest.raises(ProducerFencedError) as error:
        first.commit_transaction()
    assert (error.value.transactional_id, error.value.producer_epoch) == ("x", 0)
    for verb in (first.begin_transaction, first.abort_transaction, first.commit_transaction):
        with pytest.raises(ProducerFencedError):
            verb()
    with pytest.raises(ProducerFencedError):
        first.send("t", b"v")
    first.close()
    with second.transaction():
        second.send("t", b"kept", partition=0)
    assert drain(consume()) == {0: [b"kept"]}


def test_fenced_producer_learns_it_from_its_records_too(make):
    first = make()
    first.begin_transaction()
    first.send("t", b"1", partition=0).result()
    make()

    delivery = first.send("t", b"2", partition=0)

    assert isinstance(delivery.exception(), Exception)
    with pytest.raises(ProducerFencedError):
        first.commit_transaction()


def test_transaction_that_takes_too_long_is_aborted_by_the_broker(make, consume, clock):
    producer = make(transaction_timeout_ms=1_000)
    producer.begin_transaction()
    producer.send("t", b"late", partition=0).result()

    clock.advance(1_001)

    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()
    assert drain(consume()) == {}


def test_record_that_fails_makes_the_transaction_abortable(make, broker, clock, consume):
    broker.create_topic("small", partitions=1, config={"max.message.bytes": "500"})
    producer = make()
    producer.begin_transaction()
    producer.send("t", b"fine", partition=0)
    too_large = producer.send("small", b"x" * 600, partition=0)

    assert isinstance(too_large.exception(), RecordTooLargeError)
    with pytest.raises(TransactionError, match="small-0") as error:
        producer.commit_transaction()
    assert isinstance(error.value.__cause__, RecordTooLargeError)

    producer.abort_transaction()
    with producer.transaction():
        producer.send("small", b"y", partition=0)
        producer.send("t", b"again", partition=0)

    assert drain(consume()) == {0: [b"again"]}


def test_what_was_not_sent_fails_with_the_abort(make):
    producer = make(linger_ms=10_000)
    producer.begin_transaction()
    delivery = producer.send("t", b"v", partition=0)

    producer.abort_transaction()

    assert isinstance(delivery.exception(), TransactionError)
    producer.close()


@pytest.mark.parametrize(
    "kind", [FindCoordinator, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, Produce, EndTxn]
)
@pytest.mark.parametrize("fault", ["fails", "loses_answer"])
def test_each_request_may_be_lost_or_its_answer(make, cluster, broker, clock, consume, first_of, kind, fault):
    setattr(cluster, fault, first_of(2, kind))
    producer = make(cluster, retry_backoff_ms=0)
    with producer.transaction():
        producer.send("t", b"a", partition=0)
        producer.send_offsets_to_transaction({P0: 5}, GroupMetadata("g"))
        producer.flush()
    with producer.transaction():
        producer.send("t", b"b", partition=0)

    assert drain(consume()) == {0: [b"a", b"b"]}
    assert Consumer(broker, "g", clock=clock).committed([P0]) == {P0: OffsetAndMetadata(5)}


@pytest.mark.parametrize("fault", ["fails", "loses_answer"])
def test_abort_may_be_lost_or_its_answer(make, cluster, consume, first_of, fault):
    producer = make(cluster, retry_backoff_ms=0)
    producer.begin_transaction()
    producer.send("t", b"a", partition=0).result()
    setattr(cluster, fault, first_of(2, EndTxn))

    producer.abort_transaction()
    with producer.transaction():
        producer.send("t", b"b", partition=0)

    assert drain(consume()) == {0: [b"b"]}


def test_commit_of_which_nothing_is_heard_can_only_be_asked_for_again(make, cluster, consume):
    producer = make(cluster, max_block_ms=1_000)
    producer.begin_transaction()
    producer.send("t", b"a", partition=0).result()
    cluster.loses_answer = lambda request: isinstance(request, EndTxn)
    with pytest.raises(RequestTimeoutError):
        producer.commit_transaction()
    with pytest.raises(StreamsError, match="committing"):
        producer.abort_transaction()

    cluster.loses_answer = lambda request: False
    producer.commit_transaction()

    assert drain(consume()) == {0: [b"a"]}


def test_closing_aborts_what_is_open(make, consume):
    with make() as producer:
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result()

    consumer = consume()
    assert drain(consumer) == {}
    assert consumer.known_end(P0) == 2, "nobody waits for the transaction's timeout"


def test_verbs_in_the_wrong_order_are_mistakes_of_the_program(broker, clock, make):
    with pytest.raises(ConfigError, match="transactional_id"):
        Producer(broker, clock=clock).begin_transaction()
    producer = Producer(broker, clock=clock, transactional_id="x")
    with pytest.raises(StreamsError, match="init_transactions"):
        producer.begin_transaction()
    producer.init_transactions()
    producer.init_transactions()
    for verb in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(StreamsError, match="'ready'"):
            verb()
    with pytest.raises(StreamsError, match="send"):
        producer.send("t", b"v")
    producer.begin_transaction()
    with pytest.raises(StreamsError, match="'in transaction'"):
        producer.begin_transaction()


def test_states_lead_only_where_the_table_says():
    reached = {TransactionPhase.UNINITIALIZED}
    while more := {to for state in reached for to in _TRANSITIONS[state]} - reached:
        reached |= more

    assert reached == set(TransactionPhase)
    assert not _TRANSITIONS[TransactionPhase.FATAL]
    with pytest.raises(AssertionError):
        Transaction("x", None).move(TransactionPhase.COMMITTING)


@pytest.mark.parametrize("seed", range(30))
def test_exactly_the_committed_records_are_read_whatever_is_lost(make, cluster, consume, clock, seed):
    """Transactions over a way that loses requests and answers; each is committed or aborted by chance."""
    rng = Random(seed)
    producer = make(cluster, retry_backoff_ms=0)
    cluster.fails = lambda request: rng.random() < 0.15
    cluster.loses_answer = lambda request: rng.random() < 0.15
    expected = {0: [], 1: []}
    for n in range(30):
        producer.begin_transaction()
        written = {0: [], 1: []}
        for i in range(rng.randrange(1, 5)):
            number = rng.randrange(2)
            producer.send("t", b"%d.%d" % (n, i), partition=number)
            written[number].append(b"%d.%d" % (n, i))
        if rng.random() < 0.4:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            for number, values in written.items():
                expected[number] += values
        clock.advance(rng.randrange(50))

    found = drain(consume())
    assert {number: found.get(number, []) for number in (0, 1)} == expected


def test_other_commits_go_on_beside(make, broker, clock, cluster):
    consumer = Consumer(cluster, "g", clock=clock)
    consumer.assign([P0])
    cluster.loses_answer = lambda request, left=[1]: isinstance(request, OffsetCommit) and left and left.pop()

    consumer.commit_sync({P0: 3})

    assert consumer.committed([P0]) == {P0: OffsetAndMetadata(3)}
