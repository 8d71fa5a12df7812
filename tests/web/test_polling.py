"""The status as the page asks for it: each time with the time of the last row that it has."""

from contextlib import ExitStack
from datetime import timedelta
from threading import Event
from typing import Any

import httpx
import pytest

from streams import EmbeddedBroker, State, Streams, StreamsBuilder, TimeWindows, Topic
from streams.web import merging, samples
from tests.web.conftest import FAST, counting, processed, send, until, words
from tests.web.test_status import amounts, halving, rows, served, status


@pytest.fixture(autouse=True)
def quick_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (samples, merging):
        monkeypatch.setattr(module, "SAMPLE_MS", 100)


class Poller:
    """Asks as the page does, and keeps the rows that it would draw."""

    def __init__(self, client: httpx.Client, url: str, scope: str) -> None:
        self.client, self.url, self.scope = client, url, scope
        self.history: list[dict[str, Any]] = []
        self.last: dict[str, Any] = {}

    def poll(self) -> dict[str, Any]:
        since = self.history[-1]["at_ms"] if self.history else 0
        self.last = status(self.client, self.url, scope=self.scope, since=since, graph=self.last.get("graph_id", ""))
        self.history += [row for row in rows(self.last["history"]) if row["at_ms"] > since]
        return self.last

    def polls(self, samples: int) -> list[dict[str, Any]]:
        """Poll until there are so many new rows, and return them."""
        start = len(self.history)
        until(lambda: self.poll() and len(self.history) >= start + samples)
        return self.history[start:]


@pytest.mark.parametrize("instances", [1, 3])
def test_each_row_is_of_all_instances(broker: EmbeddedBroker, client: httpx.Client, instances: int) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(served(broker)) for _ in range(instances)]
        page = Poller(client, servers[0][1].url, "group")
        until(lambda: len(page.poll()["tasks"]["rows"]) == 4 and len(page.last["instances"]) == instances)
        until(lambda: page.polls(1)[-1]["tasks"] == 4)
        later = page.polls(12)
        # A row is a sample of each instance: none has the tasks of some of them only.
        assert {row["tasks"] for row in later} == {4}
        assert {row["lag"] for row in later} == {0}
        times = [row["at_ms"] for row in page.history]
        assert times == sorted(set(times))


def test_a_sample_after_a_gap_is_of_no_more_intervals_than_are_kept() -> None:
    at_ms = 10_000 * merging.SAMPLE_MS
    (first, *_, last) = merging._history([[(at_ms, *range(8))]], since_ms=1)

    assert (first[0], last[0]) == (at_ms - (samples.KEPT_SAMPLES - 1) * merging.SAMPLE_MS, at_ms)
    assert len(merging._by_interval([(at_ms, *range(8))], since_ms=1)) == samples.KEPT_SAMPLES


def test_a_failed_instance_does_not_claim_that_nothing_is_left(broker: EmbeddedBroker, client: httpx.Client) -> None:
    streams = Streams(halving, application_id="app", broker=broker, **FAST)
    with streams.serve() as server:
        streams.start()
        until(lambda: streams.state is State.RUNNING)
        page = Poller(client, server.url, "instance")
        assert page.polls(2)[-1]["lag"] == 0
        send(broker, amounts, [("a", 1), ("a", 2)])
        until(lambda: page.poll()["state"] == "ERROR")
        row = page.polls(2)[-1]
        with pytest.raises(Exception, match="odd"):
            streams.close()

    assert (row["lag"], row["time_lag_ms"]) == (None, None)
    (failure,) = page.last["failures"]
    assert (failure["is_fatal"], failure["sent_to"]) == (True, "")


