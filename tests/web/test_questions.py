"""``POST /why``: following a key for a while over HTTP, within limits and one at a time."""

import asyncio
import threading
from contextlib import ExitStack
from datetime import timedelta

import httpx
import pytest

from streams import Producer, State, Streams, StreamsBuilder, TimeWindows, Topic
from streams.core.blocks.partitioning import partition_for
from streams.runtime import others_of
from streams.web import app as app_of
from streams.web.questions import MAX_QUESTION_BYTES, MAX_RECORDS, MAX_SECONDS
from tests.waiting import WATCHDOG_S
from tests.web.conftest import FAST, processed, running, send, until, words

TOKEN = {"authorization": "Bearer s3cret"}
numbers = Topic("numbers", key=int, value=str, partitions=4)
out = Topic("out", key=str, value=str, partitions=4)
by_number = Topic("by-number", key=int, value=str, partitions=4)


def loud(builder: StreamsBuilder) -> None:
    builder.stream(words).filter(lambda key, word: word != "quiet", name="loud").to(out)


def shouting(builder: StreamsBuilder) -> None:
    loud(builder)
    builder.stream(numbers).map_values(str.upper).to(by_number)


@pytest.fixture
def streams(broker):
    with running(broker, shouting, num_stream_threads=2) as made:
        # A task that moves while a key is followed is not followed by its new thread.
        until(lambda: made.instance.ask(lambda thread: len(thread.tasks) * thread.is_ready) == [4, 4])
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

    def __init__(self, url, **question):
        self.answers = []
        self.errors = []
        self.thread = threading.Thread(target=self.ask, args=(url, question))
        self.thread.start()

    def ask(self, url, question):
        try:
            self.answers.append(httpx.post(f"{url}/why", json=question, headers=TOKEN, timeout=WATCHDOG_S))
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
    brief = httpx.Timeout(WATCHDOG_S, read=0.5)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/why", json={"key": "ann", "seconds": MAX_SECONDS}, headers=TOKEN, timeout=brief)
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


class Pair:
    """Two instances with half of the tasks each, and the questions to the first of them.

    With one sub-topology each has two of its four partitions; with more, any of them.
    """

    def __init__(self, stack, broker, topology):
        self.broker = broker
        self.apps = [Streams(topology, application_id="app", broker=broker, **FAST) for _ in range(2)]
        self.servers = [streams.serve("127.0.0.1:0", token="s3cret") for streams in self.apps]
        for streams in self.apps:
            stack.enter_context(streams)
        # An instance may also be RUNNING with tasks before it gives some of them to the other one.
        until(lambda: all(streams.state is State.RUNNING for streams in self.apps) and self.is_balanced())
        until(lambda: all(len(others_of(streams.instance)) == 1 for streams in self.apps))

    def is_balanced(self):
        one, other = (len(streams.tasks()) for streams in self.apps)
        return one == other and (one + other) % 4 == 0 and one > 0

    def owned(self, number, sub=0):
        """The partitions of a sub-topology on an instance."""
        return [task.partition for task in self.apps[number].tasks() if task.sub_topology == sub]

    def key_of(self, number, sub=0):
        """A key whose partition is on an instance."""
        owned = self.owned(number, sub)
        return next(key for key in map(str, range(100 * number, 1000)) if partition_for(key.encode(), 4) in owned)

    def ask(self, act, **question):
        """Ask the first instance, act, and end the question when both have processed what was sent."""
        before = processed(*self.apps)
        asking = Asking(self.servers[0].url, seconds=MAX_SECONDS, **question)
        until(lambda: all(map(is_traced, self.apps)))
        count = act()
        until(lambda: processed(*self.apps) == before + count or not asking.thread.is_alive())
        ended = httpx.delete(f"{self.servers[0].url}/why", headers=TOKEN, timeout=WATCHDOG_S)
        assert ended.status_code == 200
        story = asking.answer().json()
        until(lambda: not any(map(is_traced, self.apps)))
        return story

    def send(self, topic, key, value, partition=None):
        with Producer(self.broker) as producer:
            producer.send(topic, value, key=key, partition=partition)


@pytest.fixture
def stack(broker):
    with ExitStack() as made:
        yield made


def sent(*calls):
    """A function that makes the calls, and returns how many they are."""

    def act():
        for call in calls:
            call()
        return len(calls)

    return act


def test_records_of_another_instance_are_in_the_story(stack, broker):
    pair = Pair(stack, broker, loud)
    theirs = pair.key_of(1)
    # The limit is reached on the other instance, and ends the question here.
    asking = Asking(pair.servers[0].url, key=theirs, topic="out", seconds=MAX_SECONDS, limit=1)
    until(lambda: all(map(is_traced, pair.apps)))
    pair.send(words, theirs, "hello")
    story = asking.answer().json()
    assert (story["title"], story["reasons"]) == (f"out: 1 record of key '{theirs}'", [])
    assert story["outputs"][0]["causes"][0]["topic"] == "words"

    story = pair.ask(sent(lambda: pair.send(words, theirs, "quiet")), key=theirs)
    assert (story["reasons"], story["ends"][0]["node"]) == (["filtered"], "loud")
    assert "the condition of filter" in story["text"]


