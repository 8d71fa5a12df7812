"""Tables of all libraries give the values of the rule; one table has a column for each form, type and shape.

Types are checked by column, so the columns that fit are read at once, in one replay, and those that do not are refused
at once, with a message that names each of them.
"""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen

from streams import StreamsBuilder, Topic
from streams.core.errors import InputError
from streams.replay import Plan, replay
from tests.values.media import ARROW, Form, arrow_array, is_same
from tests.values.rule import EXTREMES, RULE, TARGETS, Refused
from tests.values.shapes import SHAPES
from tests.values.test_matrix import is_open, verdict


@frozen
class Column:
    """A column of values of one form, for a field of one declared type; the first is repeated to the last row."""

    name: str
    arrival: str
    target: str
    form: Form
    shape: str
    values: tuple[Any, ...]
    is_taken: bool

    def array(self, rows: int) -> Any:
        # A library may make other types of columns with nulls, as pandas makes floats of integers.
        values = [*self.values, *[self.values[0]] * (rows - len(self.values))]
        return SHAPES[self.shape].arrow(arrow_array(self.form, values))


def columns(shapes: tuple[str, ...]) -> Iterator[Column]:
    """Yield the columns of all forms, types and shapes, with the values that the rule takes, or one that it refuses."""
    number = 0
    for arrival in RULE:
        for form in ARROW.get(arrival, ()):
            held = [value for value in EXTREMES[arrival] if form.holds(value)]
            for target in TARGETS:
                if is_open("parquet", arrival, target):
                    continue
                taken = tuple(v for v in held if verdict("table", arrival, target, form, v) is not Refused)
                for shape in shapes:
                    number += 1
                    yield Column(f"c{number}", arrival, target, form, shape, taken or (held[0],), bool(taken))


@cache
def split(shapes: tuple[str, ...]) -> tuple[list[Column], list[Column]]:
    """Return the columns with values, and those that are refused by their type."""
    every = list(columns(shapes))
    return (
        [column for column in every if column.is_taken],
        [column for column in every if column.target not in RULE[column.arrival]],
    )


def read(table: Any, fields: list[Column], **options: Any) -> dict[str, list[Any]]:
    """Return the values of the columns of a table by the name of the column, in order of rows."""
    parts = {"row": attrs.field(type=int)}
    parts |= {
        column.name: attrs.field(type=SHAPES["optional"].declared(kind), default=None)
        for column in fields
        for kind in (SHAPES[column.shape].declared(TARGETS[column.target]),)
    }
    row = attrs.make_class("Row", parts, frozen=True)
    rows: Topic[Any, Any] = Topic(
        "rows", key=int, value=row, timestamp=lambda value: value.row, key_from=lambda v: v.row
    )
    out: Topic[Any, Any] = Topic("out", key=int, value=row)

    def copy(builder: StreamsBuilder) -> None:
        builder.stream(rows).to(out)

    options = {"executor": "local"} | options
    with replay(copy, {rows: table}, partitions=1, plan=Plan(store="in_memory"), **options) as result:
        found = [out.value_serde.deserialize(value) for _, block in result.read(out) for value in block.values]
    found.sort(key=lambda value: value.row)
    return {column.name: [getattr(value, column.name) for value in found] for column in fields}


def table_of(fields: list[Column]) -> Any:
    """Return the Arrow table of columns, whose rows are numbered."""
    rows = max(len(column.values) for column in fields)
    return pa.table({"row": pa.array(range(rows)), **{column.name: column.array(rows) for column in fields}})


def differences(name: str, fields: list[Column], found: dict[str, list[Any]]) -> Iterator[str]:
    for column in fields:
        for value, outcome in zip(column.values, found[column.name], strict=False):
            wanted = verdict(name, column.arrival, column.target, column.form, value)
            unwrapped = SHAPES[column.shape].unwrap(outcome) if outcome is not None else None
            if not is_same(unwrapped, wanted):
                yield (
                    f"{column.arrival} as {column.target}: {name} ({column.form.name}, {column.shape}) makes of "
                    f"{value!r:.60} {outcome!r:.100}, and the rule {wanted!r:.100}"
                )


