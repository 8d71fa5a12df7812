"""Look-ups with an SQL query, through a DBAPI connection or an SQLAlchemy engine (extra ``sql``).

This module imports only ``core``; SQLAlchemy is imported only for an engine.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias

from typing_extensions import TypeVar

from streams.core.errors import ConfigError, StreamsError
from streams.core.installation import pip_install
from streams.core.user_code import located, refuse_unawaited

#: The type of keys; without an annotation, a key may be any object.
L = TypeVar("L", default=object)
A = TypeVar("A", default=object)

#: Parameters of a query: values by position or by name.
Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any]


class DatabaseConnection(Protocol):
    """A DBAPI connection (PEP 249)."""

    def cursor(self) -> Any:
        """Return a cursor."""
        ...

    def rollback(self) -> Any:
        """End the transaction."""
        ...

    def close(self) -> Any:
        """Called after a query that failed."""
        ...


class SqlLookUp(Generic[L, A]):
    """Looks a key up with a query that returns at most one row; the answer is None if there is no row.

    ``source`` is an SQLAlchemy engine, or a function that opens a DBAPI connection (PEP 249) and is called once in each
    thread.  ``parameters(key)`` returns the query parameters; the default is ``(key,)`` for a DBAPI connection and
    ``{"key": key}`` for an engine, whose queries have named parameters.  ``row`` is called with the columns of the row
    as positional arguments, and returns the answer.

    Each query is a separate transaction.  If a query fails, its connection is closed, and the next call opens a new
    one.

    Raises:
        ConfigError: SQLAlchemy is not installed, ``source`` is neither a function nor an engine, or a function is
            async.

    >>> import sqlite3
    >>> def opened() -> sqlite3.Connection:
    ...     database = sqlite3.connect(":memory:")
    ...     database.execute("create table cities (id, name)")
    ...     database.execute("insert into cities values (?, ?)", ("ann", "Oslo"))
    ...     database.commit()
    ...     return database
    >>> city_of = SqlLookUp("select name from cities where id = ?", opened, row=str)
    >>> city_of("ann"), city_of("bob")
    ('Oslo', None)
    """

    def __init__(
        self,
        query: str,
        source: Callable[[], DatabaseConnection] | Any,
        *,
        row: Callable[..., A],
        parameters: Callable[[L], Parameters] | None = None,
    ) -> None:
        self._recipe = partial(type(self), query, source, row=row, parameters=parameters)
        self._query = query
        self._row = row
        self._source: Any = source
        self._is_engine = not callable(source)
        self._parameters = parameters or (_named if self._is_engine else _positional)
        self._local = threading.local()
        self._text: Any = _sqlalchemy().text(query) if self._is_engine else None
        is_connection = hasattr(source, "cursor") and not isinstance(source, type)
        if is_connection or hasattr(source, "sync_engine") or (self._is_engine and not hasattr(source, "connect")):
            raise ConfigError(
                f"{self!r}: the source must be a function that opens a DBAPI connection, or an SQLAlchemy engine that "
                f"is not async, but is {source!r:.100}"
            )
        opened = None if self._is_engine else source
        for function, name in ((opened, "source"), (row, "row="), (parameters, "parameters=")):
            refuse_unawaited(function, f"{name} of {self!r}", error=ConfigError)

    def __repr__(self) -> str:
        return f"SqlLookUp({self._query!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._recipe, ()

    def __call__(self, key: L) -> A | None:
        """Return the answer for a key, or None if the query returns no row.

        Raises:
            StreamsError: the query returned more than one row.
            ConfigError: the source function returned no connection.
        """
        parameters = self._parameters(key)
        rows = self._of_engine(parameters) if self._is_engine else self._of_connection(parameters)
        if len(rows) > 1:
            raise StreamsError(f"{self!r} returned more than one row for {key!r:.60}: make it unique, or add a limit")
        return self._row(*rows[0]) if rows else None

    def _of_engine(self, parameters: Parameters) -> Sequence[Any]:
        with self._source.connect() as connection:
            rows: Sequence[Any] = connection.execute(self._text, parameters).fetchmany(2)
            return rows

    def _of_connection(self, parameters: Parameters) -> Sequence[Any]:
        connection: DatabaseConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._source()
            if not hasattr(connection, "cursor"):
                raise ConfigError(
                    f"{self!r}: {located(self._source)} must return a DBAPI connection, but returned {connection!r:.60}"
                )
            self._local.connection = connection
        try:
            cursor = connection.cursor()
            try:
                cursor.execute(self._query, parameters)
                rows: Sequence[Any] = cursor.fetchmany(2)
            finally:
                cursor.close()
            # Without it the next query could read from the snapshot of this transaction.
            connection.rollback()
        except BaseException:
            self._local.connection = None
            connection.close()
            raise
        return rows


def _positional(key: Any) -> Parameters:
    return (key,)


def _named(key: Any) -> Parameters:
    return {"key": key}


def _sqlalchemy() -> Any:
    try:
        import sqlalchemy
    except ImportError as error:
        raise ConfigError(f"a look-up through an engine needs SQLAlchemy ({error}): {pip_install('sql')}") from None
    return sqlalchemy
