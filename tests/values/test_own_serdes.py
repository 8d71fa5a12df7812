"""Topics with a serde of the user's own, in files."""

import json
import pickle
import struct

import pytest
from attrs import asdict, frozen

from streams import Serde, SerializationError
from streams.values import form_of


@frozen
class Point:
    x: int
    y: int


as_json = Serde("json-point", lambda point: json.dumps(asdict(point)).encode(), lambda data: Point(**json.loads(data)))
as_words = Serde(
    "word-point",
    lambda point: struct.pack(">ii", point.x, point.y),
    lambda data: Point(*struct.unpack(">ii", data)),
    from_plain=lambda row: Point(int(row["x"]), int(row["y"])),
    to_plain=asdict,
)
bare = Serde("bare-point", lambda point: struct.pack(">ii", point.x, point.y), lambda data: struct.unpack(">ii", data))
text = Serde("upper", lambda value: value.upper().encode(), bytes.decode)


@pytest.mark.parametrize("serde", [as_json, as_words])
def test_rows_become_objects_and_back(serde: Serde[Point]) -> None:
    form = form_of(serde)
    data = serde.serialize(Point(1, 2))

    assert form.from_json(b'{"x":1,"y":2}') == data
    assert form.from_object({"x": 1, "y": 2}) == data
    assert json.loads(form.to_json(data)) == {"x": 1, "y": 2}
    assert form.from_json(b"null") is None
    assert form.to_json(None) == b"null"


def test_rows_of_text_stay_text() -> None:
    form = form_of(text)

    assert form.from_json(b'"abc"') == b"ABC"
    assert form.to_json(b"ABC") == b'"ABC"'


def test_serde_that_needs_objects_says_what_it_lacks() -> None:
    form = form_of(bare)

    with pytest.raises(SerializationError, match="plain JSON values here; if it expects objects, give it from_plain="):
        form.from_json(b'{"x":1,"y":2}')
    # Its objects are tuples, which JSON has as lists.
    assert form.to_json(struct.pack(">ii", 1, 2)) == b"[1,2]"


def test_bytes_that_are_no_json_are_hex_and_come_back() -> None:
    form = form_of(Serde("complex", pickle.dumps, pickle.loads))
    data = pickle.dumps(1j)

    assert form.to_json(data) == b'{"$hex":"%b"}' % data.hex().encode()
    assert form.from_json(form.to_json(data)) == data


@pytest.mark.parametrize("name", ["from_plain", "to_plain"])
def test_async_functions_are_refused(name: str) -> None:
    async def later(value: object) -> object:
        return value

    with pytest.raises(Exception, match=f"serde 'x': {name}"):
        Serde("x", bytes, bytes, **{name: later})  # type: ignore[arg-type]


def test_functions_survive_pickling() -> None:
    serde = Serde("ints", bytes, bytes, from_plain=int, to_plain=str)

    found = pickle.loads(pickle.dumps(serde))
    assert (found.from_plain, found.to_plain) == (int, str)