Way = Callable[[Any, Path], Any]


def _file(rows: Any, folder: Path) -> Path:
    pq.write_table(rows, folder / "table.parquet")
    return folder / "table.parquet"


def _duckdb_file(rows: Any, folder: Path) -> Path:
    duckdb.sql("SELECT * FROM rows").write_parquet(str(folder / "duck.parquet"))
    return folder / "duck.parquet"


def _polars_file(rows: Any, folder: Path) -> Path:
    polars.from_arrow(rows).write_parquet(folder / "polars.parquet")
    return folder / "polars.parquet"


def _pandas_file(rows: Any, folder: Path) -> Path:
    rows.to_pandas().to_parquet(folder / "pandas.parquet")
    return folder / "pandas.parquet"


def _delta(rows: Any, folder: Path) -> str:
    from deltalake import write_deltalake

    write_deltalake(folder / "delta", rows)
    return f"delta:{folder / 'delta'}"


def _iceberg(rows: Any, folder: Path) -> str:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("shop")
    catalog.create_namespace_if_not_exists("values")
    name = f"values.t{abs(hash(tuple(rows.column_names)))}"
    catalog.create_table(name, rows.schema).append(rows)
    return f"iceberg:shop.{name}"


#: How a table comes in, and the forms that the library does not have, or makes others of.
_POLARS = "decimal256* timestamp[[]ms,?tz=+05:30] date64"
_DUCKDB = "halffloat decimal256* duration*"
WAYS: dict[str, tuple[Way, str]] = {
    "pyarrow": (lambda rows, folder: rows, ""),
    "file of pyarrow": (_file, ""),
    "polars": (lambda rows, folder: polars.from_arrow(rows), _POLARS),
    "file of polars": (_polars_file, _POLARS),
    "duckdb": (lambda rows, folder: duckdb.sql("SELECT * FROM rows"), _DUCKDB),
    "file of duckdb": (_duckdb_file, _DUCKDB),
    "pandas": (lambda rows, folder: rows.to_pandas(), "time64[[]ns]"),
    "pandas of Arrow": (lambda rows, folder: rows.to_pandas(types_mapper=pandas.ArrowDtype), ""),
    "file of pandas": (_pandas_file, "time64[[]ns]"),
    # It writes UUIDs that it cannot read, and cuts nanoseconds toward 1970.
    "delta": (_delta, "halffloat decimal256* time32* time64* duration* uuid timestamp[[]ns*"),
    "iceberg": (
        _iceberg,
        "decimal256* date64 time32* time64[[]ns] duration* timestamp[[]ns* timestamp*+05:30] timestamp*New_York]",
    ),
}


def forms_of(lacking: str, fields: Sequence[Column]) -> list[Column]:
    """Return the columns of forms that a library has; ``lacking`` are patterns of those that it does not have."""
    patterns = [pattern.replace("?", " ") for pattern in lacking.split()]
    return [field for field in fields if not any(fnmatchcase(field.form.name, pattern) for pattern in patterns)]


@pytest.mark.case
@pytest.mark.parametrize("name", WAYS)
def test_tables_of_each_library_give_the_values_of_the_rule(name: str, iceberg: None, tmp_path: Path) -> None:
    way, lacking = WAYS[name]
    fields = forms_of(lacking, split(("alone",))[0])

    found = list(differences(name, fields, read(way(table_of(fields), tmp_path), fields)))

    assert not found, "\n".join(["", *found])


def test_columns_within_lists_dicts_and_classes_give_the_values_of_the_rule() -> None:
    fields = split(("in a list", "in a dict", "in a class"))[0]

    found = list(differences("pyarrow", fields, read(table_of(fields), fields)))

    assert not found, "\n".join(["", *found])


