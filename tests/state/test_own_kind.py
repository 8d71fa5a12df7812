"""A kind of one's own, defined in this module alone, works wherever a store does."""

import json
from datetime import timedelta

import pytest

from streams import (
    EmbeddedBroker,
    InvalidStateStoreError,
    KeyValueStore,
    Processor,
    Producer,
    Record,
    State,
    Streams,
    StreamsBuilder,
    StreamsError,
    Topic,
    key_value_store,
    session_store,
)
from streams.cli import main
from streams.core.blocks.records import TopicPartition
from streams.replay import replay
from streams.testing import TopologyTestDriver, simulate
from tests.waiting import until

SIZE = 3
scores = Topic("scores", key=str, value=int, partitions=2)
podium = Topic("podium", key=str, value=list[int], partitions=2)


class Highest:
    """The highest scores of each player, in descending order."""

    def __init__(self, store: KeyValueStore[str, list[int]]) -> None:
        self._store = store

    def add(self, player: str, score: int) -> list[int]:
        """Take a score; return the highest ones."""
        kept = sorted([*self.top(player), score], reverse=True)[:SIZE]
        self._store.put(player, kept)
        return kept

    def top(self, player: str) -> list[int]:
        """Return the highest scores, none for an unknown player."""
        return self._store.get(player) or []

    def players(self) -> list[str]:
        """Return who has a score."""
        return [player for player, _ in self._store.all()]


class Ranking(Processor[str, int, str, list[int]]):
    highest = key_value_store(str, list[int]).viewed("highest", Highest, queries=("top", "players"))

    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.key, self.highest.add(record.key, record.value))


def topology(builder: StreamsBuilder) -> None:
    builder.stream(scores).process(Ranking).to(podium)


ROWS = [("ann", 3), ("bob", 8), ("ann", 9), ("ann", 1), ("ann", 7), ("bob", 2)]
TOP = {"ann": [9, 7, 3], "bob": [8, 2]}


def send(broker: EmbeddedBroker, rows: list[tuple[str, int]]) -> None:
    with Producer(broker) as producer:
        for key, value in rows:
            producer.send(scores, value, key=key, timestamp_ms=0)


def test_processors_get_the_view_and_the_driver_shows_it() -> None:
    with TopologyTestDriver(topology) as driver:
        for key, value in ROWS:
            driver.pipe(scores, value, key=key)

        places = [driver.store("highest", partition) for partition in (0, 1)]
        assert sorted(player for place in places for player in place.players()) == ["ann", "bob"]
        assert dict(driver.read(podium)) == TOP


def test_queries_call_what_the_kind_names_and_a_new_instance_restores_it_from_the_changelog() -> None:
    def app(broker: EmbeddedBroker) -> Streams:
        return Streams(topology, application_id="app", broker=broker, commit_interval_ms=20, poll_ms=10)

    with EmbeddedBroker() as broker:
        with app(broker) as first:
            send(broker, ROWS)
            until(lambda: first.state is State.RUNNING and first.metrics.get("process-total") == len(ROWS))
            assert {key: first.store("highest").ask("top", key, key=key) for key in TOP} == TOP
            assert sorted(first.store("highest").ask("players")) in ([[], ["ann", "bob"]], [["ann"], ["bob"]])
            with pytest.raises(InvalidStateStoreError, match=r"of kind highest, which does not support add\(\)"):
                first.store("highest").ask("add", "ann", 1, key="ann")

        changelog = "app-highest-changelog"
        assert sum(broker.end_offset(TopicPartition(changelog, number)) for number in (0, 1)) > 0
        with app(broker) as second:
            until(lambda: second.state is State.RUNNING)
            send(broker, [("ann", 8)])
            until(lambda: second.metrics.get("process-total") == 1)
            assert second.store("highest").ask("top", "ann", key="ann") == [9, 8, 7]


@pytest.mark.world
def test_after_crashes_it_holds_what_it_would_without_them() -> None:
    rows = [(f"p{number % 5}", number * 7919 % 101, number) for number in range(60)]

    report = simulate(topology, {scores: rows}, seeds=range(8), processing_guarantee="exactly_once_v2")

    assert report.crashes
    assert report.restores


def test_a_replay_and_its_snapshots_show_the_entries(tmp_path, capsys) -> None:
    for name, rows in (("old", ROWS[:4]), ("new", ROWS)):
        lines = [json.dumps({"key": key, "value": value, "timestamp": 0}) + "\n" for key, value in rows]
        file = tmp_path / f"{name}.records.jsonl"
        file.write_text("".join(lines))
        with replay(topology, {scores: file}, application_id="app", executor="local", partitions=2) as result:
            result.save(tmp_path / name)
            if rows is ROWS:
                assert dict(result.stores["highest"]) == TOP

    capsys.readouterr()
    assert main(["snapshot", "show", str(tmp_path / "new")]) == 0
    assert "highest" in capsys.readouterr().out
    assert main(["snapshot", "diff", str(tmp_path / "old"), str(tmp_path / "new")]) == 1
    said = capsys.readouterr().out
    assert "key ann (value [9, 3, 1]) became [9, 7, 3]" in said
    assert "key bob (value [8]) became [8, 2]" in said


def test_a_view_has_a_name_of_its_own_and_the_methods_that_it_names() -> None:
    store = key_value_store(str, list[int], name="s")
    for wanted, queries, says in (("kv", (), "a name of its own"), ("highest", ("best",), "no method 'best'")):
        with pytest.raises(StreamsError, match=says):
            store.viewed(wanted, Highest, queries=queries)
    with pytest.raises(StreamsError, match="is itself a view"):
        store.viewed("one", Highest).viewed("two", Highest)


def test_a_view_over_a_windowed_store_keeps_its_changelog_settings() -> None:
    plain = session_store(str, int, name="s", retention=timedelta(hours=1)).spec()
    viewed = session_store(str, int, name="s", retention=timedelta(hours=1)).viewed("mine", lambda store: store).spec()

    assert viewed.kind != plain.kind
    assert viewed.kind.topic_config(viewed) == plain.kind.topic_config(plain) != {}
