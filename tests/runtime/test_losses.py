"""Logs of the application's own that have lost records: never wrong totals without a word.

A log loses its end by damage, or because an older copy of the broker's folder was put back; here the topic is made
anew with the first of its records.
"""

import logging
import shutil

import pytest
from attrs import evolve

from streams import Admin, Consumer, EmbeddedBroker, LostRecordsError, Producer, StreamsBuilder, TopicPartition
from streams.core.blocks.records import Block
from streams.runtime.stores.losses import LossGuard
from tests.comparison.takeover_cases import Life, clicks

GUARANTEES = ["at_least_once", "exactly_once_v2"]
CHANGELOG = "app-sums-changelog"
TEN = [(clicks, key, 1, minute) for minute in range(5) for key in ("ann", "ben")]


@pytest.fixture
def life(tmp_path):
    with EmbeddedBroker() as broker:
        yield Life(broker, tmp_path / "state")


def counting(builder: StreamsBuilder) -> None:
    builder.stream(clicks).group_by_key().count("sums")


def regrouped(builder: StreamsBuilder) -> None:
    builder.stream(clicks).select_key(lambda key, value: key[0]).group_by_key().count("sums")


def latest(builder: StreamsBuilder) -> None:
    builder.table(clicks, name="sums").filter(lambda key, value: value > 0)


def cut(broker: EmbeddedBroker, topic: str, kept: int) -> None:
    """Make a topic anew with the first records that are left of it."""
    at = TopicPartition(topic, 0)
    blocks = broker.read(at, broker.start_offset(at), 1_000_000)
    with Admin(broker) as admin:
        (config,) = [found.config for found in admin.all_topics() if found.name == topic]
        committed = admin.committed_offsets("app")
        admin.delete_topics([topic])
        broker.create_topic(topic, 1, dict(config))
        # Those of a deleted topic go with it, those of a damaged one do not.
        admin.alter_offsets("app", committed)
    for block in blocks:
        part = block.slice(0, max(0, min(len(block), kept)))
        kept -= len(part)
        if len(part):
            # Its transaction has ended where it was.
            broker.append(at, evolve(part, producer=None))


def repartition(broker: EmbeddedBroker) -> TopicPartition:
    (topic,) = [name for name in broker.topics() if name.endswith("-repartition")]
    return TopicPartition(topic, 0)


def go_on(broker: EmbeddedBroker, partition: TopicPartition) -> None:
    """Write a record, and delete all records, as an owner that has processed and committed it does."""
    broker.append(partition, Block([b"a"], [b"1"], [0]))
    broker.delete_records(partition, -1)


def each_alone(life: Life, topology, **settings):
    """Run every record in a run of its own, so that the changelog has all of them."""
    for record in TEN:
        life.run(topology, record, **settings)


def said(caplog) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)


@pytest.mark.case
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_store_that_is_ahead_of_its_changelog_is_kept_and_the_application_does_not_start(life, guarantee):
    given = {"processing_guarantee": guarantee}
    each_alone(life, counting, **given)
    end = life.broker.end_offset(TopicPartition(CHANGELOG, 0))
    cut(life.broker, CHANGELOG, 4)

    for _ in range(2):
        with pytest.raises(LostRecordsError) as caught:
            life.run(counting, (clicks, "ann", 1, 9), **given)
        error = caught.value
        assert (error.topic, error.partition, error.store, error.end) == (CHANGELOG, 0, "sums", 4)
        assert end - 1 <= error.expected <= end
        for part in ("ends at offset 4", "restore the broker's data", "lost_records=rebuild", "lost_records=accept"):
            assert part in str(error)
    assert list(life.state_dir.glob("app/*/sums"))


@pytest.mark.case
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_changelog_is_written_anew_from_the_store(life, caplog, guarantee):
    given = {"processing_guarantee": guarantee}
    each_alone(life, counting, **given)
    cut(life.broker, CHANGELOG, 4)

    assert life.run(counting, **given, lost_records="rebuild") == {"sums": {"ann": 5, "ben": 5}}
    assert "rebuilt: 2 records were written from the store" in said(caplog)
    assert life.run(counting, (clicks, "ann", 1, 9), **given) == {"sums": {"ann": 6, "ben": 5}}
    life.forget_all_folders()
    assert life.run(counting, (clicks, "ann", 1, 10), **given) == {"sums": {"ann": 7, "ben": 5}}


