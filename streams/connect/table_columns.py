"""The columns of a database table for the types of a topic, and their values, column by column.

A class (dataclass, attrs, pydantic, msgspec, TypedDict, NamedTuple) has a column per field, in keys and in values; any
other type is one column.  A windowed key has the columns of its key, ``window_start`` and ``window_end``.  Nested
values are JSON.
Of the other packages, this module imports only ``core`` and ``values``.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec
from attrs import evolve, frozen
from msgspec import inspect

from streams.connect.errors import ConnectError
from streams.connect.protocol import SinkBlock
from streams.core.blocks.records import Windowed
from streams.core.errors import ConfigError
from streams.core.serdes.serdes import BYTES, NULL, Serde, WindowedSerde
from streams.core.topic import Topic
from streams.values import ColumnType, form_of, object_type, plain_member, rule_of

#: Converts a column of keys or values to the values of one table column.
Values: TypeAlias = Callable[[Sequence[Any]], list[Any]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The last millisecond of the year 9999, the limit of ``datetime``.
_LAST_MS = 253_402_300_799_999


@frozen
class TableColumn:
    """A table column: its name, its type, and the function that returns its values from keys or record values."""

    name: str
    type: ColumnType
    values: Values


@frozen
class TableShape:
    """The columns of a topic's table; a field of the value that has the name of a key column is that column."""

    keys: tuple[TableColumn, ...]
    values: tuple[TableColumn, ...]
    #: Fields of the value that are key columns.
    shared: tuple[TableColumn, ...]
    timestamp: TableColumn | None

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """All columns in order."""
        return (*self.keys, *self.values, *(() if self.timestamp is None else (self.timestamp,)))

    def rows(self, block: SinkBlock[Any, Any]) -> list[list[Any]]:
        """Return the values of all columns for the records of a block.

        Raises:
            ConnectError: a value does not fit its column, or a field differs from the key column with its name.
        """
        keys = [_values_of(column, block.keys, block) for column in self.keys]
        for column in self.shared:
            index = next(index for index, key in enumerate(self.keys) if key.name == column.name)
            own = _values_of(column, block.values, block)
            for row, (key, value) in enumerate(zip(keys[index], own, strict=True)):
                if key != value and block.values[row] is not None:
                    raise ConnectError(
                        f"{block.topic.name}-{block.partition}, offset {block.offsets[row]}: column {column.name!r} is "
                        f"{key!r} in the key and {value!r} in the value; rename the key column with key=..."
                    )
        columns = [*keys, *(_values_of(column, block.values, block) for column in self.values)]
        return columns if self.timestamp is None else [*columns, self.timestamp.values(block.timestamps_ms)]

    def last_by_key(
        self, block: SinkBlock[Any, Any], columns: Sequence[Sequence[Any]], sink: str
    ) -> tuple[list[int], list[int]]:
        """Return the indexes of the last record of each key, as two lists: of rows, and of tombstones.

        ``columns`` are the ``rows`` of the block; ``sink`` names the sink in messages.

        Raises:
            ConnectError: a record has no key.
        """
        last = {key: index for index, key in enumerate(zip(*columns[: len(self.keys)], strict=True))}
        for key, index in last.items():
            if None in key:
                raise ConnectError(
                    f"{sink}: {block.topic.name}-{block.partition}, offset {block.offsets[index]}: the record has no "
                    f"key, or a null in it ({key!r}): it cannot be upserted; give mode='append'"
                )
        values = block.values
        remaining = [index for index in last.values() if values[index] is not None]
        return remaining, [index for index in last.values() if values[index] is None]


def _values_of(column: TableColumn, objects: Sequence[Any], block: SinkBlock[Any, Any]) -> list[Any]:
    try:
        return column.values(objects)
    except ValueError as error:
        raise ConnectError(f"{block.topic.name}-{block.partition}: column {column.name!r}: {error}") from None


def table_shape(topic: Topic[Any, Any], key: str | Sequence[str] = (), timestamp: str = "") -> TableShape:
    """Return the columns for a topic; ``key`` renames the key columns, and ``timestamp`` adds a column of event times.

    Raises:
        ConfigError: the number of names in ``key`` is not that of the key columns, or two columns have one name.
    """
    names = [key] if isinstance(key, str) and key else list(key)
    keys = () if topic.key_serde is NULL else _columns(topic.key_serde, "key")
    if names and len(names) != len(keys):
        raise ConfigError(
            f"topic {topic.name!r}: key={names} names {len(names)} columns, but a key has {len(keys)}: "
            f"{', '.join(column.name for column in keys) or 'none, since the topic declares no key'}"
        )
    keys = tuple(evolve(column, name=name) for column, name in zip(keys, names or _names(keys), strict=True))
    fields = _columns(topic.value_serde, "value")
    taken = set(_names(keys))
    times = TableColumn(timestamp, ColumnType.TIMESTAMP, _times) if timestamp else None
    shape = TableShape(
        keys,
        tuple(column for column in fields if column.name not in taken),
        tuple(column for column in fields if column.name in taken),
        times,
    )
    column_names = _names(shape.columns)
    twice = sorted({name for name in column_names if column_names.count(name) > 1})
    if twice:
        raise ConfigError(
            f"topic {topic.name!r}: two columns are called {twice[0]!r}; rename one with key= or timestamp="
        )
    return shape


