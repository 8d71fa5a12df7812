"""Migrations: functions that convert the values of a store from one version of their type to another.

A user declares them with ``migrate``; a store applies them to entries that an earlier version of the topology has
written.  Imports only other modules of ``core``.
"""

from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from itertools import pairwise
from typing import Any, Final, get_type_hints

from attrs import field, frozen

from streams.core.errors import StoreError, TopologyError
from streams.core.serdes.serdes import Serde, serde_for
from streams.core.user_code import refuse_unawaited

#: Header of changelog records with the version of their value; version 1 has none.
VERSION_HEADER: Final = "__streams_value_version"
FIRST_VERSION: Final = 1


@frozen
class Migration:
    """Converts values of a store from one version to the next; created by ``migrate``, and may be called like it."""

    store: str
    from_version: int
    to_version: int
    function: Callable[[Any], Any]
    #: How the function gets a value: by the type of its parameter, else as plain JSON.
    reads: Serde[Any] = field(repr=False)
    #: How the next migration gets the result.
    writes: Serde[Any] = field(repr=False)

    def __call__(self, value: Any) -> Any:
        """Return the converted value."""
        return self.function(value)

    @property
    def shown(self) -> str:
        """The name of the function and the versions, for messages."""
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"migration {name!r} from version {self.from_version} to {self.to_version}"


def migrate(store: str, from_version: int, to_version: int) -> Callable[[Callable[[Any], Any]], Migration]:
    """Return a decorator for a function that converts the values of a store; pass the result to ``builder.migrate``.

    Values have version 1 at first.  The function gets a value that version ``from_version`` of the topology has
    written, as the type of its parameter: a class, such as the former one, or plain JSON (a ``dict``) by default,
    or ``bytes``.  It returns the value of ``to_version``, or None, which deletes the entry.

    >>> @migrate("totals", 1, 2)
    ... def with_currency(old):
    ...     return {**old, "currency": "EUR"}
    >>> with_currency({"amount": 5})
    {'amount': 5, 'currency': 'EUR'}

    Raises:
        TopologyError: the versions do not ascend from 1, or the function is not one of a value.
    """
    if not FIRST_VERSION <= from_version < to_version:
        raise TopologyError(
            f"migration of store {store!r}: versions must ascend from 1, not from {from_version} to {to_version}"
        )

    def decorate(function: Callable[[Any], Any]) -> Migration:
        refuse_unawaited(function, f"migration of store {store!r}")
        hints = get_type_hints(function)
        first = next(iter(signature(function).parameters), "")
        if not first:
            raise TopologyError(f"migration of store {store!r}: the function takes no value; give it one parameter")
        reads = serde_for(hints.get(first, Any))
        writes = serde_for(hints.get("return", Any))
        return Migration(store, from_version, to_version, function, reads, writes)

    return decorate


def chained(migrations: Iterable[Migration]) -> tuple[Migration, ...]:
    """Return the migrations of one store in the order of their versions.

    Raises:
        TopologyError: they do not lead from each version to the last one.
    """
    chain = sorted(migrations, key=lambda item: (item.from_version, item.to_version))
    for one, two in pairwise(chain):
        if one.to_version != two.from_version:
            raise TopologyError(
                f"store {one.store!r}: {two.shown} does not follow {one.shown}: migrations must lead from each version "
                "to the next one that is declared, without a branch"
            )
    return tuple(chain)


def version_of(migrations: Sequence[Migration]) -> int:
    """Return the version that migrations lead to."""
    return migrations[-1].to_version if migrations else FIRST_VERSION


def converted(migrations: Sequence[Migration], data: bytes, version: int, serde: Serde[Any]) -> bytes | None:
    """Return the value of the last version, serialized with ``serde``, for a value of an earlier version.

    Raises:
        StoreError: the version is unknown, or a function fails.
    """
    topology_version = version_of(migrations)
    steps = [step for step in migrations if step.from_version >= version]
    if version > topology_version or not steps or steps[0].from_version != version:
        shown = ", ".join(step.shown for step in migrations)
        raise StoreError(
            f"a value has version {version}, but the topology has version {topology_version}"
            + (f" ({shown})" if shown else "")
            + "; restore the migrations, or the version of the topology that wrote it"
        )
    value: Any = None
    migrated: bytes | None = data
    for step in steps:
        try:
            value = step.function(step.reads.deserialize(migrated))
            if value is None:
                return None
            migrated = serde.serialize(value) if step is steps[-1] else step.writes.serialize(value)
        except Exception as error:
            raise StoreError(f"{step.shown} failed: {type(error).__name__}: {error}") from error
    return migrated