def test_rebuilt_changelog_has_no_keys_that_were_deleted_in_the_lost_records(life):
    for record in ((clicks, "ann", 1, 0), (clicks, "ben", 1, 1), (clicks, "ben", None, 2), (clicks, "cleo", 1, 3)):
        life.run(latest, record)
    cut(life.broker, CHANGELOG, 2)

    assert life.run(latest, lost_records="rebuild")["sums"] == {"ann": 1, "cleo": 1}
    life.forget_all_folders()
    assert life.run(latest)["sums"] == {"ann": 1, "cleo": 1}


@pytest.mark.case
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("kept", [0, 4])
def test_changelog_that_ends_before_the_last_commit_is_an_error(life, guarantee, kept):
    """Also without a local store: the metadata of the committed offsets has the end offset of the changelog."""
    given = {"processing_guarantee": guarantee, "default_store": "in_memory"}
    each_alone(life, counting, **given)
    cut(life.broker, CHANGELOG, kept)

    for policy in ("fail", "rebuild"):
        with pytest.raises(LostRecordsError, match="has no copy of the store"):
            life.run(counting, (clicks, "ann", 1, 9), **given, lost_records=policy)


def test_lost_records_are_accepted_with_the_setting_accept(life, caplog):
    each_alone(life, counting)
    cut(life.broker, CHANGELOG, 4)

    assert life.run(counting, lost_records="accept") == {"sums": {"ann": 2, "ben": 2}}
    assert "accepted: the store has the remaining records of the changelog" in said(caplog)
    assert life.run(counting, (clicks, "ann", 1, 9)) == {"sums": {"ann": 3, "ben": 2}}


def test_store_that_is_behind_the_last_commit_does_not_rebuild_a_changelog(life, tmp_path):
    for record in TEN[:6]:
        life.run(counting, record)
    shutil.copytree(life.state_dir, tmp_path / "old")
    for record in TEN[6:]:
        life.run(counting, record)
    life.forget_all_folders()
    shutil.copytree(tmp_path / "old", life.state_dir)
    cut(life.broker, CHANGELOG, 4)

    with pytest.raises(LostRecordsError, match="cannot replace it: it ends at 6"):
        life.run(counting, lost_records="rebuild")


def test_an_application_that_was_reset_begins_anew_and_drops_what_its_folder_has(life, caplog):
    """The group and the internal topics are gone, the state directory is not."""
    each_alone(life, counting)
    with Admin(life.broker) as admin:
        admin.delete_topics([CHANGELOG])
        admin.delete_group("app")

    assert life.run(counting, (clicks, "ann", 1, 9)) == {"sums": {"ann": 6, "ben": 5}}
    assert "no offsets are committed, so the application starts over" in said(caplog)


@pytest.mark.case
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_repartition_topic_that_ends_before_the_committed_offset_is_not_read_again(life, guarantee):
    given = {"processing_guarantee": guarantee}
    life.run(regrouped, *TEN, **given)
    partition = repartition(life.broker)
    cut(life.broker, partition.topic, 4)

    with pytest.raises(LostRecordsError, match=f"{partition}, which the application itself writes, has .* up to 4"):
        life.run(regrouped, **given)
    found = life.run(regrouped, (clicks, "ann", 1, 9), **given, lost_records="accept")
    assert found == {"sums": {"a": 6, "b": 5}}
    assert life.run(regrouped, (clicks, "ann", 1, 10), **given) == {"sums": {"a": 7, "b": 5}}


@pytest.mark.case
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_repartition_topic_that_starts_after_the_committed_offset_has_lost_records(life, guarantee):
    given = {"processing_guarantee": guarantee}
    life.run(regrouped, *TEN, **given)
    partition = repartition(life.broker)
    go_on(life.broker, partition)

    with pytest.raises(LostRecordsError, match=f"{partition}, which the application itself writes, has offsets from"):
        life.run(regrouped, **given)


