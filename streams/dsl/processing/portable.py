"""Serialization of values with pinned serdes inside larger messages.

The type of a pinned serde is known once the process has seen its first object.  Another process may read serialized
values before that, so they carry the type name: mark (3 bytes), length (2 bytes), name, value.  Values of other serdes
are unchanged.  The module imports only ``core``.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, TypeAlias

from streams.core.blocks.marks import Format
from streams.core.serdes.serdes import PinnedSerde, Serde, WindowedSerde

_LENGTH = Struct(">H")
TYPED_VALUE = Format("value with its type", "T", 1)

Write: TypeAlias = Callable[[Any], bytes | None]
Read: TypeAlias = Callable[[bytes | None], Any]


def portable(serde: Serde[Any]) -> tuple[Write, Read]:
    """Return the serializer and deserializer of ``serde``; serialized values of a pinned type carry the type name."""
    pinned = _pinned(serde)
    if pinned is None:
        return serde.serialize, serde.deserialize

    mark = TYPED_VALUE.mark
    name_start = len(mark) + _LENGTH.size

    def write(value: Any) -> bytes | None:
        data = serde.serialize(value)
        if data is None:
            return None
        name = (pinned.type_name or "").encode()
        return mark + _LENGTH.pack(len(name)) + name + data

    def read(data: bytes | None) -> Any:
        if data is None:
            return None
        TYPED_VALUE.check(data)
        start = name_start + _LENGTH.unpack_from(data, len(mark))[0]
        if pinned.type_name is None:
            pinned.pin(data[name_start:start].decode())
        return serde.deserialize(data[start:])

    return write, read


def _pinned(serde: Serde[Any]) -> PinnedSerde | None:
    """Return the pinned serde that ``serde`` depends on, or None if there is none."""
    if isinstance(serde, WindowedSerde):
        return _pinned(serde.inner)
    return serde if isinstance(serde, PinnedSerde) else None
