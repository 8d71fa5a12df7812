"""Tables that Spark 4.0 with Iceberg 1.10 and Delta Lake 4.0, and Iceberg's Java library, have written.

``tables.tar.xz`` has them with relative paths, as they were written: rows with ``id`` from 0, ``at`` as many seconds
after 1970, and ``s``, the id after the letter.
"""

import tarfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.utils.config import Config

from streams import StreamsBuilder, Topic
from streams.core.errors import InputError
from streams.replay import replay


@pytest.fixture(autouse=True)
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(Path(__file__).with_name("tables.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


def rows_of(table: str, **fields: Any) -> list[tuple[Any, ...]]:
    """Return id and the given fields of all rows."""
    kind = TypedDict("kind", {"id": int, "at": datetime, **fields})
    rows = Topic("rows", value=kind, timestamp=itemgetter("at"))
    source = f"delta:delta/{table}"
    if Path("lake/shop", table).exists():
        load_catalog("shop").create_namespace_if_not_exists("shop")
        with suppress(ValidationError):  # Of a type that pyiceberg lacks.
            load_catalog("shop").register_table(f"shop.{table}", f"lake/shop/{table}/metadata/table.metadata.json")
        source = f"iceberg:shop.shop.{table}"

    def copy(builder: StreamsBuilder) -> None:
        builder.stream(rows).to(Topic("out", value=kind))

    with replay(copy, {rows: source}, executor="local", processes=1, application_id="a", partitions=1) as result:
        found = [row.value for row in result.rows("out")]
    assert "s" not in fields or all(
        row["at"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=row["id"]) for row in found
    )
    return [(row["id"], *(row[name] for name in fields)) for row in found]


@pytest.mark.parametrize("table", ["positions", "vectors"])
def test_rows_that_iceberg_deleted_by_position_or_by_a_vector_are_gone(table: str) -> None:
    """Eight rows; 1 and 5 are deleted, and 2 is updated."""
    assert rows_of(table, s=str) == [(0, "s0"), (2, "new"), (3, "s3"), (4, "s4"), (6, "s6"), (7, "s7")]


def test_columns_of_iceberg_have_its_defaults_and_uuids() -> None:
    """The columns d and n were added to the first row with defaults, of version 3."""
    assert rows_of("defaults", d=str | None, n=int) == [(1, "unset", 7), (2, None, 8)]
    assert rows_of("uuid", v=UUID) == [(1, UUID("67e55044-10b1-426f-9247-bb680e5fe0c8"))]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("equality", "does not yet support equality deletes"),
        ("avro", r"has data files in AVRO, which the package pyiceberg does not read; .*Spark"),
        ("variant", "Unsupported field type: 'variant'"),
        ("deletionVectors", "has deletionVectors, .*DROP FEATURE"),
        ("columnMapping", "has columnMapping, .*DROP FEATURE"),
        ("typeWidening", "has typeWidening, .*DROP FEATURE"),
    ],
)
def test_what_the_packages_do_not_read_is_refused_by_name(table: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rows_of(table, s=str)


def test_a_data_file_that_is_gone_is_no_fault_of_what_is_written() -> None:
    write_deltalake("delta/gone", pa.table({"id": [0], "at": pa.array([datetime(1970, 1, 1, tzinfo=UTC)])}))
    for file in Path("delta/gone").glob("*.parquet"):
        file.unlink()

    with pytest.raises(InputError, match=r"delta/gone as input of topic 'rows': its rows cannot be read: .*parquet"):
        rows_of("gone")