def test_columns_that_do_not_fit_are_refused_by_name() -> None:
    refused = split(tuple(SHAPES))[1]

    with pytest.raises(InputError) as caught:
        read(table_of(refused), refused)

    said = str(caught.value)
    missed = [field for field in refused if f"column '{field.name}" not in said]
    assert not missed, "\n".join(f"{field.form.name} as {field.target}, {field.shape}" for field in missed)


@attrs.frozen
class Inner:
    x: Any


@attrs.frozen
class Loose:
    """A class with fields of which a column has only JSON."""

    number: int
    any: Any
    union: int | str
    items: list[Any]
    inner: list[Inner]


LOOSE = [
    Loose(1, "5", "5", ["1", 1, None], [Inner("1"), Inner({"a": None})]),
    Loose(2, 5, 5, [], []),
    Loose(3, None, "a", [[]], [Inner(None)]),
]
#: How an output becomes an input.
OUTPUTS: dict[str, Callable[[Any, Any, Path], Any]] = {
    "pyarrow": lambda result, topic, folder: result.table(topic).to_arrow(),
    "polars": lambda result, topic, folder: result.table(topic).to_polars(),
    "file of duckdb": lambda result, topic, folder: _duckdb_file(result.table(topic).to_arrow(), folder),
    "folder": lambda result, topic, folder: _written(result, topic, f"{folder}/files", f"{folder}/files/*.parquet"),
    "delta": lambda result, topic, folder: _written(result, topic, f"delta:{folder}/delta"),
    "iceberg": lambda result, topic, folder: _written(result, topic, "iceberg:shop.values.json"),
}


def _written(result: Any, topic: Any, target: str, files: str = "") -> str:
    result.write(topic, target)
    return files or target


@pytest.mark.parametrize("name", OUTPUTS)
def test_any_unions_and_items_without_type_of_an_output_are_read_back(name: str, iceberg: None, tmp_path: Path) -> None:
    rows: Topic[Any, Any] = Topic("rows", value=Loose, timestamp=lambda value: value.number)
    out, again = (Topic(topic, value=Loose) for topic in ("out", "again"))
    lines = tmp_path / "rows.jsonl"
    lines.write_bytes(b"".join((rows.value_serde.serialize(value) or b"") + b"\n" for value in LOOSE))

    def copy(source: Any, target: Any) -> Callable[[StreamsBuilder], None]:
        return lambda builder: builder.stream(source).to(target)  # type: ignore[func-returns-value]

    plan = Plan(store="in_memory")
    with replay(copy(rows, out), {rows: lines}, partitions=1, executor="local", plan=plan) as result:
        source = OUTPUTS[name](result, out, tmp_path)
        with replay(copy(out, again), {out: source}, partitions=1, executor="local", plan=plan) as repeated:
            found = [
                again.value_serde.deserialize(value) for _, block in repeated.read(again) for value in block.values
            ]

    assert found == LOOSE


#: What Spark has of Arrow's types; it makes instants of local times.
_SPARK = ("bool", "int64", "int32", "int8", "double", "float", "string", "binary", "decimal128*", "date32")
_SPARK += ("timestamp[[]us,*",)


@pytest.mark.spark
def test_columns_of_spark_give_the_values_of_the_rule_and_others_are_refused_by_name(spark: Any) -> None:
    fitting, refused = (
        [field for field in fields if any(fnmatchcase(field.form.name, pattern) for pattern in _SPARK)]
        for fields in split(("alone",))
    )

    frame = spark.createDataFrame(table_of(fitting))
    found = list(differences("spark", fitting, read(frame, fitting, executor="spark", spark=spark)))
    with pytest.raises(InputError) as caught:
        read(spark.createDataFrame(table_of(refused)), refused, executor="spark", spark=spark)

    assert not found, "\n".join(["", *found])
    missed = [field for field in refused if f"column '{field.name}" not in str(caught.value)]
    assert not missed, "\n".join(f"{field.form.name} as {field.target}" for field in missed)
