"""The reasons for which records are dropped.

This module imports no other module of the package.
"""

from collections.abc import Collection
from enum import StrEnum


class DropReason(StrEnum):
    """The reason why a record was dropped, in the tag ``reason`` of ``dropped-records-total``.

    ``meaning`` describes the reason in a clause. Every drop has one of these reasons. Drops by a handler are also
    counted by the class of the error, as in ``failed, ValueError``.
    """

    meaning: str

    def __new__(cls, tag: str, meaning: str) -> "DropReason":
        """Create the reason with a tag value and a meaning."""
        reason = str.__new__(cls, tag)
        reason._value_ = tag
        reason.meaning = meaning
        return reason

    NULL_KEY = "null key", "its key is null"
    NULL_VALUE = "null value", "its value is null"
    NULL_FOREIGN_KEY = "null foreign key", "its foreign key is null"
    UNJOINED = "unjoined", "an inner join with a table, or with the latest record of a stream, found no match for it"
    LATE = "late", "its window has closed"
    EXPIRED = "expired", "it is older than the store keeps"
    OUT_OF_ORDER = "out of order", "a versioned table has a later row for the key"
    NO_WINDOW = "no window", "no window contains its time, or a windower assigned none to it"
    DUPLICATE = "duplicate", "a record with the same id passed within the interval"
    SUPERSEDED = "superseded", "the response of a foreign-key join is for a row that has changed since"
    INVALID_TIMESTAMP = "invalid timestamp", "its timestamp is negative"
    UNREADABLE = "unreadable", "cannot be read"
    FAILED = "failed", "cannot be processed"
    UNWRITABLE = "unwritable", "cannot be written"


#: Reasons for late records in windowed operators, stores and tables.
LATE_REASONS: Collection[str] = frozenset({DropReason.LATE, DropReason.EXPIRED, DropReason.OUT_OF_ORDER})
#: Reasons for which an operator leaves records out as its user asked; with the others, a record is lost.
INTENDED_REASONS: Collection[str] = frozenset({DropReason.UNJOINED, DropReason.DUPLICATE, DropReason.SUPERSEDED})
#: Share of records that a run over history may drop as late at one node, unless another limit is given.
USUAL_LIMIT = "1%"
