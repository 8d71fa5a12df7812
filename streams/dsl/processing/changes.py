"""Serialization of table changes in repartition topics, in the format of Kafka Streams 4 (KIP-904).

A deletion is written as the old value and 0, and an insertion as the new value and 1.  An update is written as
the length of the new value (zigzag varint), the new value, the old value and 2.
"""

from typing import Any

from streams.core.errors import SerializationError
from streams.core.serdes.serdes import Serde
from streams.core.serdes.varints import read_varint, varint
from streams.dsl.processing.portable import portable

_OLD = b"\x00"
_NEW = b"\x01"
_BOTH = b"\x02"


def change_serde(inner: Serde[Any]) -> Serde[Any]:
    """Return the serde for changes ``(new, old, is_latest)``, given the serde of the values.

    Deserialized changes have ``is_latest`` True.
    """
    write_value, read_value = portable(inner)

    def write(change: Any) -> bytes:
        new = write_value(change[0])
        old = write_value(change[1])
        if new is not None and old is not None:
            return varint(len(new)) + new + old + _BOTH
        if new is not None:
            return new + _NEW
        if old is not None:
            return old + _OLD
        raise SerializationError("a change of a grouped table has neither an old nor a new value")

    def read(data: bytes) -> Any:
        flag = data[-1:]
        body = data[:-1]
        if flag == _NEW:
            return read_value(body), None, True
        if flag == _OLD:
            return None, read_value(body), True
        if flag != _BOTH:
            raise SerializationError(f"change of a table ends with the unknown flag {flag!r}")
        length, start = read_varint(body)
        return read_value(body[start : start + length]), read_value(body[start + length :]), True

    return Serde(f"change:{inner.name}", write, read, is_immutable=inner.is_immutable)
