"""Which frames count: each begins where the one before it ends."""

from attrs import evolve

from streams.capsule.chain import chains
from streams.core.blocks.records import TaskId, TopicPartition
from streams.runtime import Frame, Opening

PLACE = TopicPartition("orders", 0)


def frame(run: str, number: int, end: int, start: int | None = None, opened_ms: int = 0) -> Frame:
    opening = None if start is None else Opening(opened_ms, {PLACE: start}, {}, {})
    return Frame(TaskId(0, 0), run, number, end, [PLACE], {PLACE: end}, {}, {}, [], {}, 0, opening, 0, b"")


def ends(*frames: Frame) -> list[tuple[str, int]]:
    (chain,) = chains(frames).values()
    return [(found.run, found.end[PLACE]) for found in chain.frames]


def test_a_frame_whose_commit_did_not_take_place_is_discarded():
    assert ends(frame("a", 0, 5, 0), frame("a", 1, 9), frame("b", 0, 7, 5)) == [("a", 5), ("b", 7)]


def test_a_frame_of_a_former_owner_is_discarded():
    assert ends(frame("a", 0, 5, 0), frame("b", 0, 7, 5), frame("a", 1, 9), frame("b", 1, 8)) == [
        ("a", 5),
        ("b", 7),
        ("b", 8),
    ]


def test_the_first_frame_of_a_former_owner_is_discarded_if_it_arrives_late():
    current = frame("b", 0, 9, 0, opened_ms=20), frame("b", 1, 12)
    late = frame("a", 0, 5, 0, opened_ms=10)
    assert ends(current[0], late, current[1]) == [("b", 9), ("b", 12)]


def test_a_task_that_is_opened_where_it_began_has_no_gap():
    (chain,) = chains([frame("a", 0, 5, 0), frame("b", 0, 7, 0)]).values()
    assert ([found.run for found in chain.frames], chain.gaps, chain.discarded) == (["b"], 0, 1)


def test_a_chain_begins_after_missing_frames():
    assert ends(frame("a", 0, 5, 0), frame("a", 2, 9), frame("a", 3, 11)) == [("a", 9), ("a", 11)]
    assert ends(frame("a", 0, 5, 0), frame("b", 0, 12, 9)) == [("b", 12)]


def test_a_frame_is_read_as_it_was_written():
    written = evolve(frame("a", 0, 5, 0), order=b"\x00\x02\x00\x05")
    assert Frame.decoded(written.encoded()) == written
    assert [(step.kind, step.now_ms, step.count) for step in written.steps] == [("took", 1, 5)]
