"""Foreign-key joins of tables: subscriptions, answers and what becomes of them."""

import pytest

from streams.core.serdes.serdes import STRING, PinnedSerde
from streams.dsl.processing import (
    ForeignTableJoin,
    ResponseJoin,
    StoreValues,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
    TableSource,
    response_partition,
    response_serde,
    subscription_partition,
    subscription_serde,
    subscription_store,
)
from streams.dsl.processing.joins.subscriptions import ForeignKeySubscription, Instruction, SubscriptionResponse


class Topic:
    """Passes records through the bytes of an internal topic."""

    def __init__(self, serde):
        self.serde = serde

    def bind(self, context):
        forward = context.output.forward

        def process(key, value, timestamp_ms, headers):
            forward(key, self.serde.deserialize(self.serde.serialize(value)), timestamp_ms, headers)

        return process


@pytest.fixture
def join(bench, kv):
    """Makes a join of the tables ``left`` and ``right``; a left value ``x>k`` names the right key ``k``."""

    def make(*, is_left):
        bench.open(kv("l", STRING), kv("r", STRING), subscription_store("s", STRING))
        joiner = lambda left, right: f"{left}+{right}"  # noqa: E731
        bench.add(ResponseJoin(StoreValues("l"), STRING, joiner, False, is_left), "response")
        bench.add(Topic(response_serde(STRING)), "answers", to="response")
        bench.add(ForeignTableJoin("s", STRING, STRING), "foreign", to="answers")
        bench.add(TableSource("r", send_old=True), "right", to="foreign")
        bench.add(SubscriptionJoin(StoreValues("r")), "join", to="answers")
        bench.add(SubscriptionReceive("s", STRING, STRING), "receive", to="join")
        bench.add(Topic(subscription_serde(STRING)), "subscriptions", to="receive")
        send = SubscriptionSend(lambda key, value: value.partition(">")[2] or None, STRING, STRING, is_left)
        bench.add(send, "send", to="subscriptions")
        return bench.add(TableSource("l", send_old=True), "left", to="send")

    return make


def test_stale_answer_is_dropped(join):
    bench = join(is_left=False)
    bench.send("a", "x>k", 1, node="left")

    assert bench.send("a", SubscriptionResponse(b"another hash....", "R", 0), 2, node="response") == []
    assert bench.dropped == 1


def test_subscriptions_survive_a_restart(join):
    bench = join(is_left=False)
    bench.send("a", "x>k", 1, node="left")

    bench.restart()

    assert bench.send("k", "R", 2, node="right") == [("a", "x>k+R", 2)]


def test_empty_right_value_is_no_value(join):
    """As in the reference, whose answers cannot tell them apart."""
    bench = join(is_left=True)
    bench.send("a", "x>k", 1, node="left")

    assert bench.send("k", "", 2, node="right") == [("a", "x>k+None", 2)]


def test_late_and_null_records_are_dropped(bench):
    bench.open(subscription_store("s", STRING))
    bench.add(ForeignTableJoin("s", STRING, STRING, is_versioned=True), "foreign")
    bench.add(SubscriptionSend(lambda key, value: value, STRING, STRING, is_versioned=True), "send")
    bench.add(SubscriptionReceive("s", STRING, STRING), "receive")

    bench.send("k", ("x", None, False), 1, node="foreign")
    bench.send(None, ("x", None, True), 1, node="foreign")
    bench.send("k", ("x", None, False), 1, node="send")
    bench.send(None, ForeignKeySubscription(None, Instruction.PROPAGATE_IF_ANY, "a", 0), 1, node="receive")

    assert bench.take() == []
    assert bench.dropped == 4


def test_answers_go_to_the_partition_of_the_left_row():
    assert response_partition("t", "a", SubscriptionResponse(None, "x", 3), 4) == 3
    assert subscription_partition("t", "k", ForeignKeySubscription(None, Instruction.DELETE, "a", 3), 4) is None
    assert subscription_partition("t", None, ForeignKeySubscription(None, Instruction.DELETE, "a", 3), 4) == 3


HASH = bytes(range(16))


@pytest.mark.parametrize(
    ("subscription", "data"),
    [
        ((HASH, Instruction.PROPAGATE_IF_ANY, "ann", 2), b"\x01\x03" + HASH + b"ann\x00\x00\x00\x02"),
        ((None, Instruction.DELETE_AND_PROPAGATE, "ann", 2), b"\x81\x01ann\x00\x00\x00\x02"),
        # Version 0, which has no partition.
        ((HASH, Instruction.PROPAGATE_NULL_IF_NONE, "ann", None), b"\x00\x02" + HASH + b"ann"),
        ((None, Instruction.DELETE, "", None), b"\x80\x00"),
    ],
)
def test_subscriptions_have_the_bytes_of_kafka_streams(subscription, data):
    """Those of SubscriptionWrapperSerde, versions 1 and 0."""
    serde = subscription_serde(STRING)

    assert serde.serialize(ForeignKeySubscription(*subscription)) == data
    assert serde.deserialize(data) == ForeignKeySubscription(*subscription)


@pytest.mark.parametrize(
    ("response", "data"),
    [
        ((HASH, "R"), b"\x00" + HASH + b"R"),
        ((HASH, None), b"\x00" + HASH),
        ((None, "R"), b"\x80R"),
        ((None, None), b"\x80"),
    ],
)
def test_responses_have_the_bytes_of_kafka_streams(response, data):
    """Those of SubscriptionResponseWrapperSerde, without the partition."""
    serde = response_serde(STRING)

    assert serde.serialize(SubscriptionResponse(*response, 3)) == data
    assert serde.deserialize(data) == SubscriptionResponse(*response)


def test_a_response_to_a_subscription_of_version_0_goes_by_its_key():
    assert response_partition("t", "a", SubscriptionResponse(None, "x"), 4) is None


def test_messages_of_pinned_types_can_be_read_where_nothing_was_pinned_yet():
    subscription = ForeignKeySubscription(bytes(16), Instruction.DELETE, 7, 2)
    response = SubscriptionResponse(None, 7)

    written = (
        subscription_serde(PinnedSerde("w")).serialize(subscription),
        response_serde(PinnedSerde("w")).serialize(response),
    )

    assert subscription_serde(PinnedSerde("r")).deserialize(written[0]) == subscription
    assert response_serde(PinnedSerde("r")).deserialize(written[1]) == response
