"""Work for requests runs one at a time, and no longer than it may."""

import asyncio
from threading import Event

import pytest
from starlette.requests import Request

from streams.core.concurrency.threads import SystemThreads
from streams.web.answers import Refused
from streams.web.single import IsOver, Single
from tests.waiting import WATCHDOG_S


def request() -> Request:
    """A request of a client that waits."""
    return Request({"type": "http", "method": "GET", "path": "/", "headers": []}, asyncio.Event().wait)


def single() -> Single:
    return Single("it is being read", SystemThreads().signal)


async def refusal(work: Single) -> tuple[int, str]:
    with pytest.raises(Refused) as caught:
        await work.run(request(), lambda is_over: 0, 60)
    return caught.value.status, caught.value.reason


def test_a_second_request_is_refused_until_the_first_has_ended() -> None:
    async def ask() -> None:
        work, go_on = single(), Event()
        first = asyncio.ensure_future(work.run(request(), lambda is_over: go_on.wait(WATCHDOG_S), 60))
        await asyncio.sleep(0)
        assert await refusal(work) == (409, "BUSY")
        go_on.set()
        assert await first
        assert await work.run(request(), lambda is_over: 7, 60) == 7

    asyncio.run(ask())


def test_work_that_does_not_end_in_time_is_told_to_and_blocks_others_until_it_does() -> None:
    async def ask() -> None:
        work, go_on, seen = single(), Event(), list[bool]()

        def slow(is_over: IsOver) -> None:
            go_on.wait(WATCHDOG_S)
            seen.append(is_over())

        with pytest.raises(Refused, match="has not ended in time") as caught:
            await work.run(request(), slow, 0.01)
        assert caught.value.status == 503
        assert await refusal(work) == (409, "BUSY")
        go_on.set()
        while not seen:
            await asyncio.sleep(0)
        assert seen == [True]

    asyncio.run(ask())


def test_an_error_of_the_work_is_that_of_the_request_and_others_may_follow() -> None:
    def failing(is_over: IsOver) -> None:
        raise ValueError("broken")

    async def ask() -> None:
        work = single()
        with pytest.raises(ValueError, match="broken"):
            await work.run(request(), failing, 60)
        assert await work.run(request(), lambda is_over: 7, 60) == 7

    asyncio.run(ask())
