"""Binary formats of internal data: those of this library, which begin with a mark, and those of Kafka Streams.

User keys and values, and key-value, window, session and versioned stores, have the same bytes as in Kafka. Data
that only this library reads begins with a mark of three magic bytes, so that data written under the same name by
Kafka Streams or by another version is never read in the wrong format. No UTF-8 text, timestamp, small number or
version byte of Kafka Streams begins with the first byte of a mark. Only this module compares marks. Data that Kafka
Streams reads and writes as well has no mark; it is recognized by its structure.

This module imports only ``core.errors`` and ``core.serdes.serde_base``.
"""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from attrs import field, frozen

from streams.core.errors import ForeignFormatError
from streams.core.serdes.serde_base import Serde, blank, guarded_reader, guarded_writer, one_by_one, shown

T = TypeVar("T")

_FIRST = 0xF5
#: Advice in the message for bytes of an internal topic that are not in the expected format.
REMEDY = (
    "give this application an application id of its own, or delete the internal topics and the committed offsets of "
    "this one, so that they are filled again from its sources"
)


@frozen
class Format:
    """One binary format of this library.

    ``what`` describes the content. ``letter`` and ``version`` form the mark, so a new version has a new mark.
    """

    what: str
    letter: str
    version: int
    #: The first bytes of data in this format.
    mark: bytes = field(init=False)

    @mark.default
    def _mark(self) -> bytes:
        return bytes((_FIRST, ord(self.letter), self.version))

    @property
    def name(self) -> str:
        """The prefix for the names of serdes of this format; the prefix changes with the version."""
        return f"{self.what.replace(' ', '-')}/{self.version}"

    def is_like(self, data: bytes) -> bool:
        """Return whether the bytes begin with the mark, whatever follows it."""
        return data.startswith(self.mark)

    def check(self, data: bytes) -> None:
        """Check that bytes are in this format.

        Raises:
            ForeignFormatError: the bytes are not in this format.
        """
        if not self.is_like(data):
            self.refuse(data)

    def refuse(self, data: bytes) -> NoReturn:
        """Raise the error for bytes that are not in this format; its message names the likely writer of the bytes."""
        if data[:2] == self.mark[:2]:
            whose = f"they are of version {data[2] if len(data) > 2 else '?'}, which another release of streams wrote"
        else:
            whose = "another program or an earlier release of streams wrote them"
        raise ForeignFormatError(
            f"{len(data)} bytes {shown(data)} are no {self.what} of this release of streams (version {self.version}): "
            f"{whose}",
            what=self.what,
        )

    def first_foreign(self, values: Iterable[bytes | None]) -> tuple[int, ForeignFormatError] | None:
        """Return the index of the first value in a column that is not in this format, and the error, or None."""
        return _first_foreign(self, values)


@frozen
class KafkaFormat:
    """One binary format of Kafka Streams, which this library reads and writes too.

    ``what`` describes the content. ``name`` is the class of Kafka Streams that defines the format; it is the prefix
    for the names of serdes. ``is_like`` returns whether bytes have the structure of the format.
    """

    what: str
    name: str
    is_like: Callable[[bytes], bool]

    def check(self, data: bytes) -> None:
        """Check that bytes are in this format.

        Raises:
            ForeignFormatError: the bytes are not in this format.
        """
        if not self.is_like(data):
            raise ForeignFormatError(
                f"{len(data)} bytes {shown(data)} are no {self.what} as Kafka Streams writes it ({self.name}): another "
                "program or an earlier release of streams wrote them",
                what=self.what,
            )

    def first_foreign(self, values: Iterable[bytes | None]) -> tuple[int, ForeignFormatError] | None:
        """Return the index of the first value in a column that is not in this format, and the error, or None."""
        return _first_foreign(self, values)


def _first_foreign(own: Format | KafkaFormat, values: Iterable[bytes | None]) -> tuple[int, ForeignFormatError] | None:
    is_like = own.is_like
    for row, data in enumerate(values):
        if data is not None and not is_like(data):
            try:
                own.check(data)
            except ForeignFormatError as error:
                return row, error
    return None


class FormattedSerde(Serde[T]):
    """A serde for one of the formats of internal data."""

    __slots__ = ("format",)

    format: Format | KafkaFormat


def marked(
    own: Format,
    parts: str,
    write: Callable[[T], bytes],
    read: Callable[[bytes, int], T],
    *,
    is_immutable: bool,
) -> FormattedSerde[T]:
    """Return a serde for a format; the serialized bytes are the mark followed by the result of ``write``.

    ``read`` is called with all bytes and the position after the mark. ``parts`` are the names of the inner serdes.

    Raises:
        ForeignFormatError: ``deserialize`` was called with bytes without the mark.
    """
    mark = own.mark
    start = len(own.mark)
    serde: FormattedSerde[T] = _serde(
        own, parts, lambda value: mark + write(value), lambda data: read(data, start), is_immutable
    )
    serde._recipe = (marked, (own, parts, write, read, is_immutable))
    return serde


def unmarked(
    own: KafkaFormat,
    parts: str,
    write: Callable[[T], bytes],
    read: Callable[[bytes], T],
    *,
    is_immutable: bool,
) -> FormattedSerde[T]:
    """Return a serde for a format of Kafka Streams; ``parts`` are the names of the inner serdes.

    Raises:
        ForeignFormatError: ``deserialize`` was called with bytes of another structure.
    """
    serde = _serde(own, parts, write, read, is_immutable)
    serde._recipe = (unmarked, (own, parts, write, read, is_immutable))
    return serde


def _serde(
    own: Format | KafkaFormat,
    parts: str,
    write: Callable[[T], bytes],
    read: Callable[[bytes], T],
    is_immutable: bool,
) -> FormattedSerde[T]:
    check = own.check
    name = f"{own.name}:{parts}"

    def decode(data: bytes) -> T:
        check(data)
        return read(data)

    serde: Any = blank(FormattedSerde)
    serde.name = name
    serde.format = own
    serde.is_immutable = is_immutable
    serde.key_suffix = 0
    serde.serialize = guarded_writer(name, write)
    serde.deserialize = guarded_reader(name, decode)
    serde.serialize_all = one_by_one(serde.serialize)
    serde.deserialize_all = one_by_one(serde.deserialize)
    return serde  # type: ignore[no-any-return]


def format_of(serde: Serde[Any]) -> Format | KafkaFormat | None:
    """Return the format of internal data that a serde reads, or None if the serde reads other bytes."""
    return serde.format if isinstance(serde, FormattedSerde) else None
