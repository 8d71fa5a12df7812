"""Timestamp extractors: policies, block forms, users' own functions."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.clock import VirtualClock
from streams.core.errors import InvalidTimestampError
from streams.core.event_time.timestamps import Extractor, declared_time, extractor_for, to_milliseconds


def extractor(policy: Any = "fail_on_invalid", **more: Any) -> Extractor:
    return extractor_for("clicks", policy=policy, clock=VirtualClock(77), **more)


@pytest.mark.parametrize("policy", ["fail_on_invalid", "log_and_skip", "use_partition_time"])
def test_valid_timestamps_are_taken_as_they_are(policy: str) -> None:
    assert extractor(policy).block(["a", "b"], [5, 0]) == [5, 0]
    assert extractor(policy).block([], []) == []
    assert extractor(policy).one("k", "v", 5, 9) == 5


@pytest.mark.parametrize("policy", ["fail_on_invalid", "log_and_skip", "use_partition_time"])
def test_block_with_an_invalid_timestamp_goes_record_by_record(policy: str) -> None:
    assert extractor(policy).block(["a", "b"], [5, -1]) is None


def test_invalid_timestamp_fails_by_default() -> None:
    with pytest.raises(InvalidTimestampError, match=r"'clicks'.*-1"):
        extractor().one("k", "v", -1, 10)


def test_invalid_timestamp_may_be_skipped() -> None:
    assert extractor("log_and_skip").one("k", "v", -1, 10) == -1


def test_partition_time_stands_in_once_it_is_known() -> None:
    assert extractor("use_partition_time").one("k", "v", -1, 10) == 10
    with pytest.raises(InvalidTimestampError, match="no record before it"):
        extractor("use_partition_time").one("k", "v", -1, -1)


def test_wall_clock_ignores_the_record() -> None:
    assert extractor("wall_clock").block(["a", "b"], [-1, 5]) == [77, 77]
    assert extractor("wall_clock").one("k", "v", 5, 5) == 77


def test_time_is_that_of_the_value() -> None:
    by_value = declared_time("clicks", lambda value: value["at"])

    assert by_value.block([{"at": 3}, {"at": datetime(1970, 1, 1, 0, 0, 1)}], [0, 0]) == [3, 1000]
    assert by_value.one(None, {"at": -5}, 0, 0) == -5


def test_tombstone_keeps_its_records_timestamp() -> None:
    by_value = declared_time("clicks", lambda value: value["at"])

    assert by_value.block([{"at": 3}, None], [0, 8]) is None
    assert by_value.one("k", None, 8, 0) == 8
    with pytest.raises(InvalidTimestampError, match="tombstone"):
        by_value.one("k", None, -1, 0)


@pytest.mark.parametrize("bad", [None, 1.5, "2024", True, 2**63])
def test_wrong_type_from_the_users_function_names_the_topic(bad: Any) -> None:
    for failing in (declared_time("clicks", lambda value: bad), extractor(lambda key, value, time, partition: bad)):
        assert failing.block(["v"], [1]) is None
        with pytest.raises(InvalidTimestampError, match="'clicks'"):
            failing.one("k", "v", 1, 1)


def test_failure_of_the_users_function_names_the_topic_and_keeps_its_cause() -> None:
    with pytest.raises(InvalidTimestampError, match=r"'clicks'.*KeyError") as caught:
        declared_time("clicks", lambda value: value["at"]).one("k", {}, 1, 1)

    assert isinstance(caught.value.__cause__, KeyError)


def test_own_function_sees_record_and_partition_time() -> None:
    assert extractor(lambda key, value, time, partition: key + value + time + partition).one(1, 20, 300, 4000) == 4321


def test_own_extractor_is_taken_as_it_is() -> None:
    own = extractor("log_and_skip")

    assert extractor(own) is own


@given(st.datetimes(datetime(1900, 1, 1), datetime(3000, 1, 1)), st.integers(-12, 12))
def test_datetime_to_milliseconds_is_exact(moment: datetime, hours: int) -> None:
    """Naive is UTC; microseconds are cut; the offset counts."""
    expected = (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    aware = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=hours)))

    assert to_milliseconds(moment) == to_milliseconds(aware) == expected
