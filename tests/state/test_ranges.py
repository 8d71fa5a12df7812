"""Ranges of keys whose bytes are in another order than the keys."""

import re
from datetime import timedelta

import pytest

from streams import StoreError, StreamsBuilder, TimeWindows, Topic
from streams.testing import TopologyTestDriver

readings = Topic("readings", key=int, value=int)


def topology(builder: StreamsBuilder) -> None:
    grouped = builder.stream(readings).group_by_key()
    grouped.count("plain")
    grouped.windowed_by(TimeWindows.of(timedelta(seconds=1))).count("windowed")


@pytest.fixture
def read():
    with TopologyTestDriver(topology) as driver:
        for degrees in (-7, -2, 0, 3, 9):
            driver.pipe(readings, 1, key=degrees, timestamp_ms=0)
        yield driver.store


@pytest.mark.parametrize(("low", "high"), [(-5, 5), (-1, 0), (1, -1)])
def test_range_of_keys_that_have_another_order_as_bytes_is_an_error(read, low, high):
    """The bytes of negative numbers are behind those of others: the range by bytes would be empty, or another one."""
    message = re.escape(f"no range from {low} to {high}: keys are ordered by their bytes in serde 'long'")

    with pytest.raises(StoreError, match=f"store 'plain': {message}"):
        list(read("plain").range(low, high))
    with pytest.raises(StoreError, match=f"store 'plain': {message}"):
        list(read("plain").reverse_range(low, high))
    with pytest.raises(StoreError, match=f"store 'windowed': {message}"):
        list(read("windowed").fetch_keys(low, high, 0, 0))


@pytest.mark.parametrize(
    ("low", "high", "found"), [(-5, -1, [-2]), (0, 5, [0, 3]), (5, 0, []), (-1, -5, []), (3, 3, [3]), (-2, -2, [-2])]
)
def test_range_without_a_change_of_sign_has_its_keys(read, low, high, found):
    assert [key for key, _ in read("plain").range(low, high)] == found
