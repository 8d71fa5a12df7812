"""Records from JSON documents: the parts of a document by their path, and items as serialized records.

A path is the names of fields with dots between them, such as ``data.items``; the empty path is the whole document.
Of the other packages, this module imports only ``core`` and ``values``.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from attrs import define, field

from streams.connect.errors import ConnectError
from streams.core.arguments import NOT_GIVEN
from streams.core.errors import ConfigError
from streams.core.event_time.timestamps import to_milliseconds
from streams.core.serdes.serdes import NULL
from streams.core.topic import Topic
from streams.values import BAD_INPUT, Form, form_of

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class DocumentError(ConnectError):
    """A document of another system does not have the fields that it should have, or does not fit the topic's types."""


def part_at(document: bytes, path: str) -> bytes | None:
    """Return the JSON text at a path; None if a field on the way is missing or null.

    Raises:
        DocumentError: the document is not JSON, or something on the way has no fields.
    """
    part = document
    for number, name in enumerate(path.split(".") if path else ()):
        try:
            fields = _fields(part)
        except msgspec.ValidationError:
            place = ".".join(path.split(".")[:number])
            what = f"field {place!r}" if place else "the document"
            raise DocumentError(f"{what} is no JSON object, so that it has no field {name!r}") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DocumentError(f"is not JSON: {error}") from None
        if name not in fields or bytes(fields[name]) == b"null":
            return None
        part = bytes(fields[name])
    return part


def items_at(document: bytes, path: str) -> list[bytes]:
    """Return the JSON texts of the items of the list at a path.

    Raises:
        DocumentError: there is no list.
    """
    part = part_at(document, path)
    what = f"field {path!r}" if path else "the document"
    if part is None:
        raise DocumentError(f"{what} is missing; it should be a list")
    try:
        return [bytes(item) for item in _items(part)]
    except msgspec.ValidationError:
        raise DocumentError(f"{what} is not a list") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"is not JSON: {error}") from None


def value_at(document: bytes, path: str) -> Any:
    """Return the value at a path as Python objects; None if a field on the way is missing or null.

    Raises:
        DocumentError: the document is not JSON, or something on the way has no fields.
    """
    part = part_at(document, path)
    try:
        return None if part is None else msgspec.json.decode(part)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"is not JSON: {error}") from None


@define(eq=False)
class JsonRecords:
    """Makes serialized records of a topic from JSON items: the item is the value, the key is in one of its fields.

    With ``has_keys`` keys come from elsewhere, as text.  Without both they are those of ``Topic(key_from=...)``.

    Raises:
        ConfigError: the topic declares keys, and there is none, or the other way round.
    """

    source: str
    topic: Topic[Any, Any]
    key: str
    has_keys: bool = False
    _key_form: Form = field(init=False)
    _value_form: Form = field(init=False)

    def __attrs_post_init__(self) -> None:
        is_given = bool(self.key) or self.has_keys
        is_declared = self.topic.key_serde is not NULL
        if is_declared and not is_given and self.topic.key_from is None:
            raise ConfigError(
                f"{self.source}: topic {self.topic.name!r} declares keys: give key= the name of the field with the "
                "key, or the topic key_from=, or declare it without key="
            )
        if is_given and not is_declared:
            raise ConfigError(f"{self.source}: key= is given, but topic {self.topic.name!r} declares no keys")
        self._key_form = form_of(self.topic.key_serde)
        self._value_form = form_of(self.topic.value_serde)

    def record(self, item: bytes, key: str | None = None) -> tuple[bytes | None, bytes, int | None]:
        """Return key and value of an item, serialized, and its time if the topic declares one.

        ``key`` is the text of a key from elsewhere.

        Raises:
            DocumentError: the item does not fit the types of the topic.
        """
        topic = self.topic
        key_object = self._key(item, key)
        try:
            value = topic.value_serde.deserialize(self._value_form.from_json(item))
            value_bytes = topic.value_serde.serialize(value)
        except BAD_INPUT as error:
            raise DocumentError(f"does not fit the values of topic {topic.name!r}: {error}") from None
        if value_bytes is None:
            raise DocumentError("is null, which is no record")
        try:
            # Written anew, so that equal keys have equal bytes.
            key_bytes = topic.key_serde.serialize(topic.key_of(value, key_object))
        except BAD_INPUT as error:
            raise DocumentError(str(error)) from None
        return key_bytes, value_bytes, self._time_ms(value)

    def _key(self, item: bytes, key: str | None) -> Any:
        """Return the key of an item that is ``key`` or in a field; ``NOT_GIVEN`` if the topic says which it is."""
        if key is None and not self.key:
            return NOT_GIVEN
        said = "the key" if key is not None else f"field {self.key!r}"
        text = None
        if key is None:
            text = part_at(item, self.key)
            if text is None:
                raise DocumentError(f"has no {said}, which has the key")
        try:
            key_bytes = self._key_form.from_cells(key) if text is None else self._key_form.from_json(text)
            return self.topic.key_serde.deserialize(key_bytes)
        except BAD_INPUT as error:
            raise DocumentError(f"{said} does not fit the keys of topic {self.topic.name!r}: {error}") from None

    def columns(
        self, items: Sequence[bytes], first: int = 0
    ) -> tuple[list[bytes | None], list[bytes], list[int] | None]:
        """Return keys, values and times of items; ``first`` is the number of the first item, for messages.

        Raises:
            DocumentError: an item does not fit the types of the topic; the message has its number.
        """
        keys: list[bytes | None] = []
        values: list[bytes] = []
        times_ms: list[int] = []
        for number, item in enumerate(items, first):
            try:
                key, value, time_ms = self.record(item)
            except DocumentError as error:
                raise DocumentError(f"item {number}: {error}") from error.__cause__
            keys.append(key)
            values.append(value)
            if time_ms is not None:
                times_ms.append(time_ms)
        return keys, values, times_ms if self.topic.value_time is not None else None

    def _time_ms(self, value: Any) -> int | None:
        time_of = self.topic.value_time
        if time_of is None:
            return None
        try:
            return to_milliseconds(time_of.function(value))
        except Exception as error:  # noqa: BLE001 - user code may raise anything.
            raise DocumentError(
                f"timestamp= of topic {self.topic.name!r} fails: {type(error).__name__}: {error}"
            ) from None
