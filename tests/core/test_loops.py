"""The loops over records: compiled and plain ones do the same."""

import math
from array import array
from collections.abc import Callable
from enum import StrEnum
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.core.blocks import loops, plain_loops
from streams.core.blocks.records import Window, Windowed


def compiled() -> ModuleType:
    return pytest.importorskip("streams.core.blocks.compiled_loops", reason="installed without a C compiler")


@pytest.fixture(params=["compiled", "plain"])
def either(request: pytest.FixtureRequest) -> ModuleType:
    return compiled() if request.param == "compiled" else plain_loops


def test_installation_with_a_compiler_uses_the_compiled_loops():
    assert loops.windowed is compiled().windowed


def test_windowed_keys_are_those_of_their_class(either: ModuleType):
    key, window = ["no", "hash"], Window(1, 2)

    made, of_session = either.windowed(key, window), either.session_windowed("key", 1, 2)

    assert type(made) is Windowed
    assert made.key is key
    assert made.window is window
    assert of_session == Windowed("key", Window(1, 2))
    assert hash(of_session) == hash(Windowed("key", Window(1, 2)))
    assert type(of_session.window) is Window


def test_bytes_of_a_column(either: ModuleType):
    assert either.bytes_in([]) == 0
    assert either.bytes_in((b"ab", None, b"", bytearray(b"cde"), memoryview(b"f"))) == 6


def test_longest_of_a_column(either: ModuleType):
    assert either.longest_in([]) == 0
    assert either.longest_in((b"ab", None, bytearray(b"cde"), memoryview(b"f"))) == 3


@pytest.mark.parametrize("value", [None, True, 2**70, 1.5, "", [], {"a": [{"b": None}]}, [[[]] * 3]])
def test_values_of_json(either: ModuleType, value: Any):
    assert either.is_json(value)


@pytest.mark.parametrize("value", [b"", (), {1: 2}, {"a": [math.nan]}, [{"a": {1}}], [-math.inf], object(), StrEnum])
def test_values_that_json_has_not(either: ModuleType, value: Any):
    assert not either.is_json(value)


def test_rows_are_split_in_the_order_of_the_first_of_their_number(either: ModuleType):
    columns = (["a", "b", "c", "d", "e"], None, array("q", range(5)), range(5, 10))

    found = either.split_by_number([2, 0, 2, -1, 2**40], columns)

    assert list(found) == [2, 0, -1, 2**40]
    assert found[2] == (["a", "c"], None, array("q", [0, 2]), array("q", [5, 7]))
    assert either.split_by_number([], columns) == {}


def test_rows_of_one_number_are_not_copied(either: ModuleType):
    keys = ["a", "b"]

    assert either.split_by_number([7, 7], (keys, None))[7][0] is keys


def test_rows_that_are_taken_leave_none(either: ModuleType):
    column = ["a", "b", "c"]

    assert either.take_rows(column, array("q", [2, 0])) == ["c", "a"]
    assert column == [None, "b", None]


def test_the_highest_number_so_far(either: ModuleType):
    assert list(either.running_max([5, 3, 2**62, 7])) == [5, 5, 2**62, 2**62]
    assert list(either.running_max([-2, -3])) == [-2, -2]
    assert list(either.running_max([])) == []


def test_a_number_with_more_than_64_bits_is_an_error(either: ModuleType):
    with pytest.raises(OverflowError):
        either.int64([2**63])


small = st.integers(-1, 3)
#: Numbers that find their group in a table, and such that do not.
numbers = st.one_of(small, st.sampled_from([255, 256, 2**24, 2**24 + 1, -(2**63)]))


