"""Fetch sessions (KIP-227): a client that is told only changes knows as much as one that asks for everything."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.broker import HANDLERS, AssignableTopics, Broker, FetchSessions, Storages, Topics
from streams.clients.consumer.fetch_session import Asked, FetchSession
from streams.clients.consumer.subscription import PartitionState
from streams.core.blocks.records import Block, TopicPartition
from streams.group import Coordinator, CoordinatorConfig
from streams.protocol.error_codes import ErrorCode
from streams.protocol.messages import DeleteRecords, Fetch, FetchResponse

PARTITIONS = [TopicPartition("words", number) for number in range(4)]
P0, P1 = PARTITIONS[:2]


def machine(**limits):
    topics = Topics(Storages())
    coordinator = Coordinator(CoordinatorConfig(), Random(1), AssignableTopics(topics))
    made = Broker(topics, coordinator, handlers=HANDLERS, fetch_sessions=FetchSessions(Random(2), **limits))
    made.topics.create("words", len(PARTITIONS))
    return made


def append(broker, partition, count=1):
    broker.append(partition, [Block([None] * count, [b"v"] * count, [0] * count)], 0)


def ask(broker, now_ms=0, **settings) -> FetchResponse:
    answers: list[FetchResponse] = []
    settings.setdefault("positions", {})
    broker.handle(Fetch(max_wait_ms=0, **settings), now_ms, answers.append)
    (answer,) = answers
    return answer


def begun(broker, positions, now_ms=0) -> int:
    """The id of a new session."""
    return ask(broker, now_ms, positions=positions, session_epoch=0).session_id


def test_next_fetch_is_told_only_what_is_new():
    broker = machine()
    session = begun(broker, dict.fromkeys(PARTITIONS, 0))
    append(broker, P1)

    told = ask(broker, session_id=session, session_epoch=1)
    moved = ask(broker, session_id=session, session_epoch=2, positions={P1: 1})
    again = ask(broker, session_id=session, session_epoch=3)

    assert list(told.partitions) == [P1]
    assert (moved.partitions, again.partitions) == ({}, {})


def test_records_come_again_until_another_position_is_named():
    broker = machine()
    append(broker, P0)
    session = begun(broker, {P0: 0})

    assert list(ask(broker, session_id=session, session_epoch=1).partitions) == [P0]


def test_highest_epoch_is_followed_by_the_first_on_both_sides():
    broker, client, state = machine(), FetchSession(), PartitionState()
    client.on_response(ask(broker, **client.begin({P0: Asked(state, 0)})._asdict()), 0)
    (session,) = broker.fetch_sessions._by_id.values()
    client._epoch = session.epoch = 0x7FFF_FFFF

    told = ask(broker, **client.again()._asdict())
    client.on_response(told, 0)

    assert told.error is ErrorCode.NONE
    assert client.again().session_epoch == session.epoch == 1


def test_forgotten_partitions_are_not_read():
    broker = machine()
    session = begun(broker, {P0: 0, P1: 0})

    ask(broker, session_id=session, session_epoch=1, forgotten=[P0])
    append(broker, P0)

    assert ask(broker, session_id=session, session_epoch=2).partitions == {}
    assert broker.fetch_sessions.partitions_of(session) == {P1}


def test_session_of_which_all_is_forgotten_ends():
    broker = machine()
    session = begun(broker, {P0: 0})

    assert ask(broker, session_id=session, session_epoch=1, forgotten=[P0]) == FetchResponse({})
    assert len(broker.fetch_sessions) == 0


@pytest.mark.parametrize(
    ("session_id", "epoch", "error"),
    [(-1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND), (0, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH)],
)
def test_unknown_session_and_wrong_epoch_are_refused(session_id, epoch, error):
    broker = machine()
    session = begun(broker, {P0: 0})

    answer = ask(broker, session_id=session + session_id, session_epoch=epoch)

    assert answer == FetchResponse({}, error)


@pytest.mark.parametrize("epoch", [-1, 0])
def test_full_fetch_ends_the_session_that_it_names(epoch):
    broker = machine()
    session = begun(broker, {P0: 0})

    ask(broker, session_id=session, session_epoch=epoch, positions={P0: 0})

    assert ask(broker, session_id=session, session_epoch=1).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(broker.fetch_sessions) == epoch + 1


@pytest.mark.parametrize("limits", [{"max_sessions": 2}, {"max_places": 5}])
def test_new_session_takes_the_place_of_one_that_has_rested(limits):
    """Two sessions fit; the third gets none until the first has rested for two minutes."""
    broker = machine(**limits)
    first = begun(broker, {P0: 0, P1: 0})
    second = begun(broker, {P0: 0, P1: 0}, now_ms=60_000)

    assert begun(broker, {P0: 0, P1: 0}, now_ms=119_999) == 0
    third = begun(broker, {P0: 0, P1: 0}, now_ms=120_000)

    sessions = broker.fetch_sessions
    assert [bool(sessions.partitions_of(one)) for one in (first, second, third)] == [False, True, True]


def test_session_that_grows_beyond_the_limit_ends():
    broker = machine(max_places=3)
    session = begun(broker, {P0: 0})

    answer = ask(broker, session_id=session, session_epoch=1, positions=dict.fromkeys(PARTITIONS, 0))

    assert answer.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert broker.fetch_sessions.mark(PARTITIONS) == {}


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("in_session", [False, True])
def test_fetch_that_waits_is_woken_by_records_and_by_the_end_of_its_topic(by_id, in_session):
    broker, answers = machine(), []
    p0, p1 = map(broker.topics.by_name["words"].by_id, (0, 1)) if by_id else (P0, P1)
    session = ask(broker, positions={p0: 0, p1: 0}, session_epoch=0, by_id=by_id).session_id
    for epoch in (1, 2):
        positions = {p1: epoch - 1} if in_session else {p0: 0, p1: epoch - 1}
        place = {"session_id": session, "session_epoch": epoch} if in_session else {}
        broker.handle(Fetch(positions, 1_000, by_id=by_id, **place), 0, answers.append)
        assert len(answers) == epoch - 1
        if epoch == 1:
            append(broker, P1)
        else:
            broker.delete_topic("words", 0)

    read, ended = (answer.partitions for answer in answers)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert read[p1].high_watermark == 1
    assert [row.error for row in ended.values()] == [unknown, unknown]


def test_topic_with_the_name_of_a_deleted_one_has_another_id():
    broker = machine()
    before = broker.topics.by_name["words"]
    broker.delete_topic("words", 0)
    broker.topics.create("words", 1)
    after = broker.topics.by_name["words"]

    positions = {before.by_id(0): 0, after.by_id(0): 0, after.by_id(1): 0}
    answer = ask(broker, positions=positions, by_id=True)

    expected = [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [answer.partitions[partition].error for partition in positions] == expected


def test_session_has_names_or_ids():
    broker = machine()
    session = begun(broker, {P0: 0})

    answer = ask(broker, session_id=session, session_epoch=1, by_id=True)

    assert answer.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_next_fetch_of_a_session_ends_the_one_that_waits():
    broker, answers = machine(), []
    session = begun(broker, {P0: 0})
    broker.handle(Fetch({}, 1_000, session_id=session, session_epoch=1), 0, answers.append)

    ask(broker, session_id=session, session_epoch=2)

    assert answers == [FetchResponse({}, session_id=session)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(PARTITIONS)),
        st.tuples(st.just("delete"), st.sampled_from(PARTITIONS)),
        st.tuples(st.just("want"), st.sets(st.sampled_from(PARTITIONS), min_size=1)),
        st.tuples(st.just("seek"), st.sampled_from(PARTITIONS)),
        st.tuples(st.sampled_from(["fetch", "lose request", "lose response", "restart"]), st.none()),
    ),
    max_size=40,
)


@pytest.mark.world
@given(STEPS)
def test_client_knows_all_ends_and_reads_all_records(steps):
    """Whatever is appended, deleted, left out, sought and lost, the client's ends are those of the logs in the end."""
    broker, session = machine(), FetchSession()
    states = {partition: PartitionState() for partition in PARTITIONS}
    for state in states.values():
        state.position = 0
    wanted = set(PARTITIONS)

    def fetch(*, arrives=True, returns=True):
        changes = session.begin({p: Asked(states[p], states[p].position or 0) for p in wanted})
        if arrives:
            answer = ask(broker, **changes._asdict())
        if not (arrives and returns):
            session.on_failure()
            return
        session.on_response(answer, 0)
        for partition, row in answer.partitions.items():
            state = states[partition]
            state.know_end(row.high_watermark, 0, session.confirmation)
            state.log_start_offset = row.log_start_offset
            if row.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                state.position = broker.topics.log(partition).start_offset
            for block in row.blocks:
                state.position = max(state.position, block.offsets[-1] + 1)

    for kind, value in [*steps, ("want", set(PARTITIONS)), *[("fetch", None)] * 4]:
        match kind:
            case "append":
                append(broker, value)
            case "delete":
                broker.handle(DeleteRecords({value: -1}), 0, lambda _: None)
            case "want":
                wanted = set(value)
            case "seek":
                states[value].position = 0
            case "fetch":
                fetch()
            case "lose request":
                fetch(arrives=False)
            case "lose response":
                fetch(returns=False)
            case "restart":
                broker._fetches.sessions = FetchSessions(Random(3))

    for partition, state in states.items():
        log = broker.topics.log(partition)
        assert (state.position, state.known_end) == (log.high_watermark, log.high_watermark)
        assert state.log_start_offset == log.start_offset
