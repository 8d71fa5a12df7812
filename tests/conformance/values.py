"""Values and serdes of the conformance language: JSON on one side, records on the other.

Pure; what a topic or a store holds becomes the JSON values that the vectors state, and back.
"""

from datetime import timedelta
from typing import Any, TypeAlias

from attrs import frozen

from streams import Headers, Serde, Window, Windowed, count_windowed, session_windowed, time_windowed
from streams.core.serdes.serdes import INT32, serde_for

#: A serde as a case names it: text, or an object for windowed keys.
SerdeSpec: TypeAlias = str | dict[str, Any]


def _decode(data: bytes) -> str:
    return data.decode(errors="replace")


_SERDES: dict[str, Serde[Any]] = {
    # As the reference reads text: bytes that are no UTF-8 become U+FFFD, where our own serde refuses them.
    "string": Serde("string", str.encode, _decode, is_immutable=True),
    "long": serde_for(int),
    "int": INT32,
    "double": serde_for(float),
    "bytes": serde_for(bytes),
    "json": serde_for(Any),
}


def milliseconds(count: int) -> timedelta:
    """Return a duration of so many milliseconds."""
    return timedelta(milliseconds=count)


def serde(spec: SerdeSpec) -> Serde[Any]:
    """Return the serde that a case names.

    Raises:
        KeyError: there is none of that name.
    """
    if isinstance(spec, str):
        return _SERDES[spec]
    if "windowed" in spec:
        return time_windowed(serde(spec["windowed"]), milliseconds(spec["size_ms"]))
    if "count_windowed" in spec:
        return count_windowed(serde(spec["count_windowed"]), spec["size"])
    return session_windowed(serde(spec["session_windowed"]))


def from_json(value: Any) -> Any:
    """Return the value that records carry for a JSON value of a case."""
    if isinstance(value, dict):
        if value.keys() == {"$hex"}:
            return bytes.fromhex(value["$hex"])
        if value.keys() == {"key", "start", "end"}:
            return Windowed(from_json(value["key"]), Window(value["start"], value["end"]))
    return value


def to_json(value: Any) -> Any:
    """Return the JSON value with which a case states a record's key or value."""
    if isinstance(value, Windowed):
        return {"key": to_json(value.key), "start": value.window.start_ms, "end": value.window.end_ms}
    if isinstance(value, bytes):
        return {"$hex": value.hex()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    return value


@frozen
class TopicSerdes:
    """How the driver of a case encodes and decodes one topic."""

    key: Serde[Any]
    value: Serde[Any]

    @classmethod
    def of(cls, spec: dict[str, SerdeSpec]) -> "TopicSerdes":
        """Return the serdes of an entry of ``topics``."""
        return cls(serde(spec["key"]), serde(spec["value"]))


#: What carries any JSON value, where an operator of a case declares no serde: the reference's default.
ANYTHING = _SERDES["json"]


def encoded(value: Any, form: Serde[Any]) -> bytes | None:
    """Return the bytes of a value in a ``pipe`` step: raw ones as they are, others by the serde."""
    if isinstance(value, dict) and value.keys() == {"$hex"}:
        return bytes.fromhex(value["$hex"])
    # A JSON object may look like a windowed key; only a windowed serde takes it for one.
    return form.serialize(value if form is _SERDES["json"] else from_json(value))


def headers_of(entries: list[list[str | None]]) -> Headers:
    """Return the headers of a ``pipe`` step."""
    return tuple((str(name), None if value is None else value.encode()) for name, value in entries)


def headers_to_json(headers: Headers) -> list[list[str | None]]:
    """Return headers as a case states them."""
    return [[name, None if value is None else value.decode()] for name, value in headers]


def same(one: Any, two: Any) -> bool:
    """Compare JSON values: 1 and true differ, objects are equal in any order of their keys."""
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same(value, two[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(same, one, two))
    return (type(one) is type(two) and bool(one == two)) or _are_equal_numbers(one, two)


def _are_equal_numbers(one: Any, two: Any) -> bool:
    return isinstance(one, int | float) and isinstance(two, int | float) and one == two
