"""An application that Java has left: its topics, state, offsets and metadata as Kafka Streams writes them."""

from datetime import timedelta
from pathlib import Path
from struct import pack
from zlib import crc32

import pytest
from attrs import define, field

from streams import (
    CalendarWindows,
    EmbeddedBroker,
    InputError,
    Producer,
    State,
    Streams,
    StreamsBuilder,
    Topic,
    TopicPartition,
)
from streams.clients import Admin
from streams.comparison import Level
from streams.core.blocks.records import Block
from streams.core.settings.config import StreamsConfig
from streams.dsl import build_topology
from streams.protocol.group_messages import OffsetAndMetadata
from streams.runtime.tasks.offset_metadata import OffsetMetadata, OwnMetadata
from streams.takeover import Candidate, ClusterReader, Examination, PositionMark, as_json, as_text
from tests.waiting import until

words = Topic("words", key=str, value=str)
totals = Topic("totals", key=str, value=int)
CHANGELOG = "shop-counts-changelog"
#: The words of partition 0.
SENT = ["a", "b", "a", "a", "b"]


def counts(builder: StreamsBuilder) -> None:
    builder.stream(words).group_by_key().count("counts").to_stream().to(totals)


@define
class Java:
    """What an application in Java that counts words has left, in one partition."""

    broker: EmbeddedBroker
    _counts: dict[str, int] = field(factory=dict)
    _sent: int = 0

    def create(self) -> None:
        self.broker.create_topic("words", 1)
        self.broker.create_topic("totals", 1)
        self.broker.create_topic(CHANGELOG, 1, {"cleanup.policy": "compact"})

    def count(self, sent: list[str]) -> None:
        """Count words, and commit."""
        changes = []
        for word in sent:
            self._counts[word] = self._counts.get(word, 0) + 1
            changes.append((word.encode(), pack(">q", self._counts[word])))
        times = [1_000 * (self._sent + number) for number in range(len(sent))]
        self._sent += len(sent)
        keys, values = zip(*changes, strict=True)
        texts = [b"x"] * len(sent)
        for topic, column in (("words", texts), (CHANGELOG, list(values)), ("totals", list(values))):
            at = TopicPartition(topic, 0)
            self.broker.append(at, Block(list(keys), column, times, None, range(len(sent))))
        self.commit(OffsetMetadata(times[-1]).encode())

    def commit(self, metadata: str, offset: int | None = None) -> None:
        item = OffsetAndMetadata(self._sent if offset is None else offset, metadata)
        with Admin(self.broker) as admin:
            admin.alter_offsets("shop", {TopicPartition("words", 0): item})


@pytest.fixture
def java():
    with EmbeddedBroker(auto_create_topics=False) as broker:
        left = Java(broker)
        left.create()
        left.count(SENT)
        yield left


def examined(java, topology=counts, act=Examination.report, **given):
    settings = {"application_id": "shop"}
    config = StreamsConfig.of(**settings)
    question = Candidate(build_topology(topology, config), config, settings, **given)
    with Admin(java.broker) as admin, ClusterReader(java.broker, admin) as reader:
        return act(Examination.of(question, reader))


def offsets(java):
    """All that a cluster would show of a change."""
    with Admin(java.broker) as admin:
        committed = admin.committed_offsets("shop")
    return committed, {name: java.broker.end_offset(TopicPartition(name, 0)) for name in java.broker.topics()}


def said(report, level):
    return [f"{item.subject}: {item.says}" for item in report.findings if item.level is level]


def test_all_is_read_and_nothing_is_changed(java):
    before = offsets(java)

    report = examined(java)

    assert report.fits
    assert (report.offsets, report.known_offsets) == (1, 1)
    assert [(item.store, item.entries) for item in report.stores] == [("counts", len(SENT))]
    assert offsets(java) == before
    assert "shop: can go on here" in as_text(report)
    assert '"fits": true' in as_json(report)


