"""SQL over the outputs and stores of a replay, by DuckDB, which is imported on use."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    with _opened() as connection:
        _check(connection, query)
        for name, table in outputs.items():
            connection.register(name, table)
        connection.execute("CREATE SCHEMA stores")
        for number, (name, table) in enumerate(stores.items()):
            connection.register(f"_store_{number}", table)
            connection.execute(f'CREATE VIEW stores."{name}" AS SELECT * FROM _store_{number}')
        with _explained(query):
            return connection.sql(query).to_arrow_table()


def check_syntax(queries: Sequence[str]) -> None:
    """Check queries before there are outputs: hours of replay may lie before them.

    Raises:
        ConfigError: DuckDB is not installed.
        InputError: one is not a query.
    """
    if queries:
        with _opened() as connection:
            for query in queries:
                _check(connection, query)


def _opened() -> Any:
    """Return a connection to a database in memory, in which names are not those of Python's variables.

    Raises:
        ConfigError: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise ConfigError(
            f"SQL over the outputs of a replay needs DuckDB ({error}); install it: pip install duckdb"
        ) from None
    return duckdb.connect(config={"python_enable_replacements": False})


def _check(connection: Any, query: str) -> None:
    """Check that a text is one query.

    Raises:
        InputError: it is none.
    """
    import duckdb

    with _explained(query):
        types = [part.type for part in connection.extract_statements(query)]
    if types != [duckdb.StatementType.SELECT]:
        raise InputError(f"{query}: is not one query; give SELECT ...")


@contextmanager
def _explained(query: str) -> Iterator[None]:
    """Raise errors of DuckDB within the ``with`` block as ``InputError``, on one line.

    Raises:
        InputError: DuckDB refuses the query.
    """
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        # The query with a mark below the mistake follows.
        reason = str(error).partition("\n\nLINE ")[0]
        raise InputError(f"{query}: {' '.join(reason.split())}") from error


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
            f"{len(failed):,} of {len(queries):,} expectations are not met: " + " | ".join(lines),
            failed=failed,
        )
