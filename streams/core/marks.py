"""Formats of our own, and how their bytes are told from everybody else's.

Keys and values of the user have Kafka's bytes, and so have key-value, window, session and versioned
stores.  What only the library itself reads has bytes of its own: they begin with a mark, so that what
Kafka Streams or another version has written under the same name is never read as ours.  The first byte
of a mark is one with which no text in UTF-8 begins, no time, no small number and no version byte of
Kafka Streams'.  ``Format.check`` is the one place where a format tells its bytes from others.

Imports errors and serdes only.
"""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from attrs import field, frozen

from streams.core.errors import ForeignFormatError
from streams.core.serde_base import Serde, blank, guarded_reader, guarded_writer, one_by_one, shown

T = TypeVar("T")

_FIRST = 0xF5
#: What a user can do about foreign bytes in an internal topic.
REMEDY = (
    "give this application an application id of its own, or delete the internal topics and the committed offsets of "
    "this one, so that they are made anew from its sources"
)


def _nobody(data: bytes) -> bool:
    return False


@frozen
class Format:
    """One format of ours.

    ``what`` says what it holds.  ``letter`` and ``version`` make the mark: a new version is a new mark.
    ``counterpart`` is Kafka Streams' name of what it writes in the same place, and
    ``is_counterpart`` tells whether bytes without the mark look like that.
    """

    what: str
    letter: str
    version: int
    counterpart: str = ""
    is_counterpart: Callable[[bytes], bool] = _nobody
    #: The first bytes of everything in this format.
    mark: bytes = field(init=False)

    @mark.default
    def _mark(self) -> bytes:
        return bytes((_FIRST, ord(self.letter), self.version))

    @property
    def name(self) -> str:
        """What serdes of this format are called before their parts; it changes with the version."""
        return f"{self.what.replace(' ', '-')}/{self.version}"

    def check(self, data: bytes) -> None:
        """Let bytes of this format pass.

        Raises:
            ForeignFormatError: they are not of this format.
        """
        if not data.startswith(self.mark):
            self.refuse(data)

    def refuse(self, data: bytes) -> NoReturn:
        """Say that bytes are not of this format, and whose they seem to be."""
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
        """Return where in a column the first value is that is not of this format, and the error; None if all are."""
        mark = self.mark
        for row, data in enumerate(values):
            if data is not None and not data.startswith(mark):
                try:
                    self.refuse(data)
                except ForeignFormatError as error:
                    return row, error
        return None


class MarkedSerde(Serde[T]):
    """A serde of a format of ours."""

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
    """Return a serde of a format, whose bytes are the mark and what ``write`` gives.

    ``read`` takes all bytes and the position behind the mark.  ``parts`` are the names of the
    serdes inside.

    Raises:
        ForeignFormatError: by ``deserialize``, of bytes without the mark.
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
    """Return the format of ours that a serde reads, None if its bytes are Kafka's or the user's."""
    return serde.format if isinstance(serde, MarkedSerde) else None
