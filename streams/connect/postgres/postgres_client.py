"""Access to a Postgres server by psycopg, as sources and sinks share it: the driver, connections, and errors.

Of the other packages, this module imports only ``core``; psycopg is imported on use.
"""

from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from streams.core.errors import ConfigError
from streams.core.installation import pip_install

if TYPE_CHECKING:
    from psycopg import Connection

#: SQL states of transient errors: connections, locks and resources.
_TRANSIENT: Final = ("08", "40", "53", "55", "57")


def psycopg_for(owner: str) -> Any:
    """Return the module psycopg; ``owner`` names the connector in the error message.

    Raises:
        ConfigError: psycopg is not installed.
    """
    try:
        import psycopg
        import psycopg.sql
    except ImportError as error:
        raise ConfigError(f"{owner} needs psycopg ({error}): {pip_install('postgres')}") from None
    return psycopg


@frozen
class PostgresClient:
    """Opens connections to one server; ``owner`` names the connector in error messages."""

    psycopg: Any
    owner: str
    dsn: str

    def connect(self, connector: str, **options: Any) -> "Connection[Any]":
        """Return a new connection in autocommit mode, with the connector in its application name.

        Raises:
            ConfigError: the connection string cannot be parsed, or the server does not let the user in.
        """
        try:
            connection: Connection[Any] = self.psycopg.connect(
                self.dsn, autocommit=True, application_name=f"streams {connector}", **options
            )
        except self.psycopg.ProgrammingError as error:  # The connection string cannot be parsed.
            raise ConfigError(f"{self.owner}: {server_message(error)}") from None
        except self.psycopg.OperationalError as error:
            if "authentication failed" in str(error) or "does not exist" in str(error):
                raise ConfigError(f"{self.owner}: {server_message(error)}") from None
            raise
        return connection

    def is_retriable(self, error: Exception) -> bool:
        """Whether an error concerns the connection, a lock, or the server's resources."""
        if not isinstance(error, self.psycopg.OperationalError | self.psycopg.InterfaceError):
            return False
        return error.sqlstate is None or error.sqlstate.startswith(_TRANSIENT)


def server_message(error: Exception) -> str:
    """Return the server's error message in one line."""
    return "; ".join(line.strip() for line in str(error).strip().splitlines())
