"""What the program writes of log messages: not one per record, and nothing hidden for ever."""

import logging

import pytest

from streams import VirtualClock
from streams.cli.program import MESSAGES_OF_A_KIND, MessageHandler, _logging


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def logger(clock):
    handler = MessageHandler(MESSAGES_OF_A_KIND, clock)
    made = logging.Logger("streams.tried")
    made.addHandler(handler)
    yield made
    handler.close()


def written(capsys):
    return capsys.readouterr().err.splitlines()


def test_a_kind_of_message_is_shown_so_often_in_a_minute_and_again_in_the_next(logger, clock, capsys):
    for number in range(25):
        logger.warning("record %d is bad", number)
    logger.warning("something else")

    first = written(capsys)
    assert first == [*(f"streams: record {number} is bad" for number in range(10)), "streams: something else"]

    clock.advance(60_000)
    logger.warning("record %d is bad", 100)

    assert written(capsys) == [
        "streams: 15 more messages of these kinds; --debug shows them all",
        "streams: record 100 is bad",
    ]


def test_what_was_left_out_is_said_at_the_end(logger, capsys):
    for number in range(12):
        logger.warning("record %d is bad", number)
    logger.handlers[0].close()

    assert written(capsys)[-1] == "streams: 2 more messages of these kinds; --debug shows them all"


def test_messages_of_asyncio_are_limited_too(capsys):
    with _logging(is_debug=False):
        for number in range(15):
            logging.getLogger("asyncio").error("socket.accept() out of system resource\nsocket: fd=%s", number)

    lines = [line for line in written(capsys) if line.startswith("streams: ")]
    assert len(lines) == MESSAGES_OF_A_KIND + 1
    assert lines[-1].startswith("streams: 5 more messages")
