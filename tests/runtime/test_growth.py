"""A topic that has grown has records of one key in two partitions; one task must read both, also after a reset."""

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    Admin,
    Consumer,
    EmbeddedBroker,
    Producer,
    State,
    Streams,
    StreamsBuilder,
    Topic,
    TopicPartition,
    TopologyError,
    build_topology,
)
from streams.clients import EARLIEST
from streams.core.blocks.partitioning import partition_for
from streams.core.clock import SystemClock
from streams.core.settings.config import StreamsConfig
from streams.runtime import ResetPlan, ResetTarget
from streams.runtime.plan.plan import ApplicationPlan, Existing
from tests import waiting
from tests.properties.profile import examples

events = Topic("events", key=str, value=int)
prices = Topic("prices", key=str, value=int)
totals = Topic("totals", key=str, value=int)
FAST = {
    "commit_interval_ms": 20,
    "poll_ms": 10,
    "heartbeat_interval_ms": 10,
    "metadata_max_age_ms": 20,
}


def counting(builder: StreamsBuilder) -> None:
    builder.stream(events).group_by_key().count("c").to_stream().to(totals)


def repartitioned(builder: StreamsBuilder) -> None:
    builder.stream(events).repartition("by-key").group_by_key().count("c").to_stream().to(totals)


def joining(builder: StreamsBuilder) -> None:
    builder.stream(events).join(builder.table(prices, name="p"), lambda one, price: one * price).to(totals)


def apart(builder: StreamsBuilder) -> None:
    """One sub-topology, and two stores that do not share a key."""
    counted = builder.stream(events).group_by_key().count("c").to_stream()
    counted.merge(builder.stream(prices).group_by_key().count("p").to_stream()).to(totals)


