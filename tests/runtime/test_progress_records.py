"""The format of the progress topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import ForeignFormatError, TopicPartition
from streams.core.blocks.records import TaskId, lane_of
from streams.runtime.in_step.progress_records import ProgressRecord, progress_partition
from streams.runtime.tasks.progress import MarkState, TaskMark

AT = TopicPartition("shop-progress", 0)

lanes = st.builds(lane_of, st.builds(TaskId, st.integers(0, 200), st.integers(0, 10_000)))
places = st.integers(-1, 2**53)
awaited = st.builds(TaskMark, places, st.sampled_from([MarkState.BEHIND, MarkState.RESTORING]), st.integers(0, 2**40))
at_end = st.builds(TaskMark, places, st.just(MarkState.AT_END), st.just(0))
records = st.builds(
    ProgressRecord,
    st.text(max_size=50),
    st.integers(-1, 2**31 - 1),
    st.dictionaries(lanes, awaited | at_end, max_size=50),
    st.integers(0, 2**31 - 1),
)


@given(records)
def test_records_come_back_as_they_were(record):
    assert ProgressRecord.decode(record.encode(), AT, 0) == record


def test_a_thousand_tasks_fit_into_a_few_kilobytes():
    """All at about the same time: some 5 bytes each."""
    marks = {lane_of(TaskId(1, n)): TaskMark(1_700_000_000_000 + 37 * n, MarkState.BEHIND, 9_000) for n in range(1_000)}
    record = ProgressRecord("shop-1234-thread-1", 7, marks)

    value = record.encode()

    assert ProgressRecord.decode(value, AT, 0) == record
    assert len(value) < 5_000


@pytest.mark.parametrize("value", [None, b"", b"hello", b"\xf5P\x02more", ProgressRecord("a", 1).encode()[:-1]])
def test_other_bytes_are_refused_with_their_place_and_a_remedy(value):
    with pytest.raises(ForeignFormatError, match=r"'shop-progress', offset 17: .* it can be deleted") as caught:
        ProgressRecord.decode(value, AT, 17)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("shop-progress", 0, 17)


def test_record_of_another_release_says_so():
    with pytest.raises(ForeignFormatError, match="of version 9, which another release"):
        ProgressRecord.decode(b"\xf5P\x09", AT, 0)


def test_topic_belongs_to_the_application():
    assert progress_partition("shop") == AT
