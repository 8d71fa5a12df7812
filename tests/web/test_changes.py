"""Changes of a store, pushed: over HTTP as events, in Python as an iterator."""

import asyncio
import contextlib
import json
import threading
from collections import Counter

import httpx
import pytest

from streams import UnknownStateStoreError
from streams.runtime import StoreChanges
from streams.web import changes as changes_module
from streams.web.changes import MAX_FOLLOWERS, Follower
from tests.waiting import WATCHDOG_S
from tests.web.conftest import processed, running, send, until, words

LIMITS = httpx.Limits(max_connections=None)


def events(lines):
    """Yield (event, data) of a stream of events."""
    name = None
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_changes_are_sent_as_they_are_committed_and_can_be_of_one_key(broker, client):
    with running(broker) as streams, streams.serve() as server:
        send(broker, words, [("before", "x")])
        until(lambda: processed(streams) == 1 and streams.store("kept").get("before"))
        until(lambda: streams.metrics.get("commit-total"))
        with client.stream("GET", f"{server.url}/stores/kept/changes", params={"key": "ann"}) as followed:
            assert followed.headers["content-type"].startswith("text/event-stream")
            lines = followed.iter_lines()
            assert next(lines) == ": follows"
            send(broker, words, [("ann", "x"), ("bob", "y")])
            name, found = next(events(lines))
            assert (name, found["key"], found["value"], found["timestamp"]) == ("change", "ann", 1, 0)
            send(broker, words, [("bob", "x"), ("ann", "y")])
            assert next(events(lines))[1]["value"] == 2
        until(lambda: not [one for one in threading.enumerate() if one.name.endswith("-changes")])


def test_clients_that_ask_at_once_do_not_exceed_the_limit(broker):
    """A limit that is checked before an await holds only if the place is taken there too."""

    async def statuses(url):
        async with contextlib.AsyncExitStack() as stack, httpx.AsyncClient(timeout=WATCHDOG_S, limits=LIMITS) as client:
            asked = (stack.enter_async_context(client.stream("GET", url)) for _ in range(3 * MAX_FOLLOWERS))
            return Counter(response.status_code for response in await asyncio.gather(*asked))

    with running(broker) as streams, streams.serve() as server:
        url = f"{server.url}/stores/kept/changes"
        assert asyncio.run(statuses(url)) == {200: MAX_FOLLOWERS, 503: 2 * MAX_FOLLOWERS}
        # Places are free again when the clients have gone, also of one that was refused for another reason.
        until(lambda: httpx.get(f"{url}?key=1&key=2").status_code == 400)
        until(lambda: asyncio.run(statuses(url)) == {200: MAX_FOLLOWERS, 503: 2 * MAX_FOLLOWERS})


def test_changes_are_iterated_until_the_application_closes(broker):
    found = []
    with running(broker) as streams:
        changes = streams.changes("kept")
        follower = threading.Thread(target=lambda: found.extend(changes))
        follower.start()
        send(broker, words, [("ann", "x"), ("bob", "y")])
        until(lambda: len(found) == 2)
        assert {(change.entry.key, change.entry.value) for change in found} == {("ann", 1), ("bob", 1)}
        with pytest.raises(UnknownStateStoreError, match="no store 'nope'"):
            streams.changes("nope")
    follower.join()


def test_a_client_that_takes_nothing_is_dropped_with_what_was_in_time(broker, monkeypatch):
    monkeypatch.setattr(changes_module, "_QUEUE_CHANGES", 3)

    async def follow(streams):
        loop = asyncio.get_running_loop()
        follower = Follower(streams.instance, loop, StoreChanges.of(streams.instance, "kept"))
        follower.start()
        await asyncio.to_thread(send, broker, words, [(f"k{number}", "x") for number in range(10)])
        while not follower.is_slow:
            await asyncio.sleep(0.005)
        return [change async for change in follower.events()]

    with running(broker) as streams:
        assert len(asyncio.run(follow(streams))) == 3