def test_story_goes_on_through_a_repartition_topic_to_another_instance(stack, broker):
    def by_word(builder):
        counts = builder.stream(words).group_by(lambda _, word: word, name="by-word").count("counts")
        counts.to_stream().to("counted", key=str, value=int)

    pair = Pair(stack, broker, by_word)
    # The assignment decides which of them has the first sub-topology; then the other has some of the second.
    reader = 0 if pair.owned(0) else 1
    mine, theirs = pair.key_of(reader), pair.key_of(1 - reader, sub=1)

    def act():
        pair.send(words, mine, theirs)
        return 2

    story = pair.ask(act, key=theirs)
    assert story["title"] == f"counted: 1 record of key '{theirs}'", story["text"]
    (cause,) = story["outputs"][0]["causes"][0]["causes"]
    assert (cause["topic"], cause["partition"], cause["key"]) == ("words", partition_for(mine.encode(), 4), f"'{mine}'")
    assert "topic by-word-repartition" in cause["via"]
    assert story["reasons"] == []

    # Asked for the key before the repartition: the record was read, under another key.
    story = pair.ask(act, key=mine)
    assert story["reasons"] == ["another key"], story["text"]
    told = f"topic by-word-repartition under other keys, and were read by other instances: ask for '{theirs}'"
    assert told in story["text"]


def test_partner_in_a_partition_of_another_instance_is_found(stack, broker):
    names = Topic("names", key=str, value=str, partitions=4)

    def named(builder):
        builder.stream(words).join(builder.table(names, name="names"), lambda word, name: word + name).to(out)

    pair = Pair(stack, broker, named)
    key = pair.key_of(0)
    its, mine = pair.owned(1)[0], partition_for(key.encode(), 4)

    row = sent(lambda: pair.send(names, key, "Ann", its), lambda: pair.send(words, key, "hello"))
    story = pair.ask(row, key=key, topic="out")

    (end,) = story["ends"]
    assert (end["reason"], end["numbers"]) == ("another partition", {"partition": mine, "other_partition": its})
    assert f"names-{its} offset 0 is read by task 0_{its}, this record by task 0_{mine}" in end["text"]
    assert f"puts the key into partition {mine} of 4 of names, so names-{its} offset 0 was written" in end["text"]


def test_source_records_of_a_key_in_partitions_of_two_instances_are_noted(stack, broker):
    pair = Pair(stack, broker, loud)
    one, other = pair.owned(0)[0], pair.owned(1)[0]
    story = pair.ask(
        sent(lambda: pair.send(words, "ann", "quiet", one), lambda: pair.send(words, "ann", "quiet", other)), key="ann"
    )
    (note,) = (note for note in story["notes"] if note["reason"] == "another partition")
    assert f"records of key 'ann' are in partitions {min(one, other)}, {max(one, other)} of words" in note["text"]
    assert len(story["ends"]) == 2


def test_instance_that_cannot_be_asked_is_named(stack, broker, client):
    pair = Pair(stack, broker, loud)
    question = {"key": "ann", "seconds": 0.01}
    with pair.apps[1].instance.tracing:
        story = client.post(f"{pair.servers[0].url}/why", json=question, headers=TOKEN).json()
    (note,) = (note for note in story["notes"] if note["reason"] == "not asked")
    assert "status 409" in note["text"]
    assert pair.servers[1].url.removeprefix("http://") in note["text"]
    pair.servers[1].close()
    until(lambda: not others_of(pair.apps[0].instance)[0].application_server)
    story = client.post(f"{pair.servers[0].url}/why", json=question, headers=TOKEN).json()
    assert "it serves no HTTP" in story["text"]
    ended = client.delete(f"{pair.servers[0].url}/why", headers=TOKEN)
    assert ended.json() == {"ended": False}
    assert client.delete(f"{pair.servers[0].url}/why").status_code == 401


def test_tasks_that_move_to_an_instance_that_joins_are_named(broker):
    """Over TCP, as on a cluster: the second instance joins while a key is followed, and takes half of the tasks."""
    for topic in (words, out):
        broker.create_topic(topic.name, 4)
    with broker.serve("127.0.0.1:0") as served, ExitStack() as stack:
        settings = FAST | {"bootstrap_servers": served.bootstrap_servers}
        one, two = (Streams(loud, application_id="app", **settings) for _ in range(2))
        server = one.serve("127.0.0.1:0", token="s3cret")
        two.serve("127.0.0.1:0", token="s3cret")
        stack.enter_context(one)
        until(lambda: one.state is State.RUNNING and len(one.tasks()) == 4)
        asking = Asking(server.url, key="ann", topic="out", seconds=MAX_SECONDS)
        until(lambda: is_traced(one))

        stack.enter_context(two)
        until(lambda: one.state is two.state is State.RUNNING and len(one.tasks()) == len(two.tasks()) == 2)
        until(lambda: others_of(one.instance))
        ended = httpx.delete(f"{server.url}/why", headers=TOKEN, timeout=WATCHDOG_S)
        assert ended.json() == {"ended": True}

        moved = ", ".join(str(task) for task in sorted(two.tasks()))
        notes = {note["reason"]: note["text"] for note in asking.answer().json()["notes"]}
        assert notes["task moved"].startswith(f"tasks {moved} left this instance while the key was followed")
        assert notes["not asked"].endswith("are not in this story: it joined the group after the question")


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
    ({"key": "a", "scope": "nope"}, 400, "BAD_REQUEST"),
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

    with running(broker, windowed) as streams, streams.serve(token="s3cret") as server:
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
