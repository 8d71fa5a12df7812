"""``POST /why``: following a key for a while over HTTP, within limits and one at a time."""

import asyncio
import threading
from datetime import timedelta

import httpx
import pytest

from streams import Streams, StreamsBuilder, TimeWindows, Topic
from streams.web import app as app_of
from streams.web.questions import MAX_QUESTION_BYTES, MAX_RECORDS, MAX_SECONDS
from tests.web.conftest import FAST, running, send, until, words

TOKEN = {"authorization": "Bearer s3cret"}
numbers = Topic("numbers", key=int, value=str, partitions=4)
out = Topic("out", key=str, value=str, partitions=4)
by_number = Topic("by-number", key=int, value=str, partitions=4)


def shouting(builder: StreamsBuilder) -> None:
    builder.stream(words).filter(lambda key, word: word != "quiet", name="loud").to(out)
    builder.stream(numbers).map_values(str.upper).to(by_number)


@pytest.fixture
def streams(broker):
    with running(broker, shouting, num_stream_threads=2) as made:
        yield made


@pytest.fixture
def server(streams):
    with streams.serve("127.0.0.1:0", token="s3cret") as made:
        yield made


def is_traced(streams: Streams) -> bool:
    programs = streams.instance.ask(lambda thread: [task.program.source_code for task in thread.tasks.values()])
    codes = [code for found in programs for code in found]
    return bool(codes) and all("forwarding" in code for code in codes)


class Asking:
    """A question that is asked in a thread of its own."""

    def __init__(self, url, timeout=60, **question):
        self.answers = []
        self.errors = []
        self.thread = threading.Thread(target=self.ask, args=(url, timeout, question))
        self.thread.start()

    def ask(self, url, timeout, question):
        try:
            self.answers.append(httpx.post(f"{url}/why", json=question, headers=TOKEN, timeout=timeout))
        except httpx.TransportError as error:
            self.errors.append(error)

    def answer(self):
        self.thread.join()
        return self.answers[0]


def test_a_key_is_followed_and_the_story_is_told(broker, streams, server, client):
    asking = Asking(server.url, key="ann", topic="out", seconds=MAX_SECONDS, limit=1)
    until(lambda: is_traced(streams))
    # The event loop answers meanwhile.
    assert client.get(f"{server.url}/live").status_code == 200
    send(broker, words, [("ann", "hello")])

    story = asking.answer().json()
    assert story["title"] == "out: 1 record of key 'ann'"
    (fact,) = story["outputs"]
    assert (fact["value"], fact["causes"][0]["topic"]) == ("'hello'", "words")
    assert "words-" in story["text"]
    until(lambda: not is_traced(streams))


def test_the_key_is_read_by_the_type_of_the_topic(broker, streams, server, client):
    asking = Asking(server.url, key="7", topic="by-number", seconds=MAX_SECONDS, limit=1)
    until(lambda: is_traced(streams))
    send(broker, numbers, [(7, "a")])
    assert asking.answer().json()["title"] == "by-number: 1 record of key 7"

    asking = Asking(server.url, key="0000000000000007", key_format="hex", topic="by-number", seconds=60, limit=1)
    until(lambda: is_traced(streams))
    send(broker, numbers, [(7, "a")])
    assert asking.answer().json()["title"] == "by-number: 1 record of key 7"


def test_the_reason_of_a_missing_record_is_told(broker, streams, server):
    asking = Asking(server.url, key="ann", seconds=MAX_SECONDS, limit=1)
    until(lambda: is_traced(streams))
    send(broker, words, [("ann", "quiet")])
    story = asking.answer().json()
    assert (story["reasons"], story["ends"][0]["node"], story["more_ends"]) == (["filtered"], "loud", 0)


def test_nothing_is_traced_after_the_time_is_over(streams, server, client):
    found = client.post(f"{server.url}/why", json={"key": "nobody", "seconds": 0.01}, headers=TOKEN).json()
    assert found["reasons"] == ["no such key"]
    assert not is_traced(streams)


def test_a_second_question_is_refused_until_the_first_is_answered(broker, streams, server, client):
    asking = Asking(server.url, key="ann", seconds=MAX_SECONDS, limit=1)
    until(lambda: is_traced(streams))
    second = client.post(f"{server.url}/why", json={"key": "bob", "seconds": 0.01}, headers=TOKEN)
    assert (second.status_code, second.json()["error"]) == (409, "BUSY")
    with streams.serve("127.0.0.1:0", token="s3cret") as other:
        second = client.post(f"{other.url}/why", json={"key": "bob", "seconds": 0.01}, headers=TOKEN)
        assert (second.status_code, second.json()["error"]) == (409, "BUSY")
    send(broker, words, [("ann", "hello")])
    assert asking.answer().status_code == 200
    assert client.post(f"{server.url}/why", json={"key": "a", "seconds": 0.01}, headers=TOKEN).status_code == 200