@pytest.mark.slow
def test_a_member_or_no_offsets_cannot_be(java):
    settings = {"application_id": "shop", "default_store": "in_memory"}
    with Streams(counts, broker=java.broker, **settings) as app:
        until(lambda: app.state is State.RUNNING)

        (found,) = said(examined(java), Level.CANNOT)
        assert "stop all members" in as_text(examined(java))
    assert "1 member" in found
    assert examined(java).fits
    with EmbeddedBroker(auto_create_topics=False) as other:
        nothing = Java(other)
        nothing.create()

        assert "nothing to take over" in said(examined(nothing), Level.CANNOT)[0]


@pytest.mark.slow
def test_serdes_that_do_not_fit_are_named_with_store_and_offset(java):
    def other_keys(builder: StreamsBuilder) -> None:
        keyed = builder.stream(Topic("words", key=int, value=str))
        keyed.group_by_key().count("counts").to_stream().to(Topic("totals", key=int, value=int))

    report = examined(java, other_keys)

    (found,) = said(report, Level.CANNOT)
    assert found.startswith("store counts: 5 records of shop-counts-changelog cannot be read, the first one: ")
    assert "shop-counts-changelog-0, offset 0" in found


def test_another_name_of_a_store_cannot_be(java):
    def renamed(builder: StreamsBuilder) -> None:
        builder.stream(words).group_by_key().count("others").to_stream().to(totals)

    report = examined(java, renamed)

    assert "no changelog shop-others-changelog" in said(report, Level.CANNOT)[0]
    assert "its state is left behind" in said(report, Level.BUT)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metadata", "offset", "level", "text"),
    [
        ("by-hand", None, Level.BUT, "metadata of another tool"),
        ("", 9, Level.CANNOT, "ends at offset 5, and 9 is committed"),
    ],
)
def test_offsets_and_metadata_are_checked(java, metadata, offset, level, text):
    java.commit(metadata, offset)

    assert any(text in found for found in said(examined(java), level))


def test_the_times_of_closed_windows_are_shown(java):
    java.commit(OffsetMetadata(4_000, {"counts": 3_000}).encode())

    report = examined(java)

    assert report.emitted == {"counts": 3_000}
    assert "windows of counts were emitted up to 1970-01-01T00:00:03" in as_text(report)


# --- shadows ------------------------------------------------------------------------------


def from_beginning(examination):
    return examination.shadow(examination.beginning())


@pytest.mark.slow
def test_a_shadow_from_the_beginning_writes_what_java_wrote(java):
    before = offsets(java)

    shadow, findings = examined(java, act=from_beginning)

    assert findings == []
    assert shadow.inputs == len(SENT)
    (output,) = shadow.outputs
    assert (output.had, output.has, output.keys, output.equal) == (5, 5, 2, 2)
    assert offsets(java) == before


@pytest.mark.slow
def test_a_shadow_from_a_mark_begins_with_the_state_of_the_mark(java, tmp_path: Path):
    examined(java, act=Examination.mark).write(tmp_path / "shop.mark")
    java.count(["b", "c"])

    shadow, findings = examined(java, act=lambda it: it.shadow(PositionMark.read(tmp_path / "shop.mark")))

    assert findings == []
    (output,) = shadow.outputs
    assert (shadow.inputs, output.had, output.has, output.equal) == (2, 2, 2, 2)


def test_a_shadow_shows_which_keys_differ(java):
    def without_b(builder: StreamsBuilder) -> None:
        kept = builder.stream(words).filter(lambda key, value: key != "b")
        kept.group_by_key().count("counts").to_stream().to(totals)

    shadow, findings = examined(java, without_b, act=from_beginning)

    assert [item.level for item in findings] == [Level.CANNOT]
    assert "b: 2 was written last there, and nothing here" in findings[0].says
    assert (shadow.outputs[0].equal, shadow.outputs[0].only_there) == (1, 1)


