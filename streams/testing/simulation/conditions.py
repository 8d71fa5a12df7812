"""The conditions of simulated worlds: the inputs, and the faults and limits, drawn from the seed of the world."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from random import Random
from typing import Any, Final

from attrs import define, evolve, field, frozen

from streams.core.settings.config import SET_ON_BROKER, SETTINGS
from streams.core.settings.setting import INT_MAX, pairs_of
from streams.core.topic import Topic
from streams.dsl import TopologySource
from streams.group import CoordinatorConfig
from streams.protocol.wire.framing import MAX_FRAME_BYTES
from streams.testing.simulation.faults import Fault, draw_crashes_in_restores, draw_faults
from streams.testing.simulation.network import Weather

#: One input record: topic, key, value and timestamp.
Row = tuple[Topic[Any, Any], Any, Any, int]
#: The probability of slow messages and their maximum delay in milliseconds, for undisturbed worlds.
_FAIR_WEATHER = ((0.0, 1), (0.02, 800), (0.1, 400), (0.3, 800), (0.05, 900), (0.5, 100))
#: Numbers of bursts: even intervals, or gaps of 0.4 to 6 s, in which inputs become idle, with the default ``storm_ms``.
_BURSTS = (0, 0, 48, 12, 3)


def in_order_of_topics(rows: Iterable[Row]) -> list[Row]:
    """Return input records by time, those of one topic in the order in which they are given.

    A record that is older than one before it in its topic is written directly after the latest of these.
    """
    times: dict[str, int] = {}
    timed = []
    for row in rows:
        name = row[0].name
        times[name] = max(times.get(name, row[3]), row[3])
        timed.append((times[name], row))
    return [row for _, row in sorted(timed, key=lambda item: item[0])]


@frozen
class Scenario:
    """The parameters that all worlds of a simulation have in common."""

    topology: TopologySource
    rows: Sequence[Row]
    settings: Mapping[str, Any]
    #: Partition counts of all source and sink topics.
    partitions: Mapping[str, int]
    storm_ms: int
    is_exactly_once: bool
    #: Input topics to which partitions may be added.
    growing: Sequence[str] = ()
    #: Virtual time in milliseconds that passes after all inputs have been processed.
    rest_ms: int = 0
    #: Whether all inputs are in their topics before the application starts.
    is_backlog: bool = False


#: Sessions and heartbeats of any length: short ones make short worlds.
ANY_LENGTH: Final[Mapping[str, int]] = {
    "min_session_timeout_ms": 1,
    "consumer_min_session_timeout_ms": 1,
    "consumer_min_heartbeat_interval_ms": 1,
    "streams_min_session_timeout_ms": 1,
    "streams_max_session_timeout_ms": INT_MAX,
    "streams_min_heartbeat_interval_ms": 1,
    "streams_max_heartbeat_interval_ms": INT_MAX,
}


def tagged(settings: Mapping[str, Any], value: int) -> dict[str, Any]:
    """Return settings in which each tag of ``rack_aware_assignment_tags`` has a value; those given are kept."""
    name = "rack_aware_assignment_tags"
    if name not in settings:
        return dict(settings)
    tags = {tag.strip(): str(value) for tag in SETTINGS[name].parse(settings[name]).split(",")}
    pairs = SETTINGS["client_tags"].parse(settings.get("client_tags", ""))
    return dict(settings) | {"client_tags": tags | pairs_of(pairs)}


def divided(settings: Mapping[str, Any], interval_ms: int) -> tuple[dict[str, Any], CoordinatorConfig]:
    """Return the settings of members, and those of the broker, which sets what concerns streams groups.

    ``interval_ms`` is the least time between two assignments of such a group.
    """
    members = dict(settings)
    config = CoordinatorConfig(**ANY_LENGTH)
    if members.get("group_protocol") != "streams":
        return members, config
    theirs = {name: members.pop(name) for name in SET_ON_BROKER if name in members}
    config = evolve(
        config,
        streams_session_timeout_ms=theirs["session_timeout_ms"],
        streams_heartbeat_interval_ms=theirs["heartbeat_interval_ms"],
        streams_num_standby_replicas=theirs.get("num_standby_replicas", 0),
        streams_assignment_interval_ms=interval_ms,
    )
    return members, config


class Arrival(Enum):
    """The order in which the producer sends the inputs; records with the same topic and key keep their order.

    "By time", the records of a topic are in the order in which they are given, which may be out of order in time.
    """

    BY_TIME = "by time"
    BY_TOPIC = "topic by topic"
    BY_TOPIC_REVERSED = "the last topic first"
    BY_KEY = "key by key"

    def arranged(self, rows: Sequence[Row]) -> list[Row]:
        """Return ``rows``, which are given in timestamp order, in the order that this member denotes."""
        topics = {name: index for index, name in enumerate(dict.fromkeys(row[0].name for row in rows))}
        match self:
            case Arrival.BY_TOPIC:
                return sorted(rows, key=lambda row: topics[row[0].name])
            case Arrival.BY_TOPIC_REVERSED:
                return sorted(rows, key=lambda row: -topics[row[0].name])
            case Arrival.BY_KEY:
                return sorted(rows, key=lambda row: row[0].key_serde.serialize(row[1]) or b"")
            case _:
                return list(rows)


@define
class Conditions:
    """The faults and limits of one simulated world."""

    faults: Sequence[Fault]
    weather: Weather
    machines: int = 3
    settings: Mapping[str, Any] = field(factory=dict)
    static: frozenset[str] = frozenset()
    without_disk: frozenset[str] = frozenset()
    arrival: Arrival = Arrival.BY_TIME
    #: The number of bursts in which the producer sends the inputs, with gaps between them, or 0 for even intervals.
    bursts: int = 0
    #: ``connections_max_idle_ms`` of the clients.
    max_idle_ms: int = 540_000
    #: The number of brokers, the maximum time in ms until their metadata has a new partition, and the maximum time in
    #: ms for which the markers of an ended transaction are being written.
    brokers: int = 1
    metadata_lag_ms: int = 0
    markers_ms: int = 0
    #: The most records of a partition in a fetch response; None for what the client allows.
    fetched_records: int | None = None
    #: Whether the broker closes the producer's connection on requests of more than a few records.
    limits_requests: bool = False
    #: Whether the cluster has finalized transactions of version 2 (KIP-890).
    has_second_version: bool = True
    #: The value of each machine's tags, in turn, if the settings name tags (KIP-708).
    tag_values: Sequence[int] = (1,)
    #: The least time in ms between two assignments of a streams group (KIP-1263).
    assignment_interval_ms: int = 0
    #: Times in ms, one of which each iteration of a thread takes, so that the threads process at different speeds.
    paces_ms: Sequence[int] = (0,)
    #: Size in bytes of the records of a request, above which the broker closes a connection of the application.
    max_request_bytes: int = MAX_FRAME_BYTES

    @classmethod
    def undisturbed(cls, number: int, scenario: Scenario) -> "Conditions":
        """Return the conditions of a world without faults, whose messages are delayed and whose input order varies.

        Differences between the results of such worlds are due to the order of arrival.
        """
        rng = Random(f"undisturbed {number}")
        # From no delay to a delay of seconds between topics.
        slowness, slow_ms = _FAIR_WEATHER[number % len(_FAIR_WEATHER)]
        settings = {"max_poll_records": rng.choice((1, 5, 1_000)), "commit_interval_ms": rng.choice((50, 1_000))}
        return cls(
            (),
            Weather(slowness=slowness, slow_ms=slow_ms),
            # With one machine no task moves: a loss caused by a move must not be mistaken for order dependence.
            machines=1,
            settings=settings,
            arrival=Arrival.BY_TIME if scenario.is_backlog else list(Arrival)[number % len(Arrival)],
            bursts=1 if scenario.is_backlog else _BURSTS[number % len(_BURSTS)],
        )

    @classmethod
    def growing(cls, scenario: Scenario) -> "Conditions":
        """Return conditions without message faults, in which the ``growing`` topics get more partitions, one by one."""
        faults = [
            Fault((index + 2) * scenario.storm_ms // (len(scenario.growing) + 4), "add_partitions", topic)
            for index, topic in enumerate(scenario.growing)
        ]
        return cls(faults, Weather(), machines=1)

    @classmethod
    def drawn(cls, seed: int, scenario: Scenario) -> "Conditions":
        """Draw the conditions of a world from its seed."""
        rng = Random(f"conditions {seed}")
        names = [f"m{number}" for number in range(1, 4)]
        weather = Weather(
            resets=rng.choice((0.0, 0.001, 0.005)),
            silences=rng.choice((0.0, 0.0005, 0.002)),
            slowness=rng.choice((0.0, 0.01, 0.05)),
            broker_idle_ms=rng.choice((None, None, 3_000)),
        )
        settings = {
            "num_stream_threads": rng.choice((1, 1, 2)),
            "num_standby_replicas": rng.choice((0, 1)),
            "acceptable_recovery_lag": rng.choice((0, 10, 10_000)),
            "commit_interval_ms": rng.choice((50, 200, 1_000)),
            "max_task_idle_ms": rng.choice((0, 0, 500)),
            "max_poll_records": rng.choice((5, 50, 1_000)),
        }
        faults = draw_faults(rng, names, scenario.growing, scenario.storm_ms, is_exactly_once=scenario.is_exactly_once)
        # Drawn apart, so that it changes nothing in the other worlds: restores take long, and machines crash in them.
        restores = Random(f"few records {seed}")
        fetched_records = restores.choice((None, None, None, None, 1))
        if fetched_records is not None:
            faults += draw_crashes_in_restores(restores, names, scenario.storm_ms)
        drawn = cls(
            faults,
            weather,
            settings=settings,
            static=frozenset(name for name in names if rng.random() < 0.3),
            without_disk=frozenset(name for name in names if rng.random() < 0.2),
            max_idle_ms=rng.choice((540_000, 2_000)),
            limits_requests=rng.random() < 0.5,
            brokers=rng.choice((1, 1, 2)),
            metadata_lag_ms=rng.choice((0, 200, 1_500)),
            markers_ms=rng.choice((0, 20, 200)),
            arrival=rng.choice((Arrival.BY_TIME, Arrival.BY_TIME, *Arrival)),
            bursts=rng.choice(_BURSTS),
            fetched_records=fetched_records,
            # Drawn apart, so that none changes anything else in a world.
            has_second_version=Random(f"transactions {seed}").random() < 0.7,
            tag_values=Random(f"tags {seed}").choice(((1, 2, 3), (1, 2, 2), (2, 1, 2), (2, 2, 1))),
            assignment_interval_ms=Random(f"assignments {seed}").choice((0, 0, 1_000)),
        )
        if not scenario.is_backlog:
            return drawn
        # The backlog lasts for the whole storm: few records are polled in an iteration, each of which takes a while.
        settings = settings | {"max_poll_records": rng.choice((1, 3, 10))}
        paces_ms = rng.choice(((30,), (10, 60, 200), (5, 300)))
        return evolve(drawn, settings=settings, arrival=Arrival.BY_TIME, bursts=1, paces_ms=paces_ms)