def test_following_ends_when_the_client_leaves(streams, server, client):
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/why", json={"key": "ann", "seconds": MAX_SECONDS}, headers=TOKEN, timeout=0.5)
    until(lambda: not is_traced(streams))
    until(
        lambda: client.post(f"{server.url}/why", json={"key": "a", "seconds": 0.01}, headers=TOKEN).status_code == 200
    )


def test_following_ends_with_the_application(broker, client):
    with running(broker, shouting) as streams:
        server = streams.serve("127.0.0.1:0", token="s3cret")
        asking = Asking(server.url, key="ann", seconds=MAX_SECONDS)
        until(lambda: is_traced(streams))
    asking.thread.join()
    assert asking.errors or asking.answers[0].status_code in (200, 503)


REFUSED = [
    ({}, 400, "BAD_REQUEST"),
    ({"key": 7}, 400, "BAD_REQUEST"),
    ({"key": "a", "more": 1}, 400, "BAD_REQUEST"),
    ({"key": "a", "seconds": MAX_SECONDS + 1}, 400, "BAD_REQUEST"),
    ({"key": "a", "seconds": 0}, 400, "BAD_REQUEST"),
    ({"key": "a", "limit": MAX_RECORDS + 1}, 400, "BAD_REQUEST"),
    ({"key": "a", "limit": 0}, 400, "BAD_REQUEST"),
    ({"key": "a", "key_format": "nope"}, 400, "BAD_REQUEST"),
    ({"key": "a", "key_format": "hex"}, 400, "BAD_KEY"),
    ({"key": "a", "topic": "by-number"}, 400, "BAD_KEY"),
    ({"key": "xyz", "key_format": "hex", "topic": "out"}, 400, "BAD_KEY"),
    ({"key": "a", "topic": "nope"}, 404, "NO_SUCH_TOPIC"),
    ({"key": "a", "node": "nope"}, 404, "NO_SUCH_TOPIC"),
    ({"key": "a" * MAX_QUESTION_BYTES}, 413, "TOO_LARGE"),
]


def test_a_question_that_is_none_is_refused(streams, server, client):
    for question, status, reason in REFUSED:
        found = client.post(f"{server.url}/why", json=question, headers=TOKEN)
        assert (found.status_code, found.json()["error"]) == (status, reason), question
    assert not is_traced(streams)


def test_broken_bodies_other_methods_and_missing_tokens_are_refused(streams, server, client):
    for body in (b"", b"{", b"\xff", b'{"key": "\\ud800"}', b"[]"):
        found = client.post(f"{server.url}/why", content=body, headers=TOKEN)
        assert (found.status_code, found.json()["error"]) == (400, "BAD_REQUEST")
    assert client.get(f"{server.url}/why", headers=TOKEN).status_code == 405
    assert client.post(f"{server.url}/why", json={"key": "a"}).status_code == 401
    with streams.serve("127.0.0.1:0") as without:
        found = client.post(f"{without.url}/why", json={"key": "a"})
        assert (found.status_code, found.json()["error"]) == (403, "NO_TOKEN")


def test_a_windowed_key_is_given_without_its_window(broker):
    def windowed(builder: StreamsBuilder) -> None:
        counts = (
            builder.stream(numbers).group_by_key().windowed_by(TimeWindows.of(timedelta(seconds=1))).count("counts")
        )
        counts.to_stream().to("per-window")

    with running(broker, windowed, cache_max_bytes=0) as streams, streams.serve(token="s3cret") as server:
        asking = Asking(server.url, key="7", topic="per-window", seconds=MAX_SECONDS, limit=1)
        until(lambda: is_traced(streams))
        send(broker, numbers, [(7, "a")])
        assert asking.answer().json()["title"] == "per-window: 1 record of key 7"


def test_an_application_that_does_not_run_cannot_be_asked(broker):
    streams = Streams(shouting, application_id="app", broker=broker, **FAST)

    async def ask():
        transport = httpx.ASGITransport(app_of(streams, token="s3cret"))
        async with httpx.AsyncClient(transport=transport, base_url="http://app.example") as client:
            return await client.post("/why", json={"key": "a"}, headers=TOKEN)

    found = asyncio.run(ask())
    assert (found.status_code, found.json()["error"]) == (503, "NOT_RUNNING")
