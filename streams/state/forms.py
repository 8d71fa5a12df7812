"""The form in which the hot state holds keys and values, and their conversion to bytes.

A key is held as an object if its serde has exactly one hashable type; other keys are held as bytes, because a
dict treats 1, True and 1.0 as equal although their bytes differ. A value is held as an object if its serde
declares it immutable; other values are held as bytes, so that every read returns a new object. A form sets the
types in the hot state. This module imports only ``core`` and ``state.hot``.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from attrs import define, field

from streams.core.errors import StoreError
from streams.core.serdes.serdes import BOOLEAN, BYTES, DOUBLE, INT32, LONG, STRING, UUID, PinnedSerde, Serde
from streams.state.hot import HotState

#: Key types that can be used as dict keys without conversion, by serde.
_KEY_TYPES: dict[Serde[Any], type] = {STRING: str, LONG: int, INT32: int, BYTES: bytes}
#: Value types that need no conversion, by serde.
_VALUE_TYPES: dict[Serde[Any], type] = {**_KEY_TYPES, DOUBLE: float, BOOLEAN: bool, UUID: uuid.UUID}
#: The same serdes, by the type name of a pinned serde.
_PRIMITIVES: dict[str, Serde[Any]] = {serde.name: serde for serde in _VALUE_TYPES}


def pinned_name(serde: Serde[Any]) -> str | None:
    """Return the type name to which a serde is pinned, or None if the serde is not pinned (yet)."""
    return serde.type_name if isinstance(serde, PinnedSerde) else None


@define(eq=False)
class KeyForm:
    """The in-memory form of the keys of one store, and its conversion to bytes."""

    store: str
    serde: Serde[Any]
    hot: HotState
    _is_resolved: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.resolve()

    def resolve(self) -> None:
        """Set the key type in the hot state; a pinned serde determines its type from the first object."""
        if isinstance(self.serde, PinnedSerde) and pinned_name(self.serde) is None:
            return
        self._is_resolved = True
        self.hot.set_key_type(_KEY_TYPES.get(_actual(self.serde)))

    def slot(self, key: object) -> Any:
        """Return the slot of a key, which is the in-memory form of the key.

        Raises:
            StoreError: the key is None.
            SerializationError: the serde cannot serialize the object.
        """
        if type(key) is self.hot.key_type:
            return key
        if key is None:
            raise StoreError(f"store {self.store!r}: a key is None; filter such records out before the store")
        data = self.serde.serialize(key)
        if not self._is_resolved:
            self.resolve()
        if self._holds_bytes:
            return data
        return self.serde.deserialize(data)

    @property
    def _holds_bytes(self) -> bool:
        key_type = self.hot.key_type
        return key_type is None or key_type is bytes

    def to_bytes(self, slot: Any) -> bytes:
        """Return the serialized bytes of an in-memory key."""
        if self._holds_bytes:
            return slot  # type: ignore[no-any-return]
        return self.serde.serialize(slot)  # type: ignore[return-value]

    def all_to_bytes(self, slots: Sequence[Any]) -> Sequence[bytes]:
        """Return the serialized bytes of many in-memory keys."""
        if self._holds_bytes:
            return slots
        return self.serde.serialize_all(slots)  # type: ignore[return-value]

    def from_bytes(self, data: bytes) -> Any:
        """Return the in-memory form of a key read from the engine."""
        return data if self.hot.key_type is None else self.serde.deserialize(data)

    def to_key(self, slot: Any) -> Any:
        """Return the Python object for an in-memory key."""
        return self.serde.deserialize(slot) if self.hot.key_type is None else slot

    def read(self, data: bytes) -> Any:
        """Return the Python object for a serialized key."""
        return self.serde.deserialize(data)

    def bounds(self, low: object, high: object) -> tuple[bytes | None, bytes | None]:
        """Return the serialized bounds of a range, each None if it is open.

        Raises:
            StoreError: the keys and their bytes are in different orders, as with numbers of which one is negative: the
                range by bytes would have other keys than the range that was asked for.
        """
        first = None if low is None else self.to_bytes(self.slot(low))
        last = None if high is None else self.to_bytes(self.slot(high))
        if first is not None and last is not None and _is_reversed(low, high) is (first <= last):
            raise StoreError(
                f"store {self.store!r}: no range from {low!r:.60} to {high!r:.60}: keys are ordered by their bytes in "
                f"serde {self.serde.name!r}, where {low!r:.60} is {'before' if first <= last else 'behind'} the other; "
                "ask ranges without a change of sign, or filter all()"
            )
        return first, last


@define(eq=False)
class ValueForm:
    """The in-memory form of the values of one store, and its conversion to bytes."""

    store: str
    serde: Serde[Any]
    hot: HotState
    _is_resolved: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.resolve()

    def resolve(self) -> None:
        """Set the value form in the hot state; a pinned serde determines its type from the first object."""
        if isinstance(self.serde, PinnedSerde) and pinned_name(self.serde) is None:
            return
        self._is_resolved = True
        is_immutable = self.serde.is_immutable
        self.hot.set_value_form(_VALUE_TYPES.get(_actual(self.serde)) if is_immutable else None, is_immutable)

    def hold(self, value: object) -> Any:
        """Return the in-memory form of a user's value; None stays None.

        Raises:
            SerializationError: the serde cannot serialize the object.
        """
        if value is None or type(value) is self.hot.value_type:
            return value
        # Serialize now, so that a wrong type fails here rather than at the commit.
        data = self.serde.serialize(value)
        if not self._is_resolved:
            self.resolve()
        if not self.hot.holds_objects:
            return data
        if self.hot.value_type is None:
            self.hot.set_value_form(type(value), True)
        return self.serde.deserialize(data)

    def to_value(self, held: Any) -> Any:
        """Return the Python object for an in-memory value."""
        return held if self.hot.holds_objects else self.serde.deserialize(held)

    def read(self, data: bytes) -> Any:
        """Return a new Python object for a serialized value."""
        return self.serde.deserialize(data)

    def from_bytes(self, data: bytes | None) -> Any:
        """Return the in-memory form of a value read from the engine."""
        return self.serde.deserialize(data) if self.hot.holds_objects else data

    def all_to_bytes(self, held: Sequence[Any]) -> Sequence[bytes | None]:
        """Return the serialized bytes of many in-memory values."""
        return self.serde.serialize_all(held) if self.hot.holds_objects else held


def _actual(serde: Serde[Any]) -> Serde[Any]:
    """Return the primitive serde of a pinned serde whose type is known, or the given serde itself."""
    return _PRIMITIVES.get(pinned_name(serde) or "", serde)


def _is_reversed(low: Any, high: Any) -> bool | None:
    """Return whether ``low`` is above ``high``, or None if such keys have no order, or are equal."""
    try:
        return None if low == high else bool(low > high)
    except TypeError:
        return None
