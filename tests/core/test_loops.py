"""The loops over records: compiled and plain ones do the same."""

from types import ModuleType

import pytest

from streams.core import loops, plain_loops
from streams.core.records import Window, Windowed


def compiled() -> ModuleType:
    return pytest.importorskip("streams.core.compiled_loops", reason="installed without a C compiler")


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


def test_rows_by_number_come_in_the_order_of_their_first(either: ModuleType):
    found = either.rows_by_number(iter([2, 0, 2, 1, 0]))

    assert list(found.items()) == [(2, [0, 2]), (0, [1, 4]), (1, [3])]
    assert either.rows_by_number([]) == {}


def test_places_of_an_input_follow_its_highest_timestamp(either: ModuleType):
    assert either.head_places([5, 3, 2**62, 7], 3, 1) == [16, 16, 3 * 2**62 + 1, 3 * 2**62 + 1]
    assert either.head_places(iter([-1]), 2, 1) == [-1]
    assert either.head_places([], 2, 1) == []
