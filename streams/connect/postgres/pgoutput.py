"""Messages of ``pgoutput``, the plugin of Postgres for logical replication, in version 1 of its protocol.

See "Logical Replication Message Formats" in the manual of Postgres.
Of the other packages, this module imports only ``core``.
"""

import struct
from typing import Final, TypeAlias

from attrs import frozen

#: Milliseconds from 1970 to 2000, where the times of Postgres begin.
_EPOCH_2000_MS: Final = 946_684_800_000
_COLUMN: Final = struct.Struct(">ii")


class Unchanged:
    """Stands for an unchanged TOAST value: it is stored outside its row, and is not in the log."""


UNCHANGED: Final = Unchanged()

#: The columns of a row as text, in the order of the relation; None is null.
Row: TypeAlias = tuple[bytes | Unchanged | None, ...]


@frozen
class TransactionBegin:
    """The begin of a transaction; ``commit_lsn`` is the log position of its commit, ``time_ms`` the commit time."""

    commit_lsn: int
    time_ms: int


@frozen
class TransactionEnd:
    """The commit of a transaction; ``end_lsn`` is the log position after the transaction."""

    end_lsn: int


@frozen
class Relation:
    """The columns of a table and their types; sent before the first change of the table."""

    number: int
    schema: str
    name: str
    columns: tuple[str, ...]
    types: tuple[int, ...]


@frozen
class Change:
    """A row was inserted, updated or deleted: ``old`` is given for updates of the key, and for deletions."""

    relation: int
    old: Row | None
    new: Row | None


@frozen
class Truncate:
    """All rows of some tables were removed."""

    relations: tuple[int, ...]


Message: TypeAlias = TransactionBegin | TransactionEnd | Relation | Change | Truncate


def decoded(data: bytes) -> Message | None:
    """Return a decoded message; None for a message without row changes, such as the origin of a transaction.

    >>> decoded(bytes.fromhex("43 00 0000000000000010 0000000000000020 0000000000000000"))
    TransactionEnd(end_lsn=32)
    """
    kind = data[:1]
    match kind:
        case b"I" | b"U" | b"D":
            return _change(data)
        case b"B":
            commit_lsn, time_us = struct.unpack_from(">Qq", data, 1)
            return TransactionBegin(commit_lsn, time_us // 1000 + _EPOCH_2000_MS)
        case b"C":
            return TransactionEnd(struct.unpack_from(">Q", data, 10)[0])
        case b"R":
            return _relation(data)
        case b"T":
            (count,) = struct.unpack_from(">I", data, 1)
            return Truncate(struct.unpack_from(f">{count}I", data, 6))
        case _:
            return None


def _relation(data: bytes) -> Relation:
    (number,) = struct.unpack_from(">I", data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    (count,) = struct.unpack_from(">H", data, at + 1)
    at += 3
    columns = []
    types = []
    for _ in range(count):
        column, at = _text(data, at + 1)
        columns.append(column)
        types.append(_COLUMN.unpack_from(data, at)[0])
        at += _COLUMN.size
    # The schema of the catalogue is empty.
    return Relation(number, schema or "pg_catalog", name, tuple(columns), tuple(types))


def _change(data: bytes) -> Change:
    (relation,) = struct.unpack_from(">I", data, 1)
    old: Row | None = None
    at = 5
    if data[at : at + 1] in (b"K", b"O"):
        old, at = _row(data, at + 1)
    new = _row(data, at + 1)[0] if data[at : at + 1] == b"N" else None
    return Change(relation, old, new)


def _row(data: bytes, at: int) -> tuple[Row, int]:
    (count,) = struct.unpack_from(">H", data, at)
    at += 2
    values: list[bytes | Unchanged | None] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # "t", text.
            (size,) = struct.unpack_from(">I", data, at)
            values.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        else:
            values.append(None if kind == 0x6E else UNCHANGED)  # "n" is null, "u" unchanged.
    return tuple(values), at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def lsn_of(text: str) -> int:
    """Return an LSN, a position in the log of Postgres, as a number.

    >>> lsn_of("1/A0"), lsn_text(4294967456)
    (4294967456, '1/A0')
    """
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return an LSN as text, in the notation of Postgres."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
