"""Errors of the registry's HTTP API, each with its status and its error code.

The codes are those of Confluent's Schema Registry: the first three digits are the status.
"""

from streams.core.errors import StreamsError


class RegistryError(StreamsError):
    """The registry rejects a request: ``code`` is the error code, such as 40401; ``status`` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """The HTTP status: a code of three digits, or the first three of five."""
        return self.code if self.code < 1_000 else self.code // 100


SUBJECT_NOT_FOUND = 40401
VERSION_NOT_FOUND = 40402
SCHEMA_NOT_FOUND = 40403
SUBJECT_SOFT_DELETED = 40404
SUBJECT_NOT_SOFT_DELETED = 40405
VERSION_SOFT_DELETED = 40406
VERSION_NOT_SOFT_DELETED = 40407
NO_SUBJECT_COMPATIBILITY = 40408
NO_SUBJECT_MODE = 40409
INCOMPATIBLE = 409
INVALID_SCHEMA = 42201
INVALID_VERSION = 42202
INVALID_COMPATIBILITY = 42203
INVALID_MODE = 42204
NOT_PERMITTED = 42205
REFERENCED = 42206
INVALID_SUBJECT = 42208


def no_subject(subject: str) -> RegistryError:
    """Return the error for a subject that does not exist."""
    return RegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def no_version(version: object) -> RegistryError:
    """Return the error for a version that does not exist."""
    return RegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")


def no_schema() -> RegistryError:
    """Return the error for a schema that does not exist."""
    return RegistryError(SCHEMA_NOT_FOUND, "Schema not found")


def invalid_schema(why: object) -> RegistryError:
    """Return the error for a text that is not a schema."""
    return RegistryError(INVALID_SCHEMA, f"Invalid schema: {why}")
