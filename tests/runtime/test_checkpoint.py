"""What travels with committed offsets and in manifests."""

import base64
import json
from struct import pack

import pytest
from attrs import evolve

from streams import ForeignFormatError, PunctuationType
from streams.core.blocks.records import TopicPartition
from streams.runtime.tasks.checkpoint import CarriedTimer, Checkpoint, TimerPlace, is_of_others, own_metadata

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME
FIRST, SECOND = TopicPartition("a", 0), TopicPartition("b", 0)

FULL = Checkpoint(
    70,
    {FIRST: 70, SECOND: 60},
    3,
    {"window": 65, "join/earliest": 50, "/counts": 40},
    {
        TimerPlace("tick", 1): CarriedTimer(STREAM, 10, 80),
        TimerPlace("tick", 0): CarriedTimer(STREAM, 20, 80),
        TimerPlace("beat", 0): CarriedTimer(WALL, 5, 1234),
        TimerPlace("once", 0): CarriedTimer(STREAM, 7, None),
    },
)


def test_notes_bring_back_times_and_timers_in_their_order():
    notes = FULL.offset_metadata([FIRST, SECOND])
    read = Checkpoint.from_metadata(notes)

    assert (read.stream_time_ms, read.partition_times, read.operator_times) == (
        FULL.stream_time_ms,
        FULL.partition_times,
        FULL.operator_times,
    )
    assert list(read.timers.items()) == list(FULL.timers.items())
    assert [own_metadata(note).group for note in notes.values()] == [3, 3]


def test_a_note_is_that_of_kafka_streams_with_our_own_behind_it():
    """Every partition has the times of emitted windows, the first one the times that only we keep."""
    head = b"\x02" + pack(">q", 70) + pack(">ii", 1, 6) + b"counts" + pack(">q", 40)
    notes = Checkpoint(70, {FIRST: 70, SECOND: 70}, 3, {"/counts": 40}).offset_metadata([FIRST, SECOND])

    assert base64.b64decode(notes[FIRST]) == head + b"\x03" + b"\x01\x01\x06" + b"\x03\x02\x8c\x01"
    assert base64.b64decode(notes[SECOND]) == head + b"\x03" + b"\x01\x01\x06"


def test_of_several_tasks_the_latest_time_counts_and_a_timer_that_one_still_has():
    place = TimerPlace("tick", 0)

    def read(*dues):
        notes = {}
        for number, due_ms in enumerate(dues):
            partition = TopicPartition("a", number)
            notes |= Checkpoint(timers={place: CarriedTimer(STREAM, 10, due_ms)}).offset_metadata([partition])
        return Checkpoint.from_metadata(notes).timers[place].due_ms

    assert read(20, 40, 30) == 40
    assert read(None, 20, None) == 20
    assert read(None, None) is None


def test_notes_bring_back_lanes_and_the_number_of_groups():
    saved = evolve(FULL, groups={FIRST: 8, SECOND: 8}, lanes={SECOND: {0: 7, 5: 1_000}})
    read = Checkpoint.from_metadata(saved.offset_metadata([FIRST, SECOND]))

    assert (read.groups, read.lanes) == ({FIRST: 8, SECOND: 8}, {SECOND: {0: 7, 5: 1_000}})


def test_notes_of_others_count_as_empty():
    assert Checkpoint.from_metadata({FIRST: "set by hand", SECOND: "[1]"}) == Checkpoint(
        partition_times={FIRST: -1, SECOND: -1}
    )


def test_json_brings_back_all_fields():
    for checkpoint in (FULL, Checkpoint()):
        read = Checkpoint.from_json(json.loads(json.dumps(checkpoint.to_json())))

        assert read == checkpoint
        assert list(read.timers) == list(checkpoint.timers)


def in_base64(*parts: bytes) -> str:
    return base64.b64encode(b"".join(parts)).decode()


HEAD = b"\x02" + pack(">qi", 70, 0)


@pytest.mark.parametrize("note", ['{"p":70,"s":70,"o":{}}', '{"v":1,"p":70}', in_base64(HEAD, b'{"v":2}')])
def test_notes_of_another_release_are_refused(note):
    with pytest.raises(ForeignFormatError, match="the committed offset of a-0 has metadata"):
        Checkpoint.from_metadata({FIRST: note})


@pytest.mark.parametrize(
    ("note", "partition_time_ms", "times"),
    [
        (in_base64(b"\x01", pack(">q", 70)), 70, {}),
        (in_base64(b"\x02", pack(">q", 70)), 70, {}),
        (in_base64(b"\x02", pack(">qii", 70, 2, 1), b"a", pack(">q", 8), pack(">i", 2), b"\xc3\xa4", pack(">q", -1)),
         70, {"/a": 8, "/ä": -1}),
    ],
)  # fmt: skip
def test_the_note_of_kafka_streams_is_read(note, partition_time_ms, times):
    read = Checkpoint.from_metadata({FIRST: note})

    assert not is_of_others(note)
    assert (read.partition_times, read.stream_time_ms) == ({FIRST: partition_time_ms}, partition_time_ms)
    assert read.operator_times == times


@pytest.mark.parametrize(
    "note",
    [
        "set by hand",
        "[1]",
        in_base64(b"\x02", pack(">q", 70)[:-1]),
        in_base64(b"\x03", pack(">q", 70)),
        in_base64(b"\x02", pack(">qii", 70, 1 << 30, -12)),
        in_base64(b"\x02", pack(">qii", 70, 2, 1), b"a", pack(">q", 8)),
    ],
)
def test_a_note_that_nobody_reads_is_of_others(note):
    assert is_of_others(note)
    assert Checkpoint.from_metadata({FIRST: note}) == Checkpoint(partition_times={FIRST: -1})


def test_no_note_and_a_note_of_ours_are_not_of_others():
    assert not is_of_others("")
    assert not is_of_others(FULL.offset_metadata([FIRST])[FIRST])
