"""What travels with committed offsets and in manifests."""

import base64
import json

import pytest

from streams import ForeignFormatError, PunctuationType
from streams.core.records import TopicPartition
from streams.runtime.checkpoint import CarriedTimer, Checkpoint, TimerPlace, group_of_metadata, is_of_others

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME
FIRST, SECOND = TopicPartition("a", 0), TopicPartition("b", 0)

FULL = Checkpoint(
    70,
    {FIRST: 70, SECOND: 60},
    3,
    {"window": 65, "window/emitted": 50},
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
    assert [group_of_metadata(note) for note in notes.values()] == [3, 3]


def test_note_without_timers_does_not_speak_of_them():
    assert Checkpoint(70, {FIRST: 70}).offset_metadata([FIRST]) == {FIRST: '{"v":1,"p":70,"s":70,"o":{}}'}


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


def test_notes_of_others_count_as_empty():
    assert Checkpoint.from_metadata({FIRST: "set by hand", SECOND: "[1]"}) == Checkpoint(
        partition_times={FIRST: -1, SECOND: -1}
    )


def test_json_brings_back_all_fields():
    for checkpoint in (FULL, Checkpoint()):
        read = Checkpoint.from_json(json.loads(json.dumps(checkpoint.to_json())))

        assert read == checkpoint
        assert list(read.timers) == list(checkpoint.timers)


@pytest.mark.parametrize("note", ['{"p":70,"s":70,"o":{}}', '{"v":2,"p":70}'])
def test_notes_of_another_release_are_refused(note):
    with pytest.raises(ForeignFormatError, match="the committed offset of a-0 has metadata"):
        Checkpoint.from_metadata({FIRST: note})


def test_the_note_of_kafka_streams_counts_as_that_of_another_client():
    note = base64.b64encode(b"\x02" + (70).to_bytes(8, "big") + bytes(4)).decode()

    assert is_of_others(note)
    assert Checkpoint.from_metadata({FIRST: note}).partition_times == {FIRST: -1}
    assert not is_of_others("")
    assert not is_of_others(FULL.offset_metadata([FIRST])[FIRST])
