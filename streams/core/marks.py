"""Binary formats of this library, which begin with a mark.

Keys and values of the user have the bytes of Kafka, and so have key-value, window, session and
versioned stores.  Data that only the library reads begins with a mark, so that data of Kafka Streams
or of another version under the same name is never read in the wrong format.  No UTF-8 text, timestamp,
small number or version byte of Kafka Streams begins with the first byte of a mark.  Only
``Format.check`` compares marks.

Imports errors and serdes only.
"""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from attrs import field, frozen

from streams.core.errors import ForeignFormatError
from streams.core.serde_base import Serde, blank, guarded_reader, guarded_writer, one_by_one, shown

T = TypeVar("T")

_FIRST = 0xF5
#: Advice for foreign bytes in an internal topic.
REMEDY = (
    "give this application an application id of its own, or delete the internal topics and the committed offsets of "
    "this one, so that they are filled again from its sources"
)


def _never(data: bytes) -> bool:
    return False


@frozen
class Format:
    """One binary format of this library.

    ``what`` describes the content.  ``letter`` and ``version`` are the mark: a new version has a new mark.
    ``counterpart`` is what Kafka Streams writes under the same name, and ``is_counterpart`` says whether
    bytes without the mark look like it.
    """

    what: str
    letter: str
    version: int
    counterpart: str = ""
    is_counterpart: Callable[[bytes], bool] = _never
    #: The first bytes of data in this format.
    mark: bytes = field(init=False)

    @mark.default
    def _mark(self) -> bytes:
        return bytes((_FIRST, ord(self.letter), self.version))

    @property
    def name(self) -> str:
        """The prefix of the names of serdes of this format; it changes with the version."""
        return f"{self.what.replace(' ', '-')}/{self.version}"

    def check(self, data: bytes) -> None:
        """Check that bytes are of this format.

        Raises:
            ForeignFormatError: the bytes are not of this format.
        """
        if not data.startswith(self.mark):
            self.refuse(data)

    def refuse(self, data: bytes) -> NoReturn:
        """Return the error for bytes that are not of this format; it says what seems to have written them."""
        if data[:2] == self.mark[:2]:
            whose = f"they are of version {data[2] if len(data) > 2 else '?'}, which another release of streams wrote"
        elif self.is_counterpart(data):
            whose = f"they look like Kafka Streams' ({self.counterpart})"
        else:
            whose = "another program or an earlier release of streams wrote them"
        raise ForeignFormatError(
            f"{len(data)} bytes {shown(data)} are no {self.what} of this release of streams (version {self.version}): "
            f"{whose}",
            what=self.what,
        )

    def first_foreign(self, values: Iterable[bytes | None]) -> tuple[int, ForeignFormatError] | None:
        """Return index and error of the first value of a column that is not of this format; None if all are."""
        mark = self.mark
        for row, data in enumerate(values):
            if data is not None and not data.startswith(mark):
                try:
                    self.refuse(data)
                except ForeignFormatError as error:
                    return row, error
        return None


class MarkedSerde(Serde[T]):
    """A serde of a format of this library."""

    __slots__ = ("format",)

    format: Format


def marked(
    own: Format,
    parts: str,
    write: Callable[[T], bytes],
    read: Callable[[bytes, int], T],
    *,
    is_immutable: bool,
) -> MarkedSerde[T]:
    """Return a serde of a format, whose bytes are the mark and the result of ``write``.

    ``read`` takes all bytes and the position after the mark.  ``parts`` are the names of the
    inner serdes.

    Raises:
        ForeignFormatError: from ``deserialize``, for bytes without the mark.
    """
    mark, start, name = own.mark, len(own.mark), f"{own.name}:{parts}"

    def encode(value: T) -> bytes:
        return mark + write(value)

    def decode(data: bytes) -> T:
        if not data.startswith(mark):
            own.refuse(data)
        return read(data, start)

    serde: Any = blank(MarkedSerde)
    serde.name = name
    serde.format = own
    serde.is_immutable = is_immutable
    serde.key_suffix = 0
    serde.serialize = guarded_writer(name, encode)
    serde.deserialize = guarded_reader(name, decode)
    serde.serialize_all = one_by_one(serde.serialize)
    serde.deserialize_all = one_by_one(serde.deserialize)
    serde._recipe = (marked, (own, parts, write, read, is_immutable))
    return serde  # type: ignore[no-any-return]


def format_of(serde: Serde[Any]) -> Format | None:
    """Return the format of this library that a serde reads, None for bytes of Kafka or of the user."""
    return serde.format if isinstance(serde, MarkedSerde) else None