@define
class Game:
    """A broker with topics of so many partitions, and the records that were sent to each."""

    broker: EmbeddedBroker
    players: int
    sent: dict[str, int] = field(factory=dict)
    now_ms: int = 0

    def create(self, **partitions: int) -> None:
        for name, count in partitions.items():
            self.broker.create_topic(name, count)

    def grow(self, **partitions: int) -> None:
        with Admin(self.broker) as admin:
            admin.create_partitions(partitions)

    def send(self, topic: Topic[str, int] = events, value: int = 1, rounds: int = 5) -> None:
        with Producer(self.broker) as producer:
            for number in range(rounds * self.players):
                key = f"p{number % self.players}"
                self.now_ms += 1
                producer.send(topic, value, key=key, timestamp_ms=self.now_ms)
                self.sent[key] = self.sent.get(key, 0) + 1

    def reset(self) -> list[str]:
        with Admin(self.broker) as admin:
            plan = ResetPlan.of(admin, "app", ResetTarget(to=EARLIEST), outputs=["totals"])
            plan.execute(admin)
            return plan.lines()

    def run(self, topology=counting, application_id="app", **settings) -> tuple[dict[str, int], int]:
        """Run until each record was counted; return the last total of each key, and the number of tasks."""
        latest, seen = {}, []
        with (
            Streams(topology, application_id=application_id, broker=self.broker, **(FAST | settings)) as streams,
            Consumer(self.broker, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([TopicPartition("totals", 0)], [totals])

            def read() -> None:
                for record in consumer.poll(20):
                    seen.append(record)
                    latest[record.key] = record.value

            count = sum(self.sent.values())
            waiting.until(lambda: len(seen) >= count, read, lambda: f"{len(seen)} of {count}")
            return latest, len(streams.tasks())


@pytest.fixture
def broker():
    with EmbeddedBroker() as broker:
        broker.create_topic("totals", 1)
        yield broker


@pytest.mark.parametrize(("before", "after", "players"), [(1, 2, 20), (4, 8, 200)])
def test_each_key_has_one_total_after_a_reset_of_a_grown_topic(broker, before, after, players):
    """They were 9 of 20, and 95 of 200 keys, that had a part of their records in another task."""
    game = Game(broker, players)
    game.create(events=before)
    game.send()
    assert game.run() == (game.sent, before)
    game.grow(events=after)
    game.send()
    with Admin(broker) as admin:
        admin.delete_records({TopicPartition("totals", 0): -1})

    for _ in range(2):
        lines = game.reset()
        assert game.run() == (game.sent, before)

    assert f"topic events: {after} partitions in {before} partition groups, as before it grew" in lines


def test_a_reset_application_goes_on_at_each_start(broker):
    game = Game(broker, 20)
    game.create(events=1)
    game.send()
    game.run()
    game.grow(events=2)
    game.reset()
    game.run()
    game.send()

    assert game.run() == (game.sent, 1)


def test_topics_of_a_join_may_be_reset_while_only_one_has_grown(broker):
    game = Game(broker, 20)
    game.create(events=1, prices=1)
    game.send(prices, value=3, rounds=1)
    game.sent.clear()
    game.send(rounds=1)
    game.run(joining)
    game.grow(events=2)
    game.send(rounds=1)
    game.reset()

    assert game.run(joining) == (dict.fromkeys(game.sent, 3), 1)


def test_topics_that_share_no_store_keep_numbers_of_their_own(broker):
    """Four tasks, and a topic of two partitions: its third one joins group 0, not 2."""
    game = Game(broker, 20)
    game.create(events=4, prices=2)
    game.send(rounds=1)
    game.send(prices, rounds=1)
    game.run(apart)
    game.grow(prices=4)
    sent = dict(game.sent)
    game.send(prices, rounds=1)

    latest, tasks = game.run(apart)

    assert (latest, tasks) == (dict.fromkeys(sent, 2), 4)


def test_a_key_is_looked_up_where_the_topics_of_its_store_have_it(broker):
    """A topic with more partitions in the same sub-topology, which does not lead to the store, has no say."""
    game = Game(broker, 20)
    game.create(events=4, prices=2)
    with Streams(apart, application_id="app", broker=broker, **FAST) as streams:
        waiting.until(lambda: streams.state is State.RUNNING)
        keys = [f"p{number}" for number in range(game.players)]

        assert [streams.owner_of("p", key).partition for key in keys] == [
            partition_for(key.encode(), 2) for key in keys
        ]


def test_a_new_application_id_on_a_grown_topic_is_told_at_its_start(broker, caplog):
    """It knows nothing of the growth; the keys do."""
    game = Game(broker, 200)
    game.create(events=4)
    game.send()
    game.grow(events=8)
    game.run(application_id="later")

    # What follows within the minute is told at the end, with its number.
    lines = [record.getMessage() for record in caplog.records if "topic 'events'" in record.getMessage()]
    (told,) = {line.rpartition(" (")[0] for line in lines}
    assert "murmur2 over 4 partitions (the topic had fewer partitions when they were written)" in told
    assert "read the topic with .repartition()" in told


def test_a_new_application_id_that_repartitions_a_grown_topic_has_one_total(broker, caplog):
    """The remedy of the messages."""
    game = Game(broker, 20)
    game.create(events=1)
    game.send()
    game.grow(events=2)
    game.send()

    assert game.run(repartitioned)[0] == game.sent
    assert "topic 'events'" not in caplog.text


def test_a_broker_that_assigns_the_tasks_cannot_keep_the_groups(broker):
    game = Game(broker, 20)
    game.create(events=1)
    game.send()
    game.run()
    game.grow(events=2)
    game.reset()

    refused = r"events-1 belonged to partition group 0 .*group protocol .*read the topic with \.repartition\(\)"
    with pytest.raises(TopologyError, match=refused):
        game.run(group_protocol="streams", heartbeat_interval_ms=3_000)


def planned(topology, partitions, groups, **settings):
    config = StreamsConfig.of(application_id="app", **settings)
    return ApplicationPlan.make(
        build_topology(topology, config), config, SystemClock(), partitions, existing=Existing(groups)
    )


def test_no_message_leads_to_a_new_application_id_alone():
    with pytest.raises(TopologyError, match=r"multiple of 4, or start over .* read the topic with \.repartition\(\)"):
        planned(counting, {"events": 6, "totals": 1}, {"events": 4})


def test_a_topic_that_is_the_changelog_of_its_table_cannot_grow():
    """A task restores the table from one partition, and would lose the rows of the other."""
    with pytest.raises(TopologyError, match=r"'prices' has grown from 2 to 4 .* changelog of its table"):
        planned(
            joining,
            {"events": 4, "prices": 4, "totals": 1},
            {"events": 2, "prices": 2},
            topology_optimization="all",
        )


def test_topics_with_state_in_other_numbers_of_groups_do_not_meet():
    """Both have four partitions now, but one had two when its keys were counted."""

    def merged(builder: StreamsBuilder) -> None:
        builder.stream(events).merge(builder.stream(prices)).group_by_key().count("c")

    with pytest.raises(TopologyError, match="'events' in 4, 'prices' in 2: keys would be in two groups"):
        planned(merged, {"events": 4, "prices": 4}, {"events": 4, "prices": 2})


@given(st.integers(1, 8), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.binary(min_size=1, max_size=4))
@examples(100)
def test_a_key_stays_with_its_state_however_often_a_topic_grows(count, factors, key):
    first = planned(counting, {"events": count, "totals": 1}, {})
    homes = {part: task for task, parts in first.groups.items() for part in parts}
    home = homes[TopicPartition("events", partition_for(key, count))]
    grown = count
    for factor in factors:
        grown *= factor
        plan = planned(counting, {"events": grown, "totals": 1}, first.divisions)
        homes = {part: task for task, parts in plan.groups.items() for part in parts}

        assert len(homes) == grown
        assert homes[TopicPartition("events", partition_for(key, grown))] == home
        assert plan.divisions == first.divisions