def test_an_instance_that_went_away_is_named_and_the_others_go_on(broker: EmbeddedBroker, client: httpx.Client) -> None:
    with served(broker) as (_, server), ExitStack() as away:
        _, other = away.enter_context(served(broker))
        page = Poller(client, server.url, "group")
        until(lambda: [row["state"] for row in page.poll()["instances"]] == ["RUNNING"] * 2)
        other.close()
        until(lambda: page.poll()["instances"][1]["error"])
        assert page.polls(2)
        away.close()
        until(lambda: [row["state"] for row in page.poll()["instances"]] == ["RUNNING"])
        until(lambda: page.polls(1)[-1]["tasks"] == 4)


def test_while_stores_are_restored_the_lag_is_unknown(broker: EmbeddedBroker, client: httpx.Client) -> None:
    with served(broker) as (streams, _):
        send(broker, words, [(f"k{number}", "x") for number in range(40)])
        until(lambda: processed(streams) == 40)
    may_go_on = Event()
    again = Streams(counting, application_id="app", broker=broker, on_restore=lambda *_: may_go_on.wait(), **FAST)
    with again.serve() as server:
        again.start()
        page = Poller(client, server.url, "instance")
        until(lambda: any(row["done"] for row in page.poll()["restoring"]))
        assert page.last["state"] == "REBALANCING"
        assert page.polls(1)[-1]["lag"] is None
        may_go_on.set()
        until(lambda: page.polls(1)[-1]["lag"] == 0)
        assert (page.last["restoring"], page.last["state"]) == ([], "RUNNING")
        again.close()


def test_records_of_a_repartition_topic_do_not_come_in_again(broker: EmbeddedBroker, client: httpx.Client) -> None:
    def by_length(builder: StreamsBuilder) -> None:
        builder.stream(words).group_by(lambda key, value: value).count("lengths").to_stream().to(
            Topic("out", key=str, value=int)
        )

    broker.create_topic("out", 1)
    with served(broker, by_length, cache_max_bytes=0) as (streams, server):
        before = samples.Totals.of(streams.instance)
        send(broker, words, [("a", "x")] * 30)
        until(lambda: processed(streams) == 60)
        until(lambda: samples.Totals.of(streams.instance).counts.get(("out", "out"), 0) == 30)
        counts = samples.Totals.of(streams.instance).counts
        totals = status(client, server.url)["totals"]

    assert not list(before.of_word("in"))
    assert ([count for word, count in counts.items() if word[0] == "in"], totals["processed"]) == ([30], 60)
    assert [count for word, count in counts.items() if word[0] == "out"] == [30]


def test_lost_sent_and_left_out_are_told_apart(broker: EmbeddedBroker, client: httpx.Client) -> None:
    names = Topic("names", key=str, value=str, partitions=2)

    def topology(builder: StreamsBuilder) -> None:
        halves = builder.stream(amounts).map_values(lambda value: 4 // (value - 3))
        halves.join(builder.table(names), lambda half, name: name).to(Topic("joined", key=str, value=str))
        halves.group_by_key().windowed_by(TimeWindows.of(timedelta(milliseconds=1))).count("per-ms")

    for topic in ("names", "joined", "failed"):
        broker.create_topic(topic, 2)
    settings = {"processing_exception_handler": "continue", "errors_dead_letter_queue_topic_name": "failed"}
    with served(broker, topology, **settings) as (streams, server):
        send(broker, amounts, [("a", 1), ("a", 2), ("a", 3)])
        send(broker, amounts, [("a", 1)])
        until(lambda: processed(streams) == 4)
        page = status(client, server.url)

    kinds = {reason: numbers for node in page["drops"].values() for reason, numbers in node.items()}
    assert kinds == {"failed, ZeroDivisionError": [0, 1, 0], "unjoined": [0, 0, 3], "late": [1, 0, 0]}
    totals = page["totals"]
    assert (totals["lost"], totals["left_out"], totals["dead_letters"]) == (1, 3, 1)
    assert [failure["sent_to"] for failure in page["failures"]] == ["failed"]
    assert page["meanings"]["late"] == "its window has closed"