@pytest.mark.case
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_records_that_a_new_owner_deletes_while_a_task_opens_are_not_lost_records(life, guarantee, monkeypatch):
    """A removed member still opens a task; its new owner commits and deletes right after the offsets were read."""
    given = {"processing_guarantee": guarantee}
    life.run(regrouped, *TEN, **given)
    partition = repartition(life.broker)
    read, went_on = Consumer.committed, []

    def committed(consumer, partitions):
        found = read(consumer, partitions)
        if partition in found and not went_on:
            went_on.append(found[partition].offset)
            go_on(life.broker, partition)
        return found

    monkeypatch.setattr(Consumer, "committed", committed)
    assert life.run(regrouped, (clicks, "ann", 1, 9), **given) == {"sums": {"a": 6, "b": 5}}
    assert went_on[0] < life.broker.start_offset(partition)


def test_a_standby_copy_that_is_ahead_is_kept_too(life):
    each_alone(life, counting)
    cut(life.broker, CHANGELOG, 4)
    life.state_dir.rename(life.state_dir.with_name("aside"))

    with pytest.raises(LostRecordsError):
        life.run(counting)
    life.forget_all_folders()
    life.state_dir.with_name("aside").rename(life.state_dir)
    assert life.run(counting, lost_records="rebuild") == {"sums": {"ann": 5, "ben": 5}}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_stores_that_are_ahead_of_the_committed_offsets_are_refused(life, caplog, guarantee):
    """The log of committed offsets is older: its records would be added a second time."""
    given = {"processing_guarantee": guarantee}
    life.run(counting, *TEN[:6], **given)
    with Admin(life.broker) as admin:
        older = admin.committed_offsets("app")
        life.run(counting, *TEN[6:], **given)
        admin.alter_offsets("app", older)

        for _ in range(2):
            with pytest.raises(LostRecordsError, match="commits are lost"):
                life.run(counting, **given)
        assert life.run(counting, **given, lost_records="accept") == {"sums": {"ann": 7, "ben": 7}}
        assert "accepted: their inputs are processed a second time" in said(caplog)
        assert life.run(counting, (clicks, "ann", 1, 9), **given) == {"sums": {"ann": 8, "ben": 7}}

        # Whoever sets offsets back wants it so.
        admin.alter_offsets("app", dict.fromkeys(older, 10))
        assert life.run(counting, **given) == {"sums": {"ann": 9, "ben": 7}}
        assert life.run(counting, (clicks, "ann", 1, 9), **given) == {"sums": {"ann": 10, "ben": 7}}


@pytest.mark.case
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("when", ["within", "before the commit"])
def test_an_interrupted_rebuild_goes_on_at_the_next_start(life, monkeypatch, guarantee, when):
    """The part of it that is in the changelog is more than what was lost."""
    given = {"processing_guarantee": guarantee}
    keys = [f"k{number}" for number in range(30)]
    life.run(latest, *[(clicks, key, 1, 0) for key in keys], **given)
    life.run(latest, (clicks, "k0", None, 1), **given)
    cut(life.broker, CHANGELOG, 28)
    has_ended = False

    def end_once(is_due):
        nonlocal has_ended
        if is_due and not has_ended:
            has_ended = True
            raise RuntimeError("killed")

    flush, warn = Producer.flush, LossGuard._warn

    def flush_and_end(producer, *arguments):
        flush(producer, *arguments)
        end_once(when == "within" and "-rebuild" in repr(producer))

    def warn_and_end(guard, loss, what):
        warn(guard, loss, what)
        end_once(when != "within" and what.startswith("rebuilt"))

    monkeypatch.setattr(Producer, "flush", flush_and_end)
    monkeypatch.setattr(LossGuard, "_warn", warn_and_end)
    with pytest.raises(RuntimeError, match="killed"):
        life.run(latest, **given, lost_records="rebuild")

    whole = {"sums": dict.fromkeys(keys[1:], 1)}
    assert life.run(latest, **given) == whole
    life.forget_all_folders()
    assert life.run(latest, (clicks, "k1", 1, 2), **given) == whole
