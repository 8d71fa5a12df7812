"""Whether data of one Avro schema can be read with another one (Avro 1.12, "Schema Resolution"). Pure."""

from collections.abc import Iterator

from streams.registry.avro_types import AvroType

#: Types that a reader of a type can read too.
_PROMOTIONS = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "string": ("bytes",),
    "bytes": ("string",),
}


def unreadable(reader: AvroType, writer: AvroType) -> list[str]:
    """Return why data of ``writer`` cannot be read as ``reader``, each reason with its path; [] if it can."""
    return list(_compared(reader, writer, "", set()))


def _problem(kind: str, path: str, told: str) -> str:
    return f"{{errorType:'{kind}', description:'{told}', path:'{path or '/'}'}}"


def _compared(reader: AvroType, writer: AvroType, path: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    # Records may contain themselves: a pair that is being compared is taken as readable.
    pair = (id(reader), id(writer))
    if pair in seen:
        return
    seen.add(pair)
    if writer.kind == "union":
        for number, branch in enumerate(writer.branches):
            if reader.kind == "union" or list(_compared(reader, branch, path, set(seen))):
                yield from _in_union(reader, branch, f"{path}/{number}", seen)
    elif reader.kind == "union":
        yield from _in_union(reader, writer, path, seen)
    elif reader.kind != writer.kind:
        is_decimal = reader.decimal is not None and reader.decimal == writer.decimal
        if writer.kind not in _PROMOTIONS.get(reader.kind, ()) and not is_decimal:
            yield _problem(
                "TYPE_MISMATCH",
                path,
                f"reader type {reader.kind.upper()} not compatible with writer type {writer.kind.upper()}",
            )
    elif reader.items is not None and writer.items is not None:
        yield from _compared(
            reader.items, writer.items, f"{path}/{'items' if reader.kind == 'array' else 'values'}", seen
        )
    elif reader.name:
        yield from _named(reader, writer, path, seen)


def _in_union(reader: AvroType, writer: AvroType, path: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    branches = reader.branches if reader.kind == "union" else (reader,)
    if not any(not list(_compared(branch, writer, path, set(seen))) for branch in branches):
        yield _problem("MISSING_UNION_BRANCH", path, f"reader cannot read the writer's {writer.name or writer.kind}")


def _named(reader: AvroType, writer: AvroType, path: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    # The name without its namespace counts, as in the Java library.
    own = {name.rpartition(".")[2] for name in (reader.name, *reader.aliases)}
    if writer.name.rpartition(".")[2] not in own:
        yield _problem("NAME_MISMATCH", f"{path}/name", f"the name of the schema has changed from {writer.name}")
    if reader.kind == "fixed" and reader.size != writer.size:
        yield _problem("FIXED_SIZE_MISMATCH", f"{path}/size", f"expected: {writer.size}, found: {reader.size}")
    if reader.kind == "enum" and reader.default is None:
        missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
        if missing:
            yield _problem("MISSING_ENUM_SYMBOLS", f"{path}/symbols", f"the reader has no {', '.join(missing)}")
    written = {part.name: part for part in writer.fields}
    for number, part in enumerate(reader.fields):
        old = next((written[name] for name in (part.name, *part.aliases) if name in written), None)
        place = f"{path}/fields/{number}"
        if old is not None:
            yield from _compared(part.type, old.type, f"{place}/type", seen)
        elif not part.has_default:
            yield _problem(
                "READER_FIELD_MISSING_DEFAULT_VALUE",
                place,
                f"the field {part.name} has no default value and is missing in the writer",
            )
