"""Writes the page of values from the table in the code: ``python docs/values.py``."""

from pathlib import Path

import pyarrow as pa
from attrs import evolve
from msgspec import inspect

from streams.values.rule import CHOICES, NESTED, RULES, TypeRule

PAGE = Path(__file__).parent / "reference" / "values.md"
#: Types whose rule has not their name.
NAMES = {
    inspect.VarTupleType: "`tuple[T, ...]`",
    inspect.TupleType: "`tuple[S, T]`",
    inspect.StructType: "class, `TypedDict`",
    inspect.DataclassType: "class, `TypedDict`",
    inspect.TypedDictType: "class, `TypedDict`",
    inspect.NamedTupleType: "`NamedTuple`",
    inspect.AnyType: "`Any`, in `dict` and `list` too",
}
HEAD = """# Values

What arrives becomes exactly a value of the declared type, or it is refused, with file or table, row and column, both
types, and the cast that helps. The [guide](../guide/topics-and-types.md#values-that-arrive) has the rules line by line.

`T | None` is read as `T`, and a null as None; without None, a null is the default of the field, or refused. Items of
lists, values of dicts and fields of classes have the rules of their own types. A union of several types is read from
what one of them is read from.

## Read from JSON and from text

Text alone is a cell of a CSV file, or a parameter of a URL: they have nothing else. A string of JSON, or a column of
text, is read as such a text only by types whose JSON value is a string.
"""
COLUMNS = """
## Read from columns

Of Parquet, Arrow, DataFrames, Spark, Delta and Iceberg. The type of a column is checked once, before a row is read: ✓
is read, any other is refused with the cast.

A column of JSON, which is text that Arrow, Parquet or the table says is JSON (`arrow.json`, the JSON of DuckDB, the
comment `arrow.json` in Iceberg), is read as its values are in a file of JSON. Text without such a mark is text.
"""
WRITTEN = """
## Written

Columns are those of files, lakes and notebooks; database types those of `SqlSink` and `PostgresSink`; Avro types those
that `avro()` derives. A `Decimal` has the digits of its `precision(digits, scale)`. JSON in a column is marked as such;
so are unions of several types, and lists, dicts and fields of types that have no other column.
"""


def _rows() -> list[tuple[str, TypeRule]]:
    """Return each declared type with its rule; types that have the same are one row."""
    rules: list[tuple[list[str], TypeRule]] = []
    for kind, rule in (*RULES.items(), *NESTED.items()):
        name = NAMES.get(kind, f"`{rule.type.__name__}`")
        same = next((names for names, other in rules if evolve(other, type=rule.type) == rule), None)
        if same is None:
            rules.append(([name], rule))
        elif name not in same:
            same.append(name)
    choices = [(f"enum or `Literal` of `{next(iter(kinds)).__name__}`", rule) for kinds, rule in CHOICES.items()]
    return [*((", ".join(names), rule) for names, rule in rules), *choices]


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cell for cell in row)} |" for row in (head, ["---"] * len(head), *rows)]


def _casts(rule: TypeRule) -> str:
    return ", ".join(f"`{cast.format('c')}`" + (f" of {kind}" if kind else "") for kind, cast in rule.casts.items())


def page() -> str:
    """Return the page: what each declared type is read from, the columns, and what it is written as."""
    rows = _rows()
    families = list(dict.fromkeys(family for _, rule in rows for family in rule.columns))
    read = [[name, " or ".join(rule.json), rule.text] for name, rule in rows]
    columns = [
        [name, *("✓" if family in rule.columns else "" for family in families), _casts(rule)] for name, rule in rows
    ]
    written = [
        [
            name,
            "as it is" if rule.type is object else rule.json[0],
            f"`{rule.arrow(pa)}`" if rule.arrow else rule.columns[0] if rule.avro else "JSON",
            rule.sql.value,
            f"`{rule.avro}`" if rule.avro else "",
        ]
        for name, rule in rows
    ]
    return "\n".join(
        [
            HEAD,
            *_table(["declared", "JSON value", "text"], read),
            COLUMNS,
            *_table(["declared", *families, "cast"], columns),
            WRITTEN,
            *_table(["declared", "JSON", "column", "database", "Avro"], written),
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
