"""A task is stepped forward and back; what a step shows does not depend on how it was reached."""

from contextlib import suppress
from datetime import timedelta

import pytest

from streams import (
    EmbeddedBroker,
    KeyValueStore,
    Processor,
    Producer,
    Record,
    SessionWindows,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topic,
    key_value_store,
)
from streams.capsule import Capsule, Reproduction, Stepper, capture
from streams.capsule.stepper import entries
from streams.clients import Admin
from streams.core.blocks.records import TaskId
from streams.core.errors import InputError
from streams.dsl import build_topology
from streams.testing import TopologyTestDriver
from tests.waiting import until

clicks = Topic("clicks", key=str, value=str)
prices = Topic("prices", key=str, value=int)
SETTINGS = {"application_id": "shop", "flight_recorder": True, "commit_interval_ms": 10}
TASK = TaskId(0, 0)


def topology(builder: StreamsBuilder) -> None:
    grouped = builder.stream(clicks).group_by_key()
    grouped.count("counts")
    grouped.windowed_by(TimeWindows.of(timedelta(seconds=1))).count("windows")
    grouped.windowed_by(SessionWindows.of(timedelta(milliseconds=200))).count("sessions")
    table = builder.table(prices, name="prices", history=timedelta(minutes=1))
    builder.stream(clicks).join(table, lambda word, price: f"{word} {price}").to("bought")


@pytest.fixture(scope="module")
def capsule() -> Capsule:
    """A task with five commits of four clicks and a price each."""
    with EmbeddedBroker() as broker:
        for topic in ("clicks", "prices", "bought"):
            broker.create_topic(topic)
        with Streams(topology, broker=broker, **SETTINGS), Producer(broker) as producer, Admin(broker) as admin:
            for part in range(5):
                producer.send(prices, part * 10, key="a", timestamp_ms=part * 1_000)
                for number in range(4):
                    producer.send(clicks, "w", key="ab"[number % 2], timestamp_ms=part * 1_000 + number * 150)
                producer.flush()
                until(lambda part=part: committed(admin) == {"clicks": 4 * (part + 1), "prices": part + 1})
        config = StreamsConfig.of(**SETTINGS)
        with Admin(broker) as admin:
            known = {topic.name: len(topic.leaders) for topic in admin.all_topics()}
        return capture(broker, build_topology(topology, config), config, known)


def committed(admin: Admin) -> dict[str, int]:
    return {partition.topic: offset.offset for partition, offset in admin.committed_offsets("shop").items()}


class Stepped:
    """A stepper over the capsule: the lines of each command, and how many steps were executed."""

    def __init__(self, capsule: Capsule) -> None:
        config = StreamsConfig.of(**SETTINGS)
        self.lines: list[str] = []
        reproduction = Reproduction(capsule, build_topology(topology, config), config)
        self.stepper = Stepper(reproduction, TASK, self.lines.append)

    def __call__(self, command: str) -> list[str]:
        self.lines.clear()
        self.stepper.run([command])
        return [line.strip() for line in self.lines]


@pytest.mark.slow
def test_each_step_shows_the_same_when_it_is_reached_from_behind(capsule):
    steps, seen = Stepped(capsule), {}
    while (shown := steps("n"))[0] != "the end of the span":
        seen[len(seen) + 1] = shown, [steps(f"p {name}") for name in ("counts", "windows", "sessions", "prices")]
    assert len(seen) > 25
    for number in reversed(seen):
        assert steps(f"g {number}") == seen[number][0]
        assert [steps(f"p {name}") for name in ("counts", "windows", "sessions", "prices")] == seen[number][1]


def test_a_step_back_runs_only_from_the_last_commit(capsule, monkeypatch):
    steps, begun = Stepped(capsule), []
    while steps("n")[0] != "the end of the span":
        pass
    moments = Reproduction.moments

    def counted(self, task_id, first=0):
        for moment in moments(self, task_id, first):
            begun.append(moment)
            yield moment

    monkeypatch.setattr(Reproduction, "moments", counted)
    steps("b 3")
    shown = len(begun)
    begun.clear()
    config = StreamsConfig.of(**SETTINGS)
    for _ in Reproduction(capsule, build_topology(topology, config), config).moments(TASK):
        pass
    # The last of five commits, of 25 records in all.
    assert 0 < shown < len(begun) / 2


class Total:
    """A store of a custom kind that cannot list its rows."""

    def __init__(self, store: KeyValueStore[str, int]) -> None:
        self.add = store.put


class Adding(Processor[str, int, str, int]):
    total = key_value_store(str, int, "total").viewed("total", Total)

    def process(self, record: Record[str, int]) -> None:
        self.total.add(record.key, record.value)


def test_rows_of_a_custom_kind_are_those_of_the_store_under_its_view():
    driver = TopologyTestDriver(lambda builder: builder.stream(prices).process(Adding))
    driver.pipe(prices, 5, key="a")

    assert list(entries(driver._tasks[0].stores["total"])) == [("a", "5")]


def test_all_kinds_of_stores_are_shown(capsule):
    steps = Stepped(capsule)
    while steps("n")[0] != "the end of the span":
        pass
    assert any("'a'" in line and "value=10" in line for line in steps("p counts"))
    assert [line.count("start_ms=4000") for line in steps("p windows")] == [1, 1]
    (session,) = steps("p sessions a")
    assert "start_ms=4300" in session
    assert session.endswith(": 1")
    assert steps("p prices a")[0] == "'a': 40 from 1970-01-01T00:00:04Z to now"
    assert steps("p prices a")[1] == "'a': 30 from 1970-01-01T00:00:03Z to 1970-01-01T00:00:04Z"
    assert steps("p sessions nobody") == ["no such key: nobody"]


def test_a_damaged_capsule_is_a_mistake_of_who_gives_it(capsule, tmp_path):
    """`streams reproduce` ends with status 2 then, as 1 means that the topology differs."""
    path = tmp_path / "capsule"
    capsule.write(path)
    assert path.stat().st_mode & 0o777 == 0o600, "keys and values are in it in clear"
    data = path.read_bytes()
    for place in range(0, len(data), len(data) // 100):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        with suppress(InputError):
            Capsule.read(path)
