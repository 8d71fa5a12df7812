"""Arrow columns as canonical JSON: rows are serialized column by column, without a Python object per row.

Arrow, or a conversion of the distinct values, produces the text of each column, and the texts of a row are joined.  The
result has the same bytes as that of the type's serde.  ``NotColumnarError`` means that a batch, or one of its
rows, has to be converted row by row.
"""

import dataclasses
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import msgspec
from attrs import frozen
from msgspec import inspect

from streams.core.serdes.serdes import canonical_json
from streams.values.cells import cell_converter, whole_or_same
from streams.values.rule import arrow_family, is_optional, plain_member, rule_of

#: Converts an Arrow array to an Arrow array of JSON texts, null where the value is null.
Writer: TypeAlias = Callable[[Any], Any]

#: The range of times that Python can represent, in microseconds and in days since 1970.
_TIMES_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_DAYS = (-719_162, 2_932_896)


class NotColumnarError(Exception):
    """The rows of a batch must be converted one by one: the type of a column is not supported, or a row may be bad."""


def writer_of(info: Any, outer: tuple[Any, ...] = ()) -> Writer | None:
    """Return the writer of a declared type, or None if its values can only be written one by one.

    ``outer`` contains the classes that contain the type.
    """
    info = plain_member(info)
    if isinstance(info, (inspect.StructType, inspect.DataclassType)):
        return struct_writer(info, outer)
    if isinstance(info, (inspect.ListType, inspect.VarTupleType)):
        item = writer_of(info.item_type, outer)
        if item is None or info != type(info)(info.item_type):
            return None
        return _ListWriter(item, is_optional(info.item_type))
    if isinstance(info, inspect.DictType):
        item = writer_of(info.value_type, outer)
        if item is None or info != inspect.DictType(inspect.StrType(), info.value_type):
            return None
        return _MapWriter(item, is_optional(info.value_type))
    if isinstance(info, inspect.EnumType):
        return _ScalarWriter(type(info), cell_converter(info.cls))
    if isinstance(info, inspect.LiteralType):
        return _ScalarWriter(type(info), cell_converter(Literal[tuple(info.values)]))
    rule = rule_of(info)
    return _ScalarWriter(type(info), cell_converter(rule.type)) if rule and info == type(info)() else None


# --- scalars --------------------------------------------------------------------------------


@frozen
class _ScalarWriter:
    """Writes the values of one scalar type: ``type`` is msgspec's description of it, ``convert`` reads one value."""

    type: type[inspect.Type]
    convert: Callable[[Any], Any]

    def __call__(self, array: Any) -> Any:
        family = arrow_family(array.type)
        if family == "json":
            raise NotColumnarError("JSON is read value by value")
        write = _COLUMNAR.get((self.type, family))
        return _by_distinct(array, self._text) if write is None else write(array)

    def _text(self, value: Any) -> bytes:
        if self.type is not inspect.DecimalType and isinstance(value, Decimal):
            value = whole_or_same(value)
        return canonical_json(self.convert(value))


def _quoted(texts: Any) -> Any:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise('"', texts, '"', "")


def _checked_text(array: Any) -> Any:
    """Return strings as they appear between the quotes of JSON strings."""
    import numpy as np
    import pyarrow as pa

    array = array.cast(pa.string())
    array.validate(full=True)
    data = array.buffers()[2]
    if data is None:
        return array
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    octets = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    if not ((octets < 0x20) | (octets == 0x22) | (octets == 0x5C)).any():
        return array
    return _by_distinct(array, lambda text: canonical_json(text)[1:-1])


