"""The loops over keys and values of stores: compiled and plain ones do the same."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.state import loops, plain_loops
from streams.state.views.windowed_keys import SESSION_SUFFIX, WINDOW_SUFFIX

times = st.integers(-1, 2**63 - 1)
second_bytes = st.sampled_from([(4, st.integers(0, 2**31 - 1)), (8, times)])


def compiled() -> ModuleType:
    return pytest.importorskip("streams.state.compiled_loops", reason="installed without a C compiler")


@pytest.fixture(params=["compiled", "plain"])
def either(request: pytest.FixtureRequest) -> ModuleType:
    return compiled() if request.param == "compiled" else plain_loops


def test_installation_with_a_compiler_uses_the_compiled_loops():
    assert loops.timed_keys is compiled().timed_keys


def test_keys_get_a_prefix(either: ModuleType):
    assert either.prefixed(b"ab", iter([b"", b"c", bytearray(b"d")])) == [b"ab", b"abc", b"abd"]
    assert either.prefixed(b"", (b"c",)) == [b"c"]


def test_timed_keys_have_the_times_behind_the_key(either: ModuleType):
    assert either.timed_keys([b"a", b""], [("a", 258), ("", 3)], 4) == [
        b"a" + WINDOW_SUFFIX.pack(258, 0),
        WINDOW_SUFFIX.pack(3, 0),
    ]
    assert either.timed_keys([b"a"], [("a", 2, 1)], 8) == [b"a" + SESSION_SUFFIX.pack(2, 1)]


def test_timed_values_have_their_time_before_them(either: ModuleType):
    assert either.timed_values((b"a", None, b""), (258, 1, -1)) == [b"\0\0\0\0\0\0\1\2a", None, b"\xff" * 8]
    with pytest.raises(ValueError):
        either.timed_values([b"a", b"b"], [1])


def test_other_buffers_become_bytes(either: ModuleType):
    (value,) = either.timed_values([bytearray(b"a")], [0])
    (key,) = either.timed_keys([bytearray(b"a")], [("a", 0)], 4)

    assert (type(value), type(key)) == (bytes, bytes)


def test_timed_keys_want_a_slot_for_each_key(either: ModuleType):
    with pytest.raises(ValueError):
        either.timed_keys([b"a", b"b"], [("a", 1)], 4)


@given(st.data(), second_bytes)
def test_compiled_and_plain_timed_keys_agree(data: st.DataObject, second: tuple[int, st.SearchStrategy[int]]):
    size, seconds = second
    rows: list[tuple[bytes, tuple[Any, ...]]] = data.draw(
        st.lists(st.tuples(st.binary(max_size=20), st.tuples(st.none(), times, seconds)), max_size=10)
    )
    keys, slots = [key for key, _ in rows], [slot for _, slot in rows]

    assert compiled().timed_keys(keys, slots, size) == plain_loops.timed_keys(keys, slots, size)
