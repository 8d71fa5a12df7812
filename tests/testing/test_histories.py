"""The checks of histories: each kind of planted fault is found, and nothing in what a right log gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import ConfigError, Consumer, ConsumerRecord, EmbeddedBroker, Producer, Topic
from streams.core.blocks.records import TopicPartition
from streams.testing import AnomalyKind, ClientHistory, ClientRecord, check_history

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def rows(partition, *places):
    """Records whose values are their offsets, or (offset, value)."""
    pairs = (place if isinstance(place, tuple) else (place, place) for place in places)
    return [ClientRecord(partition, value, offset) for offset, value in pairs]


def history(*steps):
    """Steps are (process, sent, polled[, outcome]), or (process, moved)."""
    told = ClientHistory()
    for process, *rest in steps:
        if len(rest) == 1:
            told.move(process, rest[0])
        else:
            told.transaction(process, sent=rest[0], polled=rest[1], outcome=(*rest, "ok")[2])
    return told


WRITES = ("p", rows(A, 0, 1, 2), [])
PLANTED = {
    "what is behind it is polled": (
        AnomalyKind.LOST_WRITE, {}, [WRITES, ("c", [], rows(A, 0)), ("d", [], rows(A, 2))]
    ),
    "it is the last, and all is drained": (
        AnomalyKind.LOST_WRITE, {"is_drained": True}, [WRITES, ("c", [], rows(A, 0, 1))]
    ),
    "its offset is unknown, and all is drained": (
        AnomalyKind.LOST_WRITE,
        {"is_drained": True},
        [("p", [ClientRecord(A, "x")], [])],
    ),
    "another record of an unknown transaction is there": (
        AnomalyKind.LOST_WRITE,
        {"is_drained": True},
        [("p", [*rows(A, 0), ClientRecord(B, "x")], [], "unknown"), ("c", [], rows(A, 0))],
    ),
    "an aborted transaction": (
        AnomalyKind.ABORTED_READ,
        {},
        [("p", [ClientRecord(A, 0)], [], "failed"), ("c", [], rows(A, 0))],
    ),
    "a transaction polls what it sends": (AnomalyKind.OWN_READ, {}, [("p", rows(A, 0), rows(A, 0))]),
    "two offsets of a value": (AnomalyKind.DUPLICATE, {}, [WRITES, ("c", [], [*rows(A, 0, 1, 2, (3, 1))])]),
    "the writer was told another offset": (
        AnomalyKind.DUPLICATE,
        {},
        [("p", rows(A, 0), []), ("c", [], rows(A, (5, 0)))],
    ),
    "two values of an offset": (AnomalyKind.INCONSISTENT_OFFSET, {}, [WRITES, ("c", [], rows(A, 0, (1, "x"), 2))]),
    "one poll goes back": (AnomalyKind.POLL_BACKWARDS, {}, [WRITES, ("c", [], rows(A, 0, 1, 0))]),
    "the next poll goes back": (
        AnomalyKind.POLL_BACKWARDS, {}, [WRITES, ("c", [], rows(A, 0, 1)), ("c", [], rows(A, 1, 2))]
    ),
    "one poll skips": (AnomalyKind.POLL_SKIP, {}, [WRITES, ("c", [], rows(A, 0, 2)), ("d", [], rows(A, 1))]),
    "the next poll skips": (
        AnomalyKind.POLL_SKIP,
        {},
        [WRITES, ("c", [], rows(A, 0)), ("c", [], rows(A, 2)), ("d", [], rows(A, 0, 1, 2))],
    ),
    "one send goes back": (AnomalyKind.SEND_BACKWARDS, {}, [("p", rows(A, 1, 0), [])]),
    "the next send goes back": (AnomalyKind.SEND_BACKWARDS, {}, [("p", rows(A, 1), []), ("p", rows(A, 0), [])]),
    "records of two transactions are mixed": (
        AnomalyKind.WRITE_CYCLE,
        {"has_isolated_writes": True},
        [("p", [*rows(A, 0), *rows(B, 1)], []), ("q", [*rows(A, 1), *rows(B, 0)], [])],
    ),
    "each polls what the other sends": (
        AnomalyKind.INFORMATION_CYCLE,
        {},
        [("p", rows(A, 0), rows(B, 0)), ("q", rows(B, 0), rows(A, 0))],
    ),
    "one polls what was written before its own": (
        AnomalyKind.INFORMATION_CYCLE,
        {"has_isolated_writes": True},
        [("p", rows(A, 0), rows(B, 0)), ("q", [*rows(A, 1), *rows(B, 0)], [])],
    ),
    "a result is missing": (
        AnomalyKind.LOST_WRITE,
        {"results": {"b": "a"}, "is_drained": True},
        [WRITES, ("c", [], [*rows(A, 0, 1, 2), *rows(B, 0, 1)])],
    ),
    "a result is there twice": (
        AnomalyKind.DUPLICATE,
        {"results": {"b": "a"}},
        [WRITES, ("c", [], [*rows(B, 0), *rows(TopicPartition("b", 1), 0)])],
    ),
    "a result of what was never sent": (
        AnomalyKind.ABORTED_READ,
        {"results": {"b": "a"}},
        [("p", [ClientRecord(A, 0)], [], "failed"), ("c", [], rows(B, 0))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_fault_is_found_and_nothing_else(name):
    kind, options, steps = PLANTED[name]

    anomalies = check_history(history(*steps), **options)

    # A duplicate is polled again, and what cannot be there twice was skipped or lost where it is not.
    follows = {
        AnomalyKind.DUPLICATE: {AnomalyKind.POLL_BACKWARDS},
        AnomalyKind.INCONSISTENT_OFFSET: {AnomalyKind.LOST_WRITE},
    }
    assert kind in {anomaly.kind for anomaly in anomalies}
    assert {anomaly.kind for anomaly in anomalies} - follows.get(kind, set()) == {kind}
    assert all(anomaly.operations for anomaly in anomalies)


RIGHT = {
    "writes of transactions are mixed, which Kafka allows": [
        ("p", [*rows(A, 0), *rows(B, 1)], []),
        ("q", [*rows(A, 1), *rows(B, 0)], []),
    ],
    "a consumer whose position was set polls again": [
        WRITES, ("c", [], rows(A, 0, 1, 2)), ("c", {A}), ("c", [], rows(A, 0)),
    ],
    "offsets of markers are no records": [("p", rows(A, 0), []), ("p", rows(A, 4), []), ("c", [], rows(A, 0, 4))],
    "what failed is not there": [("p", [ClientRecord(A, 7)], [], "failed"), WRITES, ("c", [], rows(A, 0, 1, 2))],
    "what is unknown is not there": [("p", [ClientRecord(A, 7)], [], "unknown"), WRITES, ("c", [], rows(A, 0, 1, 2))],
    "what is unknown is there": [("p", [ClientRecord(A, 0)], [], "unknown"), ("c", [], rows(A, 0))],
    "a failed transaction polls once more": [
        WRITES, ("t", [], rows(A, 0, 1), "failed"), ("t", [], rows(A, 0, 1, 2)),
    ],
    "nobody has read so far": [WRITES, ("c", [], rows(A, 0, 1))],
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_logs_may_do_is_no_fault(name):
    assert check_history(history(*RIGHT[name])) == []


@st.composite
def runs(draw):
    """The history of transactions on two partitions in any interleaving, and of consumers that read all committed."""
    told, logs, open_, aborted = ClientHistory(), {A: [], B: []}, {}, []
    values = iter(range(1_000))
    for process, step in draw(st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from("aabbcfu")), max_size=40)):
        if step in "ab":
            partition = A if step == "a" else B
            open_.setdefault(process, []).append(ClientRecord(partition, next(values), len(logs[partition])))
            logs[partition].append(open_[process][-1])
            continue
        sent = open_.pop(process, [])
        told.transaction(process, sent=sent, outcome={"c": "ok", "f": "failed", "u": "unknown"}[step])
        if step == "f" or (step == "u" and draw(st.booleans())):
            aborted += sent
    for process, sent in open_.items():
        told.transaction(process, sent=sent, outcome="failed")
        aborted += sent
    logs = {partition: [row for row in log if row not in aborted] for partition, log in logs.items()}
    for consumer in "xy":
        for partition, committed in logs.items():
            at = 0
            for size in draw(st.lists(st.integers(1, 5), max_size=10)):
                told.poll(consumer, committed[at : at + size])
                at += size
                if draw(st.integers(0, 5)) == 0:
                    at = draw(st.integers(0, len(committed)))
                    told.move(consumer, [partition])
            told.poll(consumer, committed[at:])
    for log in logs.values():
        told.poll("all", log)
    return told


@given(runs())
def test_history_of_a_right_log_has_no_anomaly(told):
    assert check_history(told, is_drained=True) == []


@given(runs(), st.data())
def test_each_record_that_all_skip_or_one_polls_twice_is_found(told, data):
    """Take a polled record out of all polls, or give it to a later poll once more."""
    polled = sorted({(row.partition, row.value) for operation in told.operations for row in operation.polled})
    acknowledged = {
        (row.partition, row.value)
        for operation in told.operations
        if operation.outcome == "ok"
        for row in operation.sent
    }
    if not polled:
        return
    victim = data.draw(st.sampled_from(polled))
    lost, again = ClientHistory(), ClientHistory()
    for operation in told.operations:
        rest = [row for row in operation.polled if (row.partition, row.value) != victim]
        for copy, rows_of in ((lost, rest), (again, operation.polled)):
            copy.move(operation.process, operation.moved)
            copy.transaction(operation.process, sent=operation.sent, polled=rows_of, outcome=operation.outcome)
    again.poll("z", [ClientRecord(*victim, 10_000)])

    assert AnomalyKind.DUPLICATE in {anomaly.kind for anomaly in check_history(again)}
    if victim in acknowledged:
        assert AnomalyKind.LOST_WRITE in {anomaly.kind for anomaly in check_history(lost, is_drained=True)}


def test_records_of_a_consumer_are_checked_against_what_was_sent():
    topic = Topic("words", key=str, value=str, partitions=1)
    told = ClientHistory()
    with EmbeddedBroker() as broker:
        broker.create_topic(topic)
        with Producer(broker) as producer, Consumer(broker, auto_offset_reset="earliest") as consumer:
            for number in range(3):
                delivery = producer.send(topic, f"w{number}", key="k")
                producer.flush()
                told.transaction("p", sent=[ClientRecord(delivery.partition, f"w{number}", delivery.base_offset())])
            consumer.assign([TopicPartition("words", 0)], [topic])
            while len(told.operations) < 4:
                told.poll("c", consumer.poll(1_000))

    assert check_history(told, is_drained=True) == []
    told.poll("d", [ConsumerRecord("words", 0, 2, 0, "k", "w2", ())])
    told.transaction("p", sent=[ClientRecord(delivery.partition, "w3", 1)])
    [anomaly, *_] = check_history(told)
    assert str(anomaly).startswith("inconsistent offset: words-0:1 has 'w1' and 'w3'\n  #")


def test_value_that_was_sent_twice_and_an_outcome_that_is_none_are_refused():
    told = history(WRITES, ("q", rows(A, (9, 1)), []))
    with pytest.raises(ConfigError, match=r"value 1 was sent twice to a-0; a history needs values that"):
        check_history(told)
    with pytest.raises(ConfigError, match="outcome of an operation must be one of"):
        told.transaction("p", outcome="done")
    with pytest.raises(ConfigError, match=r"^\{'id': 1\} at a-0:0: unhashable type: 'dict'; take a number or id of it"):
        told.poll("q", [ConsumerRecord("a", 0, 0, 0, "k", {"id": 1}, ())])
