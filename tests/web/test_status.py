"""The status of an instance and of its group, which the page and ``streams top`` show."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from streams import EmbeddedBroker, Producer, State, Streams, StreamsBuilder, TimeWindows, Topic
from streams.web import WebServer
from streams.web.merging import has_fields_of
from tests.web.conftest import FAST, counting, processed, running, send, until, words

amounts = Topic("amounts", key=str, value=int, partitions=2)


def halved(value: int) -> int:
    if value % 2:
        raise ValueError(f"an odd amount: {value}")
    return value // 2


def halving(builder: StreamsBuilder) -> None:
    builder.stream(amounts).map_values(halved).group_by_key().count("kept")


@contextmanager
def served(broker: EmbeddedBroker, topology: Any = counting, **settings: Any) -> Iterator[tuple[Streams, WebServer]]:
    """An application that is served from before its start, so that its address is known to the group at once."""
    streams = Streams(topology, application_id="app", broker=broker, **FAST | settings)
    server = streams.serve()
    with streams:
        until(lambda: streams.state is State.RUNNING)
        yield streams, server


def rows(table: dict) -> list[dict]:
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def status(client: httpx.Client, url: str, **arguments: object) -> dict:
    answer = client.get(f"{url}/status", params=arguments)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_records_tasks_and_nodes_are_counted(broker, client):
    with served(broker) as (streams, server):
        send(broker, words, [(f"k{number}", "x") for number in range(50)])
        until(lambda: processed(streams) == 50)
        found = status(client, server.url)

    assert (found["application_id"], found["state"], found["scope"]) == ("app", "RUNNING", "instance")
    tasks = rows(found["tasks"])
    assert [task["task"] for task in tasks] == ["0_0", "0_1", "0_2", "0_3"]
    assert sum(task["processed"] for task in tasks) == 50
    assert {task["lag"] for task in tasks} == {0}
    source, counted = (next(row for name, row in found["nodes"].items() if part in name) for part in ("SOURCE", "kept"))
    assert (source[:2], counted[0]) == ([50, 50], 50)
    assert [thread["tasks"] for thread in rows(found["threads"])] == [4]
    assert found["totals"]["processed"] == 50


def test_what_is_measured_at_a_source_is_known_behind_operators_that_pass_each_record_on(broker, client):
    def chain(builder: StreamsBuilder) -> None:
        stream = builder.stream(words).map_values(str.upper)
        stream.filter(lambda key, value: value == "Y").to(Topic("out", key=str, value=str))
        stream.filter(lambda key, value: False).map_values(str.lower).group_by_key().count("none")

    broker.create_topic("out", 4)
    with served(broker, chain) as (streams, server):
        send(broker, words, [("a", "x"), ("a", "y"), ("b", "z")])
        until(lambda: processed(streams) == 3)
        until(lambda: status(client, server.url)["nodes"]["KSTREAM-SINK-0000000003"][0] == 1)
        found = status(client, server.url)

    nodes = found["nodes"]
    assert nodes["KSTREAM-MAPVALUES-0000000001"][:2] == [3, 3]
    # What a filter passes on is known where a sink counts it, and not guessed elsewhere.
    assert nodes["KSTREAM-FILTER-0000000002"][:2] == [3, 1]
    assert nodes["KSTREAM-FILTER-0000000004"][:2] == [3, None]


def test_failures_are_kept_with_node_line_and_count(broker, client):
    settings = {"processing_exception_handler": "continue", "errors_dead_letter_queue_topic_name": "failed"}
    broker.create_topic("failed", 1)
    with served(broker, halving, **settings) as (streams, server):
        send(broker, amounts, [("a", number) for number in range(6)])
        until(lambda: processed(streams) == 6)
        found = status(client, server.url)

    (failure,) = found["failures"]
    assert (failure["error"], failure["message"], failure["count"]) == ("ValueError", "an odd amount: 5", 3)
    assert "test_status.py" in failure["place"]
    assert failure["place"].endswith('raise ValueError(f"an odd amount: {value}")')
    assert "MAPVALUES" in failure["node"]
    assert found["totals"] | {"in_rate": 0, "out_rate": 0} == {
        "processed": 6, "lost": 0, "left_out": 0, "dead_letters": 3, "failures": 3, "in_rate": 0, "out_rate": 0,
    }  # fmt: skip
    assert found["drops"] == {failure["node"]: {"failed, ValueError": [0, 3, 0]}}


def test_a_failure_that_ends_a_thread_is_kept_too(broker, client):
    streams = Streams(halving, application_id="app", broker=broker, **FAST)
    server = streams.serve()
    streams.start()
    send(broker, amounts, [("a", 1)])
    until(lambda: streams.failure is not None)
    (failure,) = status(client, server.url)["failures"]
    with pytest.raises(Exception, match="odd"):
        streams.close()

    assert (failure["is_fatal"], failure["error"], failure["task"] is not None) == (True, "ValueError", True)
    assert "test_status.py" in failure["place"]


def test_the_graph_is_sent_once_and_is_the_same_each_time(broker, client):
    with served(broker) as (_streams, server):
        first = status(client, server.url)
        again = status(client, server.url)
        known = status(client, server.url, graph=first["graph_id"])

    assert first["graph"] == again["graph"]
    assert known["graph"] is None
    assert len(known["edges"]) == len(first["graph"]["all"]["edges"])


def test_secrets_are_shown_as_set(broker, client):
    secret = {"sasl_username": "u", "sasl_password": "hidden-word", "security_protocol": "sasl_plaintext"}
    streams = Streams(counting, application_id="app", bootstrap_servers="127.0.0.1:1", **secret)
    with streams.serve() as server:
        answer = client.get(f"{server.url}/status")
    streams.close()

    assert "hidden-word" not in answer.text
    shown = {found["name"]: found["value"] for found in answer.json()["settings"]}
    assert (shown["sasl_password"], shown["sasl_username"]) == ("(set)", "u")


def test_the_group_is_asked_and_added_up(broker, client):
    with served(broker) as (one, server), served(broker) as (two, _):
        until(lambda: one.tasks() and two.tasks())
        send(broker, words, [(f"k{number}", "x") for number in range(80)])
        until(lambda: processed(one, two) == 80)
        until(lambda: len(status(client, server.url, scope="group")["tasks"]["rows"]) == 4)
        until(
            lambda: (
                [each["state"] for each in status(client, server.url, scope="group")["instances"]] == ["RUNNING"] * 2
            )
        )
        found = status(client, server.url, scope="group")
        alone = status(client, server.url)

    assert found["totals"]["processed"] == 80
    assert len(found["threads"]["rows"]) == 2
    assert {task["thread"] for task in rows(found["tasks"])} == {0, 1}
    assert len(alone["tasks"]["rows"]) < 4
    assert [each["is_local"] for each in found["instances"]] == [True, False]


def test_an_instance_that_does_not_answer_is_named(broker, client):
    with served(broker) as (one, server), running(broker) as two:
        until(lambda: len(status(client, server.url)["instances"]) == 2)
        until(lambda: one.state is two.state is State.RUNNING)
        found = status(client, server.url, scope="group")

    assert "serves no HTTP" in found["instances"][1]["error"]
    assert found["instances"][0]["error"] is None


def test_an_instance_of_another_version_is_named_and_left_out_of_the_numbers(broker, client):
    """As while versions are exchanged: its status has no field that a later one has, or another column."""

    class Older(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"state": "RUNNING", "tasks": {"columns": ["task"], "rows": [["0_0"]]}}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Older) as older:
        thread = Thread(target=older.serve_forever)
        thread.start()
        place = f"127.0.0.1:{older.server_port}"
        with served(broker) as (one, server), running(broker, application_server=place) as two:
            until(lambda: one.tasks() and two.tasks() and len(status(client, server.url)["instances"]) == 2)
            group = status(client, server.url, scope="group")
            own = status(client, server.url)
        older.shutdown()
        thread.join()

    assert "another version" in group["instances"][1]["error"]
    assert group["tasks"]["rows"] == own["tasks"]["rows"]


def test_a_status_with_another_column_is_of_another_version(broker, client):
    with served(broker) as (_, server):
        own = status(client, server.url)
    threads = own["threads"] | {"columns": own["threads"]["columns"][1:]}

    assert has_fields_of(own, own)
    assert not has_fields_of(own | {"threads": threads}, own)
    assert not has_fields_of(own | {"more": 1}, own)


@pytest.mark.parametrize("query", ["scope=all", "since=x", "nothing=1"])
def test_arguments_that_are_none_are_refused(broker, client, query):
    with served(broker) as (_streams, server):
        assert client.get(f"{server.url}/status?{query}").status_code == 400


def test_the_page_is_served_with_its_files_and_nothing_of_others(broker, client):
    with served(broker) as (_streams, server):
        page = client.get(server.url)
        script = client.get(f"{server.url}/page/page.js")
        missing = client.get(f"{server.url}/page/..%2fguard.py")

    assert page.headers["content-type"].startswith("text/html")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert missing.status_code == 404
    assert "://" not in page.text


def test_without_the_token_the_page_is_refused_but_asks_for_it(broker, client):
    with running(broker) as streams, streams.serve("0.0.0.0:0", token="word") as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        page, data = client.get(url), client.get(f"{url}/status")
        given = client.get(f"{url}/status", headers={"authorization": "Bearer word"})

    assert (page.status_code, data.status_code, given.status_code) == (401, 401, 200)
    assert 'id="token-form"' in page.text
    assert "app" not in data.text


def test_how_late_records_were_is_added_up_over_the_group(broker, client):
    def windowed(builder: StreamsBuilder) -> None:
        builder.stream(words).group_by_key().windowed_by(TimeWindows.of(timedelta(milliseconds=10))).count("kept")

    with served(broker, windowed) as (one, server), served(broker, windowed) as (two, _):
        until(lambda: [len(each.tasks()) for each in (one, two)] == [2, 2])
        with Producer(broker) as producer:
            for partition in range(4):
                for time_ms in (1_000, 985, 5):
                    producer.send(words, "x", key="k", timestamp_ms=time_ms, partition=partition)
        until(lambda: processed(one, two) == 12)
        group = status(client, server.url, scope="group")
        shown = str(one.charts())

    # Windows that end at 990 and 10 are late by 10 and 990 ms when stream time is 1,000.
    (of_node,) = group["late"].values()
    assert of_node == {"100": [4], "1000": [4]}
    assert "kept: 4 late records" in shown
    assert "sub-topology 0: records by partition, the largest 1.0 times the average" in shown


def test_the_stack_of_a_thread_is_told_with_what_its_tasks_wait_for(broker, client):
    """By its own instance, and by another one, which asks it."""
    is_over = Event()

    def held(value: str) -> str:
        is_over.wait()
        return value

    def holding(builder: StreamsBuilder) -> None:
        builder.stream(words).map_values(held).group_by_key().count("kept")

    with served(broker, holding) as (one, server), served(broker, holding) as (two, other):
        until(lambda: one.tasks() and two.tasks())
        until(lambda: len(status(client, other.url)["instances"]) == 2)
        send(broker, words, [(f"k{number}", "x") for number in range(80)])
        name = rows(status(client, server.url)["threads"])[0]["name"]
        until(lambda: "in held" in client.get(f"{server.url}/threads/{name}").json()["stack"])
        told = client.get(f"{other.url}/threads/{name}").json()
        missing = client.get(f"{server.url}/threads/nobody")
        is_over.set()

    assert "is_over.wait()" in told["stack"]
    assert told["name"] == name
    assert {"stream_time_ms", "waits_for", "waited_ms"} <= told["tasks"][0].keys()
    assert (missing.status_code, missing.json()["error"]) == (404, "NO_SUCH_THREAD")


def test_a_stack_needs_the_token_where_reading_does(broker, client):
    with running(broker) as streams, streams.serve("0.0.0.0:0", token="word") as server:
        url = f"{server.url.replace('0.0.0.0', '127.0.0.1')}/threads/any"
        refused = client.get(url)
        allowed = client.get(url, headers={"authorization": "Bearer word"})

    assert (refused.status_code, allowed.status_code) == (401, 404)
