"""``/dead-letters``: what is in the dead letter topic, and how it is sent back."""

import shlex

import pytest

from streams import EmbeddedBroker, Producer, Streams, StreamsBuilder, Topic
from streams.clients import DeadLetters
from streams.web import letters as letters_module
from tests.web.conftest import FAST, processed, running, send, until, words

out = Topic("out", key=str, value=str, partitions=4)
LETTERS = {"processing_exception_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}


def checked(word: str) -> str:
    if word == "bad":
        raise ValueError("a bad word")
    if word == "worse":
        raise LookupError("a worse\nword")
    return word


def refusing(builder: StreamsBuilder) -> None:
    builder.stream(words).map_values(checked, name="checked").to(out)


@pytest.fixture
def dead(broker: EmbeddedBroker) -> EmbeddedBroker:
    broker.create_topic("dead", 2)
    return broker


def test_letters_are_grouped_by_reason_node_and_line_with_the_command_for_them(dead, client):
    with running(dead, refusing, **LETTERS) as streams, streams.serve() as server:
        send(dead, words, [("a", "bad"), ("b", "bad"), ("c", "worse"), ("d", "good")])
        until(lambda: processed(streams) == 4)
        until(lambda: client.get(f"{server.url}/dead-letters").json()["letters"] == 3)
        found = client.get(f"{server.url}/dead-letters").json()

        assert (found["topic"], found["redriven"], found["is_complete"], found["more_groups"]) == ("dead", 0, True, 0)
        first, second = found["groups"]
        assert (first["reason"], first["node"], first["letters"]) == ("ValueError", "checked", 2)
        assert (second["reason"], second["message"], second["sources"]) == ("LookupError", "a worse", ["words"])
        assert 'raise ValueError("a bad word")' in first["line"]
        assert shlex.split(first["redrive"]) == [
            *("streams", "dlq", "redrive", "dead", "--reason=ValueError", "--node=checked", "--state-dir", "DIR")
        ]
        assert first["show"].startswith(f"streams dlq show dead {first['first']}")

        DeadLetters(dead, "dead").redrive(lambda letter: letter.reason == "LookupError")
        until(lambda: client.get(f"{server.url}/dead-letters").json()["letters"] == 4)
        found = client.get(f"{server.url}/dead-letters").json()
        assert [(group["letters"], group["redriven"]) for group in found["groups"]] == [(2, 0), (2, 1)]


def test_only_the_last_letters_and_the_largest_groups_are_read(dead, client, monkeypatch):
    monkeypatch.setattr(letters_module, "MAX_LETTERS", 4)
    monkeypatch.setattr(letters_module, "MAX_GROUPS", 1)
    with running(dead, refusing, **LETTERS) as streams, streams.serve() as server:
        send(dead, words, [(str(number), "bad" if number % 3 else "worse") for number in range(40)])
        until(lambda: processed(streams) == 40)
        until(lambda: sum(map(len, DeadLetters(dead, "dead").offsets().values())) == 40)
        found = client.get(f"{server.url}/dead-letters").json()
        assert (found["letters"], found["is_complete"]) == (4, False)
        assert len(found["groups"]) + found["more_groups"] <= 2
        assert len(found["groups"]) == 1


def test_a_header_that_a_terminal_would_obey_is_in_no_command(dead, client):
    bytes_topic = Topic("dead", key=bytes, value=bytes, partitions=2)
    with running(dead, refusing, **LETTERS) as streams, streams.serve() as server:
        with Producer(dead) as producer:
            for reason in (b"x.\x1b[201~rm", b"x.$(rm -rf ~)"):
                producer.send(bytes_topic, b"v", key=b"k", headers=[("__streams.errors.exception", reason)])
        groups = client.get(f"{server.url}/dead-letters").json()["groups"]
        commands = {group["reason"]: group["redrive"] for group in groups}
        assert commands.pop("\x1b[201~rm") == ""
        (command,) = commands.values()
        assert shlex.split(command)[4].startswith("--reason=")


def test_an_application_without_dead_letter_topic_says_so(broker, client):
    with running(broker, refusing) as streams, streams.serve() as server:
        found = client.get(f"{server.url}/dead-letters")
        assert (found.status_code, found.json()["error"]) == (404, "NO_DEAD_LETTER_TOPIC")
        assert client.get(f"{server.url}/dead-letters?x=1").status_code == 400


def test_a_topic_that_does_not_exist_is_named(client):
    with EmbeddedBroker(auto_create_topics=False) as broker:
        # It is created with the start.
        streams = Streams(refusing, application_id="app", broker=broker, **FAST | LETTERS)
        with streams.serve() as server:
            found = client.get(f"{server.url}/dead-letters")
    assert (found.status_code, found.json()["error"]) == (404, "NO_DEAD_LETTER_TOPIC")
    assert "'dead'" in found.json()["message"]
