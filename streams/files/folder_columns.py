"""Columns in the names of folders, such as ``region=eu/day=2026-01-01``, as Hive, Spark and others write them.

They are text, as the cells of CSV files, and become the declared types by the same rule.
This module imports only ``core`` and ``values``.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec
import msgspec.inspect

from streams.core.errors import InputError
from streams.values import NULL_FOLDER, declared_cells

#: Column -> text in the name of the folder, None for null.
Cells: TypeAlias = Mapping[str, str | None]

_read_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
#: Types that Arrow has, too.
_ARROW_TYPES = (datetime, date, time, timedelta, Decimal, bytes)


def folder_cells(path: str) -> dict[str, str | None]:
    """Return the columns in the folders of a file.

    >>> folder_cells("orders/region=St.%20Gallen/day=__HIVE_DEFAULT_PARTITION__/part-0.csv")
    {'region': 'St. Gallen', 'day': None}

    Raises:
        InputError: two folders have the same column, or a name is not UTF-8.
    """
    cells: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if not name or not equals:
            continue
        try:
            name, text = (unquote(part, errors="strict") for part in (name, text))
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: folder {folder!r} is not UTF-8: {error.reason}; rename it") from error
        if name in cells:
            raise InputError(f"{path}: two folders have column {name!r}; rename one of them")
        cells[name] = None if text == NULL_FOLDER else text
    return cells


def with_columns(texts: Sequence[bytes], cells: Cells, form: Any) -> list[bytes]:
    """Return JSON objects with the columns that ``form`` declares; other JSON is unchanged.

    Raises:
        ValueError: a column is in the object too and not equal, or is not of the declared type.
    """
    added = {name: msgspec.json.encode(value) for name, value in declared_cells(form, cells).items()}
    names = {name: msgspec.json.encode(name) for name in added}
    result = []
    for text in texts:
        try:
            fields = _read_object(text)
        except msgspec.MsgspecError:  # The reader of the row says what it is.
            result.append(text)
            continue
        new = []
        for name, value in added.items():
            if name not in fields:
                new.append(b"%b:%b" % (names[name], value))
            elif _text(fields[name]) != cells[name]:
                raise ValueError(unequal(name, _text(fields[name]), cells[name]))
        result.append(b"%b%b}" % (text.rstrip()[:-1], b",".join([b"", *new] if fields else new)))
    return result


def check_whole(texts: Sequence[bytes], cells: Cells, form: Any) -> None:
    """Check JSON values of whole records, to which the columns of the folders do not belong.

    Raises:
        ValueError: a value lacks a field with the name of a column, so that its default would stand in.
    """
    names = names_in(cells, form)
    for text in texts if names else ():
        with suppress(msgspec.MsgspecError):  # The reader of the value says what it is.
            check_fields(names, _read_object(text))


def names_in(cells: Cells, form: Any) -> list[str]:
    """Return the fields of a class that are in the names of the folders."""
    fields = getattr(msgspec.inspect.type_info(form), "fields", ())
    return [part.encode_name for part in fields if part.encode_name in cells]


def check_fields(names: Sequence[str], fields: Collection[str]) -> None:
    """Check the fields of a whole record, as ``check_whole`` does."""
    if lacking := [name for name in names if name not in fields]:
        raise ValueError(
            f"field {lacking[0]!r} is in the name of the folder, but not in the value of the record; add it to the "
            "value, or take it out of the name"
        )


def _text(value: msgspec.Raw) -> str | None:
    item = msgspec.json.decode(value)
    return item if item is None or isinstance(item, str) else bytes(value).decode()


def with_arrays(batch: Any, cells: Cells, form: Any) -> Any:
    """Return an Arrow batch with the columns that ``form`` declares.

    Raises:
        ValueError: a column is in the batch too and not equal, or is not of the declared type.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, value in declared_cells(form, cells).items():
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.repeat(_scalar(value), batch.num_rows))
            continue
        column = batch.column(name)
        try:
            same = pc.equal(column, pa.scalar(cells[name], pa.string()).cast(column.type))
        except pa.ArrowException:  # It is no such value.
            same = pa.array([False])
        if cells[name] is None:
            same = column.is_null()
        if not pc.all(same, skip_nulls=False, min_count=0).as_py():
            raise ValueError(unequal(name, "another value", cells[name]))
    return batch


def _scalar(value: Any) -> Any:
    import pyarrow as pa

    plain = msgspec.to_builtins(value, builtin_types=_ARROW_TYPES)
    return pa.scalar(Decimal(plain) if isinstance(plain, int) and plain.bit_length() > 63 else plain)


def unequal(name: str, value: Any, cell: str | None) -> str:
    """Return the message about a column that differs from the name of the folder."""
    return f"column {name!r} is {value!r:.80}, but {cell!r} in the name of the folder; leave one of them out"
