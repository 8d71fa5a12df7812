"""Letters of a dead letter topic go back to where they came from, each once."""

import signal
from itertools import pairwise

import pytest
from attrs import define
from hypothesis import given
from hypothesis import strategies as st

from streams import ConfigError, EmbeddedBroker, Producer, ProducerFencedError, UnknownTopicError
from streams.clients import Admin, DeadLetters, grouped
from streams.clients.dead_letters import Redriven
from streams.core.blocks.records import TopicPartition
from streams.core.clock import VirtualClock
from streams.core.dead_letters import Letter, error_headers
from tests import programs

LINES = TopicPartition("lines", 0)
DEAD = TopicPartition("dead", 0)


def failed(message="no number", redrives=0, topic="lines", partition=0, offset=0, node="parse"):
    """Headers of a letter, after those of its source record."""
    try:
        int(message)
    except ValueError as error:
        headers = error_headers(error, topic, partition, offset, node)
    counter = (("__streams.redrives", str(redrives).encode()),) if redrives else ()
    return (("own", b"1"), *counter, *headers)


def put(broker, *values, **described):
    with Producer(broker) as producer:
        for value in values:
            producer.send("dead", value, key=b"k", timestamp_ms=5, headers=failed(**described), partition=0)


@pytest.fixture
def broker():
    with EmbeddedBroker(auto_create_topics=False) as broker:
        broker.create_topic("lines", 2)
        broker.create_topic("dead")
        yield broker


def values(broker, partition=LINES):
    return [record.value for record in records(broker, partition)]


def records(broker, partition=LINES):
    """The committed records of a partition."""
    return [letter for letter in DeadLetters(broker, partition.topic).letters() if letter.partition == partition]


@define
class Ticking:
    """A clock that advances with each look at it."""

    now: int = 0

    def now_ms(self):
        self.now += 10
        return self.now

    def monotonic_ms(self):
        return self.now_ms()

    def monotonic_ns(self):
        return self.now_ms() * 1_000_000


def test_record_goes_back_as_it_was_with_a_counter(broker):
    put(broker, b"a", partition=1)

    result = DeadLetters(broker, "dead").redrive()

    (record,) = records(broker, TopicPartition("lines", 1))
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b"a", 5)
    assert record.headers == (("own", b"1"), ("__streams.redrives", b"1"))
    assert (result.sent, result.refused) == ({TopicPartition("lines", 1): 1}, {})


def test_each_letter_goes_back_once_and_new_ones_later(broker):
    letters = DeadLetters(broker, "dead")
    put(broker, b"a", b"b")
    letters.redrive()
    letters.redrive()
    put(broker, b"c")

    letters.redrive(batch=1)

    assert values(broker) == [b"a", b"b", b"c"]


def test_what_a_filter_leaves_goes_back_later(broker):
    letters = DeadLetters(broker, "dead")
    put(broker, *(b"%d" % number for number in range(9)))

    letters.redrive(lambda letter: letter.offset % 3 == 1, batch=2)
    assert values(broker) == [b"1", b"4", b"7"]
    letters.redrive(lambda letter: letter.offset < 5)
    assert values(broker)[3:] == [b"0", b"2", b"3"]
    letters.redrive()

    assert sorted(values(broker)) == [b"%d" % number for number in range(9)]
    assert letters.redriven()[DEAD] == Redriven(9)


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        ({"redrives": 3}, "re-driven 3 times"),
        ({"topic": None}, "no source record"),
        ({"topic": "gone"}, "gone-0, which does not exist"),
        ({"partition": 7}, "lines-7, which does not exist"),
    ],
)
def test_what_cannot_go_back_is_left_with_the_reason(broker, described, reason):
    put(broker, b"a", **described)
    put(broker, b"b", redrives=2)

    result = DeadLetters(broker, "dead").redrive()

    assert values(broker) == [b"b"]
    ((why, count),) = result.refused.items()
    assert reason in why
    assert count == 1


def test_record_without_bytes_is_left_and_a_deletion_is_not(broker):
    with Producer(broker) as producer:
        producer.send("dead", None, headers=failed(), partition=0)
        producer.send("dead", None, key=b"deleted", headers=failed(), partition=0)

    result = DeadLetters(broker, "dead").redrive()

    assert [record.key for record in records(broker)] == [b"deleted"]
    assert ["has no bytes" in why for why in result.refused] == [True]


