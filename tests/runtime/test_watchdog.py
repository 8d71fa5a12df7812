"""Threads that do not turn are logged, with their stack, once."""

import logging
from threading import Event

import pytest

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic
from streams.core.clock import VirtualClock
from streams.core.concurrency.threads import SystemSignal
from streams.core.notices import Notices
from streams.runtime.threads.watchdog import Watchdog
from tests import waiting

words = Topic("words", key=str, value=str)
FAST = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10}


def until(holds):
    waiting.until(holds, lambda: Event().wait(0.005))


def test_a_thread_that_hangs_is_logged_once_a_minute_until_it_turns_again(caplog):
    caplog.set_level(logging.INFO, "streams")
    clock, turns = VirtualClock(), {"one": 0, "two": 0}
    watchdog = Watchdog(1_000, clock, lambda: turns, lambda name: f"the stack of {name}", SystemSignal(), Notices())
    for _ in range(4):
        clock.advance(20_000)
        turns["two"] = clock.monotonic_ms()
        watchdog.look()
    turns["one"] = clock.monotonic_ms()
    watchdog.look()
    del turns["two"]
    clock.advance(1_001)
    watchdog.look()

    assert [record.getMessage() for record in caplog.records] == [
        "one: no iteration of its loop has begun for 20000 ms; it is at:\nthe stack of one",
        "one: no iteration of its loop has begun for 60000 ms; it is at:\nthe stack of one",
        "one: its loop continues, after 80 s",
        "one: no iteration of its loop has begun for 1001 ms; it is at:\nthe stack of one",
    ]


@pytest.mark.parametrize("watchdog_ms", [20, 0])
def test_the_line_at_which_a_thread_hangs_is_logged(caplog, watchdog_ms):
    entered, leave = Event(), Event()

    def hangs(value: str) -> bool:
        entered.set()
        return leave.wait()

    def topology(builder: StreamsBuilder) -> None:
        builder.stream(words).filter(lambda key, value: hangs(value)).to("out")

    def lines():
        return [record.getMessage() for record in caplog.records if "no iteration" in record.getMessage()]

    with EmbeddedBroker() as broker:
        with Producer(broker) as producer:
            producer.send(words, "x", key="k")
        with Streams(topology, application_id="app", broker=broker, watchdog_ms=watchdog_ms, **FAST) as streams:
            until(entered.is_set)
            if watchdog_ms:
                # Other iterations may take longer than 20 ms too on a busy machine.
                until(lambda: any("return leave.wait()" in line and "in hangs" in line for line in lines()))
            leave.set()
            until(lambda: streams.metrics.get("process-total") == 1)

    assert watchdog_ms or not lines()