def _floats(array: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    values = array.drop_null()
    if not len(values):
        return pa.nulls(len(array), pa.string())
    _check_finite(values)
    text = msgspec.json.encode(values.to_pylist())[1:-1]
    return spread(pc.split_pattern(pa.array([text], pa.string()), ",").flatten(), array)


def _check_finite(numbers: Any) -> None:
    import pyarrow.compute as pc

    if not pc.all(pc.is_finite(numbers.drop_null())).as_py():
        raise NotColumnarError("JSON has no NaN and no infinity")


def _times(array: Any) -> Any:
    """Return times in RFC 3339 format, with microseconds only if they are not 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    zone = "Z" if array.type.tz else ""
    plain = array.cast(pa.timestamp("us"))  # Text with a time zone takes 20 times as long.
    numbers = array.cast(pa.int64())
    _check_range(numbers, _TIMES_US)
    texts = plain.cast(pa.string())
    is_whole = numbers.fill_null(0).to_numpy(zero_copy_only=False) % 1_000_000 == 0
    if is_whole.any():
        texts = pc.if_else(pa.array(is_whole), pc.utf8_slice_codeunits(texts, 0, 19), texts)
    texts = pc.binary_replace_slice(texts, 10, 11, "T")
    return pc.binary_join_element_wise(texts, zone, "") if zone else texts


def _check_range(numbers: Any, limits: tuple[int, int]) -> None:
    import pyarrow.compute as pc

    extremes = pc.min_max(numbers).as_py()
    if extremes["min"] is not None and not limits[0] <= extremes["min"] <= extremes["max"] <= limits[1]:
        raise NotColumnarError("a time that Python does not have")


def _by_distinct(array: Any, text: Callable[[Any], bytes]) -> Any:
    """Convert values to text; each distinct value is converted only once."""
    import pyarrow as pa

    if pa.types.is_floating(array.type):
        _check_finite(array)
        return pa.array([None if value is None else text(value) for value in array.to_pylist()], pa.string())
    encoded = array.dictionary_encode()
    return pa.array([text(value) for value in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def spread(dense: Any, array: Any) -> Any:
    """Expand ``dense``, the values for the rows of ``array`` that are not null, with nulls for the other rows."""
    import numpy as np
    import pyarrow as pa

    if not array.null_count:
        return dense
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)
    return dense.take(pa.array(np.cumsum(is_valid) - 1, pa.int64(), mask=~is_valid))


def _whole(array: Any) -> Any:
    import pyarrow as pa

    return array.cast(pa.int64()).cast(pa.string())


def _plain(array: Any) -> Any:
    import pyarrow as pa

    return array.cast(pa.string())


def _days(array: Any) -> Any:
    import pyarrow as pa

    _check_range(array.cast(pa.int32()), _DAYS)
    return _quoted(_plain(array))


#: Writers that convert a column by Arrow, by declared type and family; any other value is converted by itself.
_COLUMNAR: Final[Mapping[tuple[type[inspect.Type], str], Writer]] = {
    (inspect.StrType, "text"): lambda array: _quoted(_checked_text(array)),
    (inspect.IntType, "integer"): _plain,
    (inspect.IntType, "whole decimal"): _whole,
    (inspect.BoolType, "boolean"): _plain,
    (inspect.FloatType, "float"): _floats,
    (inspect.FloatType, "small float"): _floats,
    (inspect.DecimalType, "decimal"): lambda array: _quoted(_plain(array)),
    (inspect.DecimalType, "whole decimal"): lambda array: _quoted(_plain(array)),
    (inspect.DateTimeType, "timestamp"): lambda array: _quoted(_times(array)),
    (inspect.DateType, "date"): _days,
}


def _complete(texts: Any, default: bytes | None) -> Any:
    """Replace nulls in a column of texts by ``default``.

    Raises:
        NotColumnarError: there are nulls, and no default.
    """
    if not texts.null_count:
        return texts
    if default is None:
        raise NotColumnarError("a value is missing")
    return texts.fill_null(default.decode())


# --- structs, lists and maps ----------------------------------------------------------------


@frozen
class _Field:
    name: str
    write: Writer
    #: JSON of a null: "null" if None is a value, otherwise the default; None if ``factory`` makes it, or there is none.
    null: bytes | None
    #: Makes the default of a row.
    factory: Callable[[], Any] | None
    #: JSON of the default, for all rows if there is no column.
    missing: bytes | None

    def texts(self, array: Any | None, size: int) -> Any:
        """Return the values of a column as JSON texts; without a column, return the default as JSON text."""
        import pyarrow as pa

        if array is None and self.missing is not None:
            return self.missing.decode()
        if array is None and self.factory is None:
            raise NotColumnarError("a column is missing")
        texts = pa.nulls(size, pa.string()) if array is None or pa.types.is_null(array.type) else self.write(array)
        if self.factory is not None and texts.null_count and (array is None or self.null is None):
            default = self.factory
            rest = texts.to_pylist()
            return pa.array(
                [canonical_json(default()).decode() if text is None else text for text in rest], pa.string()
            )
        return _complete(texts, self.null)


@frozen
class StructWriter:
    """Writes the values of a class, whose fields are columns."""

    fields: tuple[_Field, ...]

    def __call__(self, array: Any) -> Any:
        """Return the values of a column of structs as JSON texts."""
        import pyarrow as pa

        if not pa.types.is_struct(array.type):
            raise NotColumnarError("not a struct")
        dense = array.drop_null() if array.null_count else array
        columns = {part.name: dense.field(index) for index, part in enumerate(dense.type)}
        return spread(self.rows(columns, len(dense)), array)

    def rows(self, columns: dict[str, Any], size: int) -> Any:
        """Return ``size`` rows with these columns as JSON texts."""
        return joined_fields(self.texts(columns, size), size)

    def texts(self, columns: dict[str, Any], size: int) -> dict[str, Any]:
        """Return the JSON texts of each field, by name; a single text if it is the same in all rows."""
        return {part.name: part.texts(columns.get(part.name), size) for part in self.fields}


def joined_fields(fields: dict[str, Any], size: int) -> Any:
    """Join the JSON texts of fields, given by field name, to the JSON texts of rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = ["{"]
    for number, (name, texts) in enumerate(fields.items()):
        parts[-1] += f"{',' if number else ''}{canonical_json(name).decode()}:"
        if isinstance(texts, str):
            parts[-1] += texts
        else:
            parts += [texts, ""]
    parts[-1] += "}"
    if len(parts) == 1:
        return pa.array(parts * size, pa.string())
    return pc.binary_join_element_wise(*parts, "")


def struct_writer(info: Any, outer: tuple[Any, ...] = ()) -> StructWriter | None:
    """Return the writer of a class, or None if its values can only be written one by one."""
    if info.cls in outer or not is_plain_class(info):
        return None
    fields = []
    for part in info.fields:
        write = writer_of(part.type, (*outer, info.cls))
        if write is None:
            return None
        try:
            missing = None if part.default is msgspec.NODEFAULT else canonical_json(part.default)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return None
        factory = None if part.default_factory is msgspec.NODEFAULT else part.default_factory
        fields.append(_Field(part.encode_name, write, b"null" if is_optional(part.type) else missing, factory, missing))
    return StructWriter(tuple(sorted(fields, key=lambda part: part.name.encode())))


def is_plain_class(info: Any) -> bool:
    """Return whether the JSON of a class has exactly its fields, and no code of the class changes their values."""
    if not isinstance(info, (inspect.StructType, inspect.DataclassType)):
        return False
    if any(hasattr(info.cls, hook) for hook in ("__post_init__", "__attrs_pre_init__", "__attrs_post_init__")):
        return False
    if isinstance(info, inspect.StructType):
        config = info.cls.__struct_config__
        return not (info.array_like or info.tag is not None or config.omit_defaults)
    parts = getattr(info.cls, "__attrs_attrs__", None)
    if parts is not None:
        is_plain = all(part.init and part.validator is None and part.converter is None for part in parts)
    else:
        is_plain = all(part.init for part in dataclasses.fields(info.cls))
    return is_plain and not any(part.name.startswith("_") for part in info.fields)


@frozen
class _ListWriter:
    item: Writer
    has_nulls: bool

    def __call__(self, array: Any) -> Any:
        import pyarrow as pa

        if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
            raise NotColumnarError("not a list")
        texts = _complete(self.item(array.flatten()), b"null" if self.has_nulls else None)
        return _joined(texts, array.value_lengths(), "[]")


@frozen
class _MapWriter:
    item: Writer
    has_nulls: bool

    def __call__(self, array: Any) -> Any:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if not (pa.types.is_map(array.type) and pa.types.is_string(array.type.key_type)):
            raise NotColumnarError("not a map")
        keys, items, lengths = map_parts(array)
        texts = pc.binary_join_element_wise(
            _quoted(_checked_text(keys)), _complete(self.item(items), b"null" if self.has_nulls else None), ":"
        )
        order = _key_order(keys, np.repeat(np.arange(len(lengths)), lengths))
        if order is not None:
            texts = texts.take(pa.array(order))
        return spread(_joined(texts, pa.array(lengths, pa.int32()), "{}"), array)


def map_parts(array: Any) -> tuple[Any, Any, Any]:
    """Return the keys and items of a column of maps, and how many of them each map has that is not null."""
    import numpy as np
    import pyarrow as pa

    # A slice shares the keys and items of the whole array, and a null row may have items too; Arrow does not take rows
    # of UUIDs.
    is_valid = array.is_valid().to_numpy(zero_copy_only=False)
    dense = array.take(pa.array(np.flatnonzero(is_valid))) if array.null_count else array
    offsets = dense.offsets.to_numpy()
    keys, items = (part.slice(offsets[0], offsets[-1] - offsets[0]) for part in (dense.keys, dense.items))
    return keys, items, np.diff(offsets)


def _key_order(keys: Any, rows: Any) -> Any:
    """Return the order of the items of maps by row and key, or None if they are already in this order.

    Raises:
        NotColumnarError: a key occurs twice in a row.
    """
    import numpy as np

    encoded = keys.dictionary_encode()
    names = [name.encode() for name in encoded.dictionary.to_pylist()]
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    places = rows * max(1, len(names)) + ranks[encoded.indices.to_numpy(zero_copy_only=False)]
    if (np.diff(places) > 0).all():
        return None
    order = np.argsort(places, kind="stable")
    if not np.diff(places[order]).all():
        raise NotColumnarError("a key occurs twice")
    return order


def _joined(texts: Any, lengths: Any, brackets: str) -> Any:
    """Join the JSON texts of items to the JSON texts of lists; ``lengths`` has the number of items of each list."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = lengths.fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), texts), ",")
    texts = pc.binary_join_element_wise(brackets[0], joined, brackets[1], "")
    if lengths.null_count:
        texts = pc.if_else(lengths.is_valid(), texts, pa.scalar(None, pa.string()))
    return texts
