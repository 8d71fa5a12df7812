"""Serdes pinned by the first object: bytes of the declared serde, one type, names."""

import math
import pickle
import threading
from collections import Counter
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID as Uuid

import pytest
from attrs import define, frozen

from streams.core.blocks.records import Window, Windowed
from streams.core.errors import SerializationError
from streams.core.serdes.serdes import PinnedSerde, serde_for, session_windowed, time_windowed_ms


@frozen
class Visit:
    page: str


@define
class Basket:
    items: list[int]

    @frozen
    class Line:
        sku: str


class Pair(NamedTuple):
    left: int
    right: int


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "form", "name"),
    [
        ("a", str, "string"),
        (1, int, "long"),
        (1.5, float, "double"),
        (True, bool, "boolean"),
        (b"x", bytes, "bytes"),
        (Uuid(int=1), Uuid, "uuid"),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime, "datetime"),
        ({"b": 1, "a": [None]}, dict, "json"),
        ([1, "x"], list, "json"),
        ((1, "x"), tuple, "tuple"),
        ({1, 2}, set, "class:builtins:set"),
        (Visit("x"), Visit, f"class:{__name__}:Visit"),
        (Basket.Line("x"), Basket.Line, f"class:{__name__}:Basket.Line"),
        (Pair(1, 2), Pair, f"class:{__name__}:Pair"),
        (Colour.RED, Colour, f"class:{__name__}:Colour"),
    ],
)
def test_first_object_pins_the_declared_serde_of_its_type(value: object, form: Any, name: str) -> None:
    serde = PinnedSerde("node")
    assert not serde.is_pinned

    data = serde.serialize(value)

    assert data == serde_for(form).serialize(value)
    assert serde.type_name == name
    assert serde.deserialize(data) == value
    assert type(serde.deserialize(data)) is type(value)
    assert serde.is_immutable == serde_for(form).is_immutable
    assert serde.serialize_all([value, None]) == [data, None]
    assert serde.deserialize_all([data, None]) == [value, None]


def test_stored_name_pins_before_any_object(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())
    for value in ("a", 1, {"a": 1}, (1, 2), Visit("x"), Basket.Line("y"), Windowed("a", Window(0, 1))):
        first = PinnedSerde("node")
        data = first.serialize(value)
        again = PinnedSerde("node", first.type_name)

        assert again.type_name == first.type_name
        assert again.deserialize(data) == value
        assert again.serialize(value) == data


def _this_module() -> Any:
    import types

    module = types.ModuleType(__name__)
    module.__dict__.update(globals())
    return module


def test_none_pins_nothing() -> None:
    serde = PinnedSerde("node")

    assert serde.serialize(None) is None
    assert serde.deserialize(None) is None
    assert serde.serialize_all([None]) == [None]
    assert not serde.is_pinned


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", 1),
        (1, True),
        (True, 1),
        (1, 1.0),
        (1.0, 1),
        ("a", b"a"),
        ({"a": 1}, "a"),
        (Visit("a"), Basket([])),
        ([1], (1,)),
    ],
)
def test_another_type_later_is_an_error_that_names_the_node(first: object, second: object) -> None:
    serde = PinnedSerde("group-by-7")
    serde.serialize(first)

    for write in (serde.serialize, lambda value: serde.serialize_all([first, value])):
        with pytest.raises(SerializationError, match=r"group-by-7.*first made"):
            write(second)
    with pytest.raises(SerializationError, match="group-by-7"):
        PinnedSerde("group-by-7").serialize_all([first, second])


def test_functions_taken_out_before_pinning_go_on_working() -> None:
    serde = PinnedSerde("node")
    serialize, serialize_all, deserialize = serde.serialize, serde.serialize_all, serde.deserialize

    assert serialize_all([None, "a"]) == [None, b"a"]
    assert deserialize(b"b") == "b"
    with pytest.raises(SerializationError):
        serialize(1)


def test_bytes_before_the_type_is_known_are_an_error() -> None:
    with pytest.raises(SerializationError, match="no type for them yet"):
        PinnedSerde("node").deserialize(b"a")


def test_pinning_again_is_harmless_but_not_to_another_type() -> None:
    serde = PinnedSerde("node", "string")

    serde.pin("string")
    with pytest.raises(SerializationError, match=r"'node' is pinned to string.*long"):
        serde.pin("long")


@pytest.mark.parametrize(
    "name",
    [
        "colour",
        "class:",
        "class:no.such.module:X",
        f"class:{__name__}:f.<locals>.X",
        "class:math:pi",
        "time_windowed:x:string",
        "",
    ],
)
def test_name_that_cannot_be_resolved_is_an_error(name: str) -> None:
    with pytest.raises(SerializationError, match="node"):
        PinnedSerde("node", name)


@pytest.mark.parametrize(
    "value",
    [{"a": (1, 2)}, {1: "a"}, [Visit("x")], {"a": b"x"}, {"at": datetime(2024, 1, 1)}, (1, (2,)), {"a": math.nan}],
)
def test_object_that_json_would_not_give_back_is_refused(value: object) -> None:
    """Nobody declared it JSON, so nothing in it may quietly change its type."""
    with pytest.raises(SerializationError, match=r"declare|NaN"):
        PinnedSerde("node").serialize(value)


@pytest.mark.parametrize("value", [Counter("a"), object(), 1j])
def test_object_without_serde_is_an_error_that_names_the_node(value: object) -> None:
    serde = PinnedSerde("node")

    with pytest.raises(SerializationError, match=r"node 'node'.*value="):
        serde.serialize(value)
    assert not serde.is_pinned


def test_pinned_serde_serves_inside_windowed_keys() -> None:
    inner = PinnedSerde("node")
    serde = time_windowed_ms(inner, 10)
    key = Windowed("a", Window(0, 10))

    data = serde.serialize(key)

    assert data == b"a" + bytes(8)
    assert serde.deserialize(data) == key
    assert inner.type_name == "string"
    with pytest.raises(SerializationError, match="node"):
        serde.serialize(Windowed(1, Window(0, 10)))


def test_windowed_object_pins_the_form_that_keeps_both_ends() -> None:
    serde = PinnedSerde("node")
    key = Windowed(1, Window(0, 10))

    assert serde.serialize(key) == session_windowed(int).serialize(key)
    assert serde.type_name == "session_windowed:long"
    assert serde.key_suffix == 16
    assert PinnedSerde("node", "time_windowed:10:long").deserialize(bytes(16)) == Windowed(0, Window(0, 10))


def test_pinned_type_survives_pickling() -> None:
    serde = PinnedSerde("node", "long")

    again = pickle.loads(pickle.dumps(serde))

    assert (again.node, again.type_name) == ("node", "long")


def test_threads_that_race_agree_on_one_type() -> None:
    for _ in range(20):
        serde = PinnedSerde("node")
        barrier = threading.Barrier(4)
        refused: list[object] = []

        def write(value: object) -> None:
            barrier.wait()  # noqa: B023
            try:
                serde.serialize(value)  # noqa: B023
            except SerializationError:
                refused.append(value)  # noqa: B023

        threads = [threading.Thread(target=write, args=(value,)) for value in ("a", 1, "b", 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(refused) == 2
        assert len({type(value) for value in refused}) == 1
