"""Every entry is read with the serdes of the script: what can be read, and what not, by bytes."""

from struct import pack

import pytest

from streams import CalendarWindows, TopicPartition
from streams.comparison import Level
from streams.core.blocks.records import Block
from streams.core.serdes.serdes import LONG, STRING, Serde
from streams.state import KEY_VALUE, SESSION, TIMESTAMPED_KEY_VALUE_WITH_HEADERS, WINDOW, StoreSpec
from streams.takeover.checks import of_readings
from streams.takeover.readings import EntryReader

AT = TopicPartition("app-sums-changelog", 1)


def spec(kind=KEY_VALUE, key=STRING, value=LONG, **given):
    return StoreSpec("sums", kind, key, value, **given)


def reading(spec, *entries, begin=5):
    reader = EntryReader.of_store(spec, AT.topic)
    keys, values = zip(*entries, strict=True)
    offsets = range(begin, begin + len(entries))
    reader.take(AT, Block(list(keys), list(values), [0] * len(entries), None, offsets))
    return reader.reading


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        (spec(), b"ann"),
        (spec(WINDOW, retention_ms=10, window_size_ms=5), b"ann" + pack(">qi", 1_000, 0)),
        (spec(SESSION, retention_ms=10), b"ann" + pack(">qq", 2_000, 1_000)),
    ],
)
def test_entries_and_deletions_are_counted(spec, key):
    found = reading(spec, (key, pack(">q", 3)), (key, None))

    assert (found.entries, found.deletions, found.unreadable, found.other_keys) == (1, 1, 0, 0)


def test_what_cannot_be_read_is_counted_with_its_first_place_and_reason():
    found = reading(spec(), (b"ann", pack(">q", 3)), (b"bob", b"3"), (b"\xff", pack(">q", 3)))

    assert (found.read, found.unreadable) == (1, 2)
    assert found.first is not None
    assert (found.first.partition, found.first.offset) == (AT, 6)
    assert "8 bytes" in found.first.reason


def test_keys_of_another_kind_of_store_are_not_read():
    found = reading(spec(WINDOW, retention_ms=10, window_size_ms=5), (b"ann", pack(">q", 3)))

    assert found.unreadable == 1
    assert "WindowKeySchema" in str(found.first)


def test_windows_that_a_calendar_has_not_are_not_read():
    """Java's windows of a day, in UTC, under the name of a store with days of Berlin."""
    days = CalendarWindows.days("Europe/Berlin").calendar
    utc_ms, berlin_ms = 20_000 * 86_400_000, days.window_of(20_000 * 86_400_000).start_ms
    own = spec(WINDOW, retention_ms=10, window_size_ms=90_000_000, calendar=days)
    found = reading(own, *((b"ann" + pack(">qi", start_ms, 0), pack(">q", 3)) for start_ms in (berlin_ms, utc_ms)))

    assert (found.read, found.unreadable) == (1, 1)
    assert "it has a window from 2024-10-04T00:00:00Z, which the days of Europe/Berlin have not" in str(found.first)


def test_entries_with_headers_are_counted_but_not_those_of_versions_and_positions():
    """Nor those of deletions, which no store keeps."""
    reader = EntryReader.of_store(spec(), AT.topic)
    headers = [(("trace", b"1"),), (("c", b"\0"), ("v", b"\3"), ("vh.old", b"\0")), (), (("trace", b"2"),)]
    values = [*[pack(">q", 1)] * 3, None]
    reader.take(AT, Block([b"a", b"b", b"c", b"d"], values, [0] * 4, headers, range(4)))

    assert (reader.reading.entries, reader.reading.with_headers) == (3, 1)
    (found,) = of_readings([reader.reading])
    assert (found.level, found.subject) == (Level.BUT, "store sums")
    assert "1 entry of app-sums-changelog with headers" in found.says


@pytest.mark.parametrize(
    "kept",
    [
        spec(TIMESTAMPED_KEY_VALUE_WITH_HEADERS),
        spec(WINDOW, retain_duplicates=True, retention_ms=10, window_size_ms=5),
    ],
    ids=["with headers", "of a join"],
)
def test_headers_that_are_kept_or_that_nothing_reads_are_not_counted(kept: StoreSpec):
    reader = EntryReader.of_store(kept, AT.topic)
    reader.take(AT, Block([b"a" * 13], [pack(">q", 1)], [0], [(("trace", b"1"),)], range(1)))

    assert reader.reading.with_headers == 0


def test_keys_that_get_other_bytes_are_counted():
    lower: Serde[str] = Serde("lower", lambda text: text.lower().encode(), bytes.decode)
    found = reading(spec(key=lower), (b"Ann", pack(">q", 3)), (b"bob", pack(">q", 3)))

    assert (found.entries, found.other_keys, found.other_values) == (2, 1, 0)
    assert "b'Ann' becomes b'ann'" in str(found.example)
