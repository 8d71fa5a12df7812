"""An application that is replaced by another version of itself, live on an embedded broker."""

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import define, field

from streams import Admin, EmbeddedBroker, Producer, State, Streams, StreamsConfig, Topic, TopicPartition
from streams.comparison import Level, TakeOver, Version, take_over
from streams.core.errors import StreamsError
from streams.dsl.builder import build_topology

FAST = {"commit_interval_ms": 20, "poll_ms": 10, "heartbeat_interval_ms": 10}
MINUTE = 60_000

clicks = Topic("clicks", key=str, value=int)
views = Topic("views", key=str, value=int)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def planned(topology: Any, partitions: int = 1, **settings: Any) -> Version:
    """Return a version without a replay."""
    config = StreamsConfig.of(application_id="app", **settings)
    return Version.planned(build_topology(topology, config), config, partitions)


def verdict(old: Any, new: Any, *, partitions: int = 1) -> TakeOver:
    """Return what the take-over check says, without a replay."""
    return take_over(planned(old, partitions), planned(new, partitions))


def said(found: TakeOver, level: Level = Level.BUT) -> str:
    """Return the findings of a level and above as one text."""
    return "\n".join(f"{item.subject}: {item.says} -> {item.do}" for item in found.findings if item.level >= level)


def fates(found: TakeOver) -> dict[str | None, str]:
    """Return what becomes of each store, by its name in the old version, else in the new one."""
    return {fate.old or fate.new: fate.fate for fate in found.stores}


@define
class Life:
    """A broker and a state directory, on which one version runs after another."""

    broker: EmbeddedBroker
    state_dir: Path
    partitions: int = 1
    _number: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        for topic in (clicks, views):
            self.broker.create_topic(topic.name, self.partitions)

    def run(self, topology: Any, *records: tuple[Any, str, int, int], **settings: Any) -> dict[str, Any]:
        """Run a version until it has processed everything; return the contents of its stores.

        Records are (topic, key, value, minute).

        Raises:
            StreamsError: it failed.
        """
        self._number += 1
        with Producer(self.broker, client_id=f"producer-{self._number}") as producer:
            for topic, key, value, minute in records:
                producer.send(topic, value, key=key, timestamp_ms=minute * MINUTE)
        given = FAST | {"state_dir": str(self.state_dir), "default_store": "rocksdb"} | settings
        app = Streams(topology, application_id="app", broker=self.broker, **given)
        with app:
            self._until_done(app)
            return {name: _contents(app, name) for name in app.topology.stores}

    def forget_folders(self, *stores: str) -> None:
        """Delete what lies of stores in the state directory."""
        for store in stores:
            found = list(self.state_dir.glob(f"app/*/{store}"))
            assert found, f"{store} has no folder"
            for folder in found:
                shutil.rmtree(folder)

    def forget_all_folders(self) -> None:
        """Delete the state directory: a move to another machine."""
        shutil.rmtree(self.state_dir)

    def written(self, topic: Topic[Any, Any], start: int = 0) -> list[tuple[Any, Any]]:
        """Return the records of a topic of one partition from an offset on."""
        result: list[tuple[Any, Any]] = []
        for block in self.broker.read(TopicPartition(topic.name, 0), start, 1_000_000):
            result += zip(
                topic.key_serde.deserialize_all(block.keys),
                topic.value_serde.deserialize_all(block.values),
                strict=True,
            )
        return result

    def _until_done(self, app: Streams) -> None:
        with Admin(self.broker) as admin:
            while True:
                app.wait(20)
                plan = app.instance._plan
                if app.state is not State.RUNNING or plan is None:
                    continue
                read = [item.partition for task in plan.groups for item in plan.inputs(task)]
                committed = admin.committed_offsets("app")
                if all(self._is_done(at, committed) for at in read):
                    return

    def _is_done(self, at: TopicPartition, committed: Any) -> bool:
        # Not above the end either: a log that was cut has the offset of before until its records are processed.
        end = self.broker.end_offset(at)
        return end == 0 or (at in committed and committed[at].offset == end)


def _contents(app: Streams, name: str) -> Any:
    """Return the entries of a store: key (of a window with its first minute) -> value."""
    try:
        entries = app.store(name).all()
    except (StreamsError, AttributeError) as error:
        return repr(error)
    result = {}
    for key, value in entries:
        shown = (key.key, key.window.start_ms // MINUTE) if hasattr(key, "window") else key
        result[shown] = getattr(value, "value", value)
    return result