def test_rate_is_an_upper_limit():
    """Each look at the clock takes 10 ms; under a virtual clock the broker does not wait."""
    clock, taken = Ticking(), []
    with EmbeddedBroker(clock=VirtualClock()) as broker:
        broker.create_topic("lines")
        broker.create_topic("dead")
        put(broker, *(b"%d" % number for number in range(5)))
        DeadLetters(broker, "dead", clock=clock).redrive(
            rate=2, on_step=lambda step: taken.append(clock.monotonic_ms()) if step == "begin" else None
        )

    assert len(taken) == 3
    assert all(later - earlier >= 1000 for earlier, later in pairwise(taken))


def test_later_redrive_fences_an_earlier_one(broker):
    put(broker, b"a", b"b")
    letters = DeadLetters(broker, "dead")
    steps = []

    def on_step(step):
        steps.append(step)
        if step == "add offsets":
            letters.redrive()

    with pytest.raises(ProducerFencedError):
        letters.redrive(on_step=on_step)

    assert values(broker) == [b"a", b"b"]


def test_missing_topic_is_named(broker):
    with pytest.raises(UnknownTopicError, match="'daed'"):
        DeadLetters(broker, "daed")


def test_groups_are_by_reason_node_and_line(broker):
    put(broker, b"a", message="x")
    put(broker, b"b", b"c", message="y", node="other")

    found = grouped(list(DeadLetters(broker, "dead").letters()))

    assert [(reason, node, len(of)) for (reason, node, _), of in found.items()] == [
        ("ValueError", "other", 2),
        ("ValueError", "parse", 1),
    ]
    assert all("test_dead_letters.py" in line and "int(message)" in line for _, _, line in found)


def test_letters_of_kafka_streams_are_read():
    """Those have the headers of KIP-1034 and no others."""
    headers = (
        ("__streams.errors.exception", b"java.lang.NullPointerException"),
        ("__streams.errors.message", None),
        ("__streams.errors.topic", b"orders"),
        ("__streams.errors.partition", b"2"),
        ("__streams.errors.offset", b"17"),
    )

    letter = Letter(DEAD, 0, 0, b"k", b"v", headers)

    assert (letter.reason, letter.source) == ("NullPointerException", TopicPartition("orders", 2))
    assert (letter.redrives, letter.refusal(1)) == (0, "")


# --- killed between any two steps ---------------------------------------------------------


def killed_before_each_step(where: str, topic: str) -> int:
    """Run a re-drive that dies a step later each time, until one ends; return how many died."""
    deaths = 0
    while True:
        ended = programs.run(["-m", "tests.clients.redriving", where, topic, str(deaths)])
        if ended.returncode == 0:
            return deaths
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        deaths += 1


@pytest.mark.slow
def test_redrive_killed_before_any_step_sends_each_letter_once(tmp_path):
    sent = [b"%d" % number for number in range(3)]
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("lines")
        broker.create_topic("dead")
        put(broker, *sent)

    deaths = killed_before_each_step(str(tmp_path), "dead")

    with EmbeddedBroker(tmp_path) as broker:
        assert values(broker) == sent
        assert DeadLetters(broker, "dead").redriven()[DEAD] == Redriven(3)
    # Once a transaction is committed, its letters need no steps.
    assert deaths == 9


# --- which letters were re-driven ---------------------------------------------------------


@given(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 200), st.integers(1, 9)), max_size=40))
def test_redriven_offsets_are_what_was_added_also_after_a_commit(base, added):
    redriven, expected = Redriven(base), set(range(base))
    for first, count in added:
        redriven.add(first, first + count)
        expected |= set(range(first, first + count))

    restored = Redriven.of(redriven.committed(), 0)

    assert {offset for offset in range(300) if offset in redriven} == expected
    assert restored == redriven
    assert redriven.base not in expected
    assert all(first < end for first, end in redriven.ranges)


def test_too_many_gaps_are_refused_before_anything_is_sent(broker):
    redriven = Redriven(0)
    for number in range(1, 40_000):
        redriven.add(number * number, number * number + 1)

    with pytest.raises(ConfigError, match="do not fit"):
        redriven.committed()


def test_letters_that_expired_count_as_redriven(broker):
    put(broker, b"a", b"b", b"c")
    with Admin(broker) as admin:
        admin.delete_records({DEAD: 2})
    letters = DeadLetters(broker, "dead")

    letters.redrive()

    assert values(broker) == [b"c"]
    assert letters.redriven()[DEAD] == Redriven(3)
