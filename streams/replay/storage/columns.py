"""The columns of the files of a replay, and the blocks of records that are read from them."""

from functools import cache
from typing import Any

from streams.core.blocks.records import NO_LANE, Block, Headers, Lanes
from streams.values import headers_type


@cache
def schema(*, has_places: bool) -> Any:
    """Return the Arrow schema of the files.

    ``origin`` is the row number of the record in its input file.  ``place`` is the place of a record that a task has
    written, null where it is the timestamp, so that the column of records in order of time is empty; files of inputs
    and of stores do not have it.
    """
    import pyarrow as pa

    columns = {
        "offset": pa.int64(),
        "key": pa.binary(),
        "value": pa.binary(),
        "timestamp": pa.int64(),
        "headers": headers_type(),
        "origin": pa.int64(),
    }
    return pa.schema(columns | {"place": pa.int64()} if has_places else columns)


def places_array(places: list[int], timestamps: list[int]) -> Any:
    """Return the places of records as an Arrow array, null where the place of a record is its timestamp."""
    import numpy as np
    import pyarrow as pa

    if places == timestamps:
        return pa.nulls(len(places), pa.int64())
    values = np.array(places, dtype=np.int64)
    return pa.array(values, mask=values == np.array(timestamps, dtype=np.int64))


def headers_of(column: Any) -> list[Headers] | None:
    """Convert an Arrow column of headers to a list, or None if no record has headers."""
    if column.null_count == len(column):
        return None
    return [
        () if record is None else tuple((header["name"], header["value"]) for header in record)
        for record in column.to_pylist()
    ]


def block_of(table: Any) -> Block:
    """Return all records of a row group."""
    keys = table.column("key")
    size = table.num_rows
    timestamps = table.column("timestamp").to_pylist()
    lanes = None
    if "place" in table.column_names:
        places = places_in(table)
        # The lane is where the records are stored; only their places decide their order among those of other lanes.
        lanes = Lanes.of_one(NO_LANE, timestamps if places is None else places.to_pylist())
    return Block(
        [None] * size if keys.null_count == size else keys.to_pylist(),
        table.column("value").to_pylist(),
        timestamps,
        headers_of(table.column("headers")),
        table.column("offset").to_pylist(),
        lanes=lanes,
    )


def places_in(table: Any) -> Any:
    """Return the places of the records of a row group as an Arrow column, or None if they are the timestamps."""
    import pyarrow.compute as pc

    places = table.column("place")
    return None if places.null_count == table.num_rows else pc.coalesce(places, table.column("timestamp"))
