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
        until(lambda: client.get(f"{server.url}/dead-letters").json().get("letters") == 3)
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
        until(lambda: client.get(f"{server.url}/dead-letters").json().get("letters") == 4)
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


# --- their way back -----------------------------------------------------------------------

TOKEN = {"authorization": "Bearer s3cret"}


def fixable(broken: set[str]):
    """A topology that refuses the words that are broken at the moment."""

    def passed(word: str) -> str:
        if word in broken:
            raise ValueError(f"a {word} word")
        return word

    return lambda builder: builder.stream(words).map_values(passed, name="checked").to(out)


def test_letters_are_planned_then_sent_once_while_the_application_runs(dead, client):
    broken = {"bad"}
    with running(dead, fixable(broken), **LETTERS) as streams, streams.serve(token="s3cret") as server:
        url = f"{server.url}/dead-letters/redrive"
        send(dead, words, [("a", "bad"), ("b", "bad"), ("c", "good")])
        until(lambda: client.get(f"{server.url}/dead-letters").json().get("letters") == 2)
        [group] = client.get(f"{server.url}/dead-letters").json()["groups"]
        of_group = {name: group[name] for name in ("reason", "node", "line")}

        plan = client.post(url, json=of_group, headers=TOKEN).json()
        assert (plan["executed"], plan["letters"], plan["refused"], plan["is_complete"]) == (False, 2, {}, True)
        assert client.post(url, json={**of_group, "line": "elsewhere.py:1"}, headers=TOKEN).json()["letters"] == 0
        one = client.post(url, json={"place": group["first"], "key": "zz"}, headers=TOKEN).json()
        assert one["letters"] == 0
        assert client.get(f"{server.url}/dead-letters").json()["redriven"] == 0

        broken.clear()
        done = client.post(url, json={**of_group, "execute": True}, headers=TOKEN).json()
        assert (done["executed"], done["letters"], sum(done["sent"].values())) == (True, 2, 2)
        assert done["sent"].keys() <= {f"words-{number}" for number in range(4)}
        again = client.post(url, json={"execute": True}, headers=TOKEN).json()
        assert (again["letters"], again["sent"]) == (0, {})
        until(lambda: processed(streams) == 5)
        assert client.get(f"{server.url}/dead-letters").json()["redriven"] == 2


def test_a_letter_that_fails_again_and_again_is_left_with_the_reason(dead, client):
    with running(dead, refusing, **LETTERS) as streams, streams.serve(token="s3cret") as server:
        url = f"{server.url}/dead-letters/redrive"
        send(dead, words, [("a", "bad")])
        for number in (1, 2):
            until(lambda: client.get(f"{server.url}/dead-letters").json().get("letters") == number)  # noqa: B023
            assert client.post(url, json={"execute": True}, headers=TOKEN).json()["letters"] == 1
        until(lambda: client.get(f"{server.url}/dead-letters").json().get("letters") == 3)
        done = client.post(url, json={"execute": True, "max_redrives": 2}, headers=TOKEN).json()
        assert (done["letters"], list(done["refused"].values())) == (0, [1])
        assert "was re-driven 2 times" in next(iter(done["refused"]))


def test_a_letter_is_shown_with_its_record_as_the_source_reads_it(dead, client):
    with running(dead, refusing, **LETTERS) as streams, streams.serve() as server:
        send(dead, words, [("ann", "worse")])
        until(lambda: client.get(f"{server.url}/dead-letters").json().get("letters") == 1)
        place = client.get(f"{server.url}/dead-letters").json()["groups"][0]["first"]
        found = client.get(f"{server.url}/dead-letters/{place}").json()

        assert (found["key"], found["value"], found["reason"], found["redrives"]) == (
            *("'ann'", "'worse'"),
            *("LookupError", 0),
        )
        assert "Traceback" in found["stacktrace"]
        assert found["source"].startswith("words-")
        for other, status in (("0:999", 404), ("9:0", 404), ("x", 400), ("0:-1", 400), ("0:0?x=1", 400)):
            assert client.get(f"{server.url}/dead-letters/{other}").status_code == status


def test_a_redrive_without_token_or_with_a_broken_body_is_refused(dead, client):
    with running(dead, refusing, **LETTERS) as streams:
        with streams.serve() as server:
            assert client.post(f"{server.url}/dead-letters/redrive", json={}).json()["error"] == "NO_TOKEN"
        with streams.serve(token="s3cret") as server:
            url = f"{server.url}/dead-letters/redrive"
            assert client.post(url, json={"execute": True}).status_code == 401
            for body in (b"{", b"[]", b'{"rate": 0}', b'{"reson": "x"}', b'{"place": "0"}', b"\xff", b'{"execute": 1}'):
                assert client.post(url, content=body, headers=TOKEN).json()["error"] == "BAD_REQUEST", body
            assert client.post(url, content=b" " * 20_000, headers=TOKEN).status_code == 413
            assert client.get(url).status_code in (400, 405)