@pytest.mark.slow
def test_a_shadow_that_fails_says_why(java):
    def failing(builder: StreamsBuilder) -> None:
        mapped = builder.stream(words).map_values(lambda value: str(int(value)))
        mapped.group_by_key().count("counts").to_stream().to(totals)

    shadow, findings = examined(java, failing, act=from_beginning)

    assert shadow is None
    assert "invalid literal" in findings[0].says


@pytest.mark.slow
def test_a_mark_that_compaction_has_passed_is_refused(java):
    mark = examined(java, act=Examination.mark)
    java.count(["a"])
    # As after a compaction: the entry of the mark is gone.
    java.broker.delete_records(TopicPartition(CHANGELOG, 0), 4)

    with pytest.raises(InputError, match=r"shop-counts-changelog-0 was compacted since the mark"):
        examined(java, act=lambda it: it.shadow(mark))


def test_more_records_than_allowed_are_refused(java):
    with pytest.raises(InputError, match="more than 3 records in memory"):
        examined(java, act=from_beginning, max_records=3)


@pytest.mark.slow
def test_a_beginning_that_is_deleted_is_refused(java):
    java.broker.delete_records(TopicPartition("words", 0), 2)

    with pytest.raises(InputError, match=r"words-0 begins at offset 2.*--mark FILE"):
        examined(java, act=from_beginning)


# --- and back -----------------------------------------------------------------------------


@pytest.mark.slow
def test_java_can_go_on_with_what_it_has(java):
    report = examined(java, gives_back=True)

    assert report.fits
    assert "empty state directory" in " ".join(as_text(report).split())


def test_what_java_does_not_have_cannot_be_given_back(java):
    def more(builder: StreamsBuilder) -> None:
        once = builder.stream(words).deduplicate(lambda key, value: value, within=timedelta(minutes=1), name="once")
        once.group_by_key().count("counts").to_stream().to(totals)

    found = said(examined(java, more, gives_back=True), Level.CANNOT)

    assert any("(of once)" in text and "Kafka Streams has no such operator" in text for text in found)


def test_records_that_were_processed_beyond_the_committed_offset_cannot_be_given_back(java):
    """Java knows only the offset: it would process them again."""
    java.commit(OffsetMetadata(1_000, own=OwnMetadata(lanes={1: 3, 2: 4})).encode())

    found = said(examined(java, gives_back=True), Level.CANNOT)

    assert found == [
        "words-0: has records processed beyond the committed offset, of 2 tasks upstream: Java would process them again"
    ]
    assert examined(java).fits


@pytest.mark.slow
@pytest.mark.parametrize("is_by_hash", [True, False])
def test_misplaced_keys_of_an_input_must_be_looked_at(is_by_hash):
    """A producer with librdkafka writes the words."""
    with EmbeddedBroker(auto_create_topics=False) as broker:
        for name in ("words", "totals", CHANGELOG):
            broker.create_topic(name, 4)
        partitioner = None if is_by_hash else lambda topic, key, value, count: crc32(key) % count
        with Producer(broker, partitioner=partitioner) as producer:
            for number in range(60):
                producer.send(words, "x", key=f"word-{number}", timestamp_ms=number)

        report = examined(Java(broker))

    found = [finding for finding in report.findings if "their hash" in finding.says]
    assert [(finding.level, finding.subject) for finding in found] == [(Level.BUT, "topic words")] * (not is_by_hash)
    assert all("CRC32 (the default of librdkafka" in finding.says for finding in found)


def test_a_calendar_is_said_before_java_goes_on(java):
    def days(builder: StreamsBuilder) -> None:
        builder.stream(words).group_by_key().windowed_by(CalendarWindows.days("Europe/Berlin")).count("counts")

    lines = said(examined(java, days, gives_back=True), Level.BUT)

    assert any(
        "store counts: (of " in line and "windows of a calendar (days of Europe/Berlin)" in line for line in lines
    )
