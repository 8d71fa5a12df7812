"""SQL over the outputs and stores of a replay, by DuckDB, which is imported on use."""

from collections.abc import Mapping, Sequence
from typing import Any

from streams.core.errors import ConfigError, InputError
from streams.replay.errors import ExpectationError

#: Number of rows of a failed expectation that are shown.
_SHOWN = 5


def queried(query: str, outputs: Mapping[str, Any], stores: Mapping[str, Any]) -> Any:
    """Return the result of a query as an Arrow table; outputs are tables, and stores are tables of schema ``stores``.

    Raises:
        ConfigError: DuckDB is not installed.
        InputError: the query is invalid.
    """
    try:
        import duckdb
    except ImportError as error:
        raise ConfigError(
            f"SQL over the outputs of a replay needs DuckDB ({error}); install it: pip install duckdb"
        ) from None
    with duckdb.connect() as connection:
        for name, table in outputs.items():
            connection.register(name, table)
        connection.execute("CREATE SCHEMA stores")
        for number, (name, table) in enumerate(stores.items()):
            connection.register(f"_store_{number}", table)
            connection.execute(f'CREATE VIEW stores."{name}" AS SELECT * FROM _store_{number}')
        try:
            if [part.type for part in connection.extract_statements(query)] != [duckdb.StatementType.SELECT]:
                raise InputError(f"{query}: is not one query; give SELECT ...")
            return connection.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise InputError(f"{query}: {error}") from error


def check_expectations(queries: Sequence[str], outputs: Mapping[str, Any], stores: Mapping[str, Any]) -> None:
    """Check that no query returns a row.

    Raises:
        ExpectationError: some return rows, which the message shows.
    """
    failed: dict[str, int] = {}
    lines = []
    for query in queries:
        rows = queried(query, outputs, stores)
        if rows.num_rows:
            failed[query] = rows.num_rows
            shown = "; ".join(
                ", ".join(f"{name}={value}" for name, value in row.items()) for row in rows.slice(0, _SHOWN).to_pylist()
            )
            more = f" and {rows.num_rows - _SHOWN:,} more" if rows.num_rows > _SHOWN else ""
            lines.append(f"{query}: {shown}{more}")
    if failed:
        raise ExpectationError(
            f"{len(failed):,} of {len(queries):,} expectations are not met, so that no output was written: "
            + " | ".join(lines),
            failed=failed,
        )