@given(st.lists(numbers, max_size=30), st.sampled_from([list, tuple, lambda items: array("q", items)]))
def test_compiled_loops_over_numbers_are_the_plain_ones(given_numbers: list[int], kind: Callable[[list[int]], Any]):
    column, count = kind(given_numbers), len(given_numbers)
    columns = (list(range(count)), tuple(range(count)), None, array("q", range(count)), range(3, 3 + count))
    plain = plain_loops.split_by_number(column, columns)
    own = compiled().split_by_number(column, columns)

    assert list(own.items()) == list(plain.items())
    assert [list(map(type, part)) for part in own.values()] == [list(map(type, part)) for part in plain.values()]
    assert compiled().runs_of(column) == plain_loops.runs_of(column)
    assert compiled().running_max(column) == plain_loops.running_max(column)
    assert compiled().last_by_number(column, range(count)) == plain_loops.last_by_number(column, range(count))


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(small, max_size=12).map(sorted)), min_size=1, max_size=9))
def test_compiled_merges_are_the_plain_ones(inputs: list[tuple[int, list[int]]]):
    starts, columns = zip(*inputs, strict=True)
    order = plain_loops.merge_order(columns)

    assert compiled().merge_order(columns) == order
    for kind in (list, tuple, lambda items: items, lambda items: array("q", items)):
        rows = [kind(range(start + len(column))) for start, column in inputs]
        assert compiled().interleaved(order, rows, starts) == plain_loops.interleaved(order, rows, starts)
    tens = [10 * index for index in range(len(columns))]
    assert compiled().look_up(order, tens) == plain_loops.look_up(order, tens)


times = st.one_of(st.integers(0, 300), st.integers(0, 2**62))


@given(st.lists(st.tuples(times, times), max_size=20), st.binary(max_size=3))
def test_compiled_places_on_the_wire_are_the_plain_ones(rows: list[tuple[int, int]], before: bytes):
    timestamps, places = [time for time, _ in rows], [place for _, place in rows]
    encoded = plain_loops.encoded_places(places, timestamps)

    assert compiled().encoded_places(places, timestamps) == encoded
    decoded = compiled().decoded_places(before + encoded, len(before), timestamps, bool(encoded))
    assert decoded == plain_loops.decoded_places(before + encoded, len(before), timestamps, bool(encoded))
    assert list(decoded[0]) == (places if encoded else list(plain_loops.running_max(timestamps)))


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"\x00", IndexError), (b"\x00\x80", IndexError), (b"\x00" + b"\xfe" + b"\xff" * 8 + b"\x01", OverflowError)],
)
def test_differences_that_are_no_places_are_an_error(either: ModuleType, content: bytes, error: type[Exception]):
    with pytest.raises(error):
        either.decoded_places(content, 0, [1, 2], True)


@given(st.lists(st.tuples(small, st.integers(0, 2)), max_size=20))
def test_compiled_places_of_outputs_are_the_plain_ones(rows: list[tuple[int, int]]):
    """Each row leads to so many outputs; their place is the highest one of the rows so far."""
    expected = [
        max(0, *(place for place, _ in rows[: index + 1]))
        for index, (_, count) in enumerate(rows)
        for _ in range(count)
    ]
    for module in (plain_loops, compiled()):
        column: list[int] = []
        noted = array("q")
        placed = module.PlacedRows(0, [(column, noted)])
        for time, (_, count) in zip(placed.over(range(len(rows)), [place for place, _ in rows]), rows, strict=True):
            column.extend([time] * count)
        placed.note()
        assert list(noted) == expected


@pytest.mark.parametrize(
    ("text", "is_time", "is_decimal"),
    [
        ('{"a":"2026-01-01T23:59:59.9999996Z"}', True, False),
        ('{"a":"23:59:59.9999999"}', True, False),
        ('{"a":"2026-01-01T23:59:59.999999Z"}', False, False),
        ('{"lat":12.12345678,"b.c":"1234567"}', False, False),
        ('{"a":"1_0"}', False, True),
        ('{"a":"-_1"}', False, True),
        ('{"a":" NaN"}', False, True),
        ('{"a":"sNaN12"}', False, True),
        ('{"a":"-inf"}', False, True),
        ('{"a":"Infinity"}', False, True),
        ('{"a":"1\u0662"}', False, True),
        (r'{"a":"\u0661"}', False, True),
        ('{"a_b":"x_1","info":"-1.5e3","name":"2","e":"_"}', False, False),
        ('{"a":"\xe9\u65e5\u672c"}', False, False),
        ('"', False, False),
        ("", False, False),
    ],
)
def test_json_that_is_not_read_as_it_is_written(either: ModuleType, text: str, is_time: bool, is_decimal: bool):
    data = text.encode()

    assert (either.is_inexact(data, True, False), either.is_inexact(data, False, True)) == (is_time, is_decimal)
    assert either.is_inexact([None, b"1", data], True, True) == (is_time or is_decimal)
    assert not either.is_inexact([data], False, False)