def lost_table(sink: object, connector: str, topic: str, positions: str) -> ConfigError:
    """Return the error for a table that is missing although ``positions``, another table, has positions in it.

    A table that is made anew would lack the rows before these positions.
    """
    return ConfigError(
        f"{sink!r}: the table does not exist, but the connector {connector!r} has positions in topic {topic!r}, so the "
        f"rows before them would be missing; to write all rows again: DELETE FROM {positions} WHERE connector = "
        f"'{connector}' AND topic = '{topic}'; to go on without them, create the table yourself"
    )


def _names(columns: Iterable[TableColumn]) -> list[str]:
    return [column.name for column in columns]


def _columns(serde: Serde[Any], name: str) -> tuple[TableColumn, ...]:
    if isinstance(serde, WindowedSerde):
        return _windowed(serde)
    if serde is BYTES or serde is NULL:
        return (TableColumn(name, ColumnType.BYTES, list),)
    form = object_type(serde)
    if form is None:
        return (TableColumn(name, ColumnType.JSON, _serialized(serde)),)
    info = plain_member(inspect.type_info(form[0]))
    fields = getattr(info, "fields", None)
    if not fields or getattr(info, "array_like", False) or getattr(info, "tag", None) is not None:
        kind, convert = _scalar(info)
        return (TableColumn(name, kind, convert or (list if kind is not ColumnType.JSON else _serialized(serde))),)
    is_dict = isinstance(info, inspect.TypedDictType)
    return tuple(_field(part, is_dict=is_dict) for part in fields)


def _field(part: Any, *, is_dict: bool) -> TableColumn:
    name = part.encode_name
    own = part.name
    kind, convert = _scalar(part.type)
    convert = convert or (_json_texts if kind is ColumnType.JSON else list)

    def of_dicts(column: Sequence[Any]) -> list[Any]:
        return convert([None if value is None else value.get(name) for value in column])

    def of_objects(column: Sequence[Any]) -> list[Any]:
        return convert([None if value is None else getattr(value, own) for value in column])

    return TableColumn(name, kind, of_dicts if is_dict else of_objects)


def _scalar(info: Any) -> tuple[ColumnType, Values | None]:
    """Return the column type of a Python type, and the conversion of its values if they need one."""
    rule = rule_of(plain_member(info))
    if rule is None:
        return ColumnType.JSON, None
    convert = rule.column_value
    if convert is None:
        return rule.sql, None
    return rule.sql, lambda column: [None if value is None else convert(value) for value in column]


def _windowed(serde: WindowedSerde[Any]) -> tuple[TableColumn, ...]:
    def of_key(convert: Values) -> Values:
        return lambda column: convert([None if key is None else key.key for key in column])

    def bound(index: int) -> Values:
        def values(column: Sequence[Windowed[Any] | None]) -> list[Any]:
            return [None if key is None else _time(key.window[index]) for key in column]

        return values

    inner = [TableColumn(column.name, column.type, of_key(column.values)) for column in _columns(serde.inner, "key")]
    return (
        *inner,
        TableColumn("window_start", ColumnType.TIMESTAMP, bound(0)),
        TableColumn("window_end", ColumnType.TIMESTAMP, bound(1)),
    )


def _time(time_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=min(time_ms, _LAST_MS))


def _times(column: Sequence[int]) -> list[Any]:
    return [_time(time_ms) for time_ms in column]


def _serialized(serde: Serde[Any]) -> Values:
    """Return the function that converts keys or values to JSON text, as in files."""
    to_json = form_of(serde).to_json

    def texts(column: Sequence[Any]) -> list[Any]:
        return [None if data is None else to_json(data).decode() for data in serde.serialize_all(column)]

    return texts


def _json_texts(column: Sequence[Any]) -> list[Any]:
    encode = msgspec.json.encode
    return [None if value is None else encode(value, enc_hook=_model).decode() for value in column]


def _model(value: Any) -> Any:
    """Return a pydantic model that is nested in a value as a dict."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    raise NotImplementedError(f"{type(value).__qualname__} has no JSON form")
