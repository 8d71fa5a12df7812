"""The option ``since``: a lower bound of event times, which the source of a table evaluates as a filter."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from dis import get_instructions
from typing import Any

from attrs import frozen

from streams.core.errors import InputError
from streams.core.event_time.time_texts import time_ms, time_text
from streams.core.topic import Topic

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@frozen
class Since:
    """Selects the rows with event times from ``time_ms`` on; ``path`` names the column and fields of the time."""

    topic: str
    time_ms: int
    path: tuple[str, ...]

    @classmethod
    def of(cls, topic: Topic[Any, Any], time_ms: int) -> "Since":
        """Return the condition for the rows of a topic.

        Raises:
            InputError: the event time is computed by a function that does more than return a field.
        """
        path: tuple[str, ...] | None = ("timestamp",) if topic.timestamp is None else _traced(topic.timestamp)
        if path is None:
            raise InputError(
                f"since: the event time of topic {topic.name!r} is computed (timestamp=), so that no source can select "
                "rows by it; declare a field, as timestamp=lambda value: value.at, or select the rows yourself: "
                "sql:SELECT ... WHERE"
            )
        return cls(topic.name, time_ms, path)

    @property
    def time(self) -> datetime:
        """The lowest selected event time."""
        return _EPOCH + timedelta(milliseconds=self.time_ms)

    @property
    def text(self) -> str:
        """The condition in SQL for a column with a time zone."""
        return f"{'.'.join(self.path)} >= '{time_text(self.time_ms)}'"

    def refused(self, table: str, kind: object) -> InputError:
        """Return the error to raise if the column of the event time has another type, or does not exist."""
        name = ".".join(self.path)
        return InputError(
            f"{table} as input of topic {self.topic!r}: since needs a column {name!r} with timestamps, dates or epoch "
            f"milliseconds, but it {'does not exist' if kind is None else f'is {kind}'}; cast it in a query, or select "
            "the rows yourself: sql:SELECT ... WHERE"
        )

    def selected(self, batch: Any, table: str) -> Any:
        """Return the rows of an Arrow batch that the condition selects.

        Raises:
            InputError: the column has another type, or does not exist.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.path[0] not in batch.schema.names:
            raise self.refused(table, None)
        column = batch.column(self.path[0])
        for name in self.path[1:]:
            if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
                raise self.refused(table, None)
            column = pc.struct_field(column, name)
        kind = column.type
        if pa.types.is_timestamp(kind):
            least = pa.scalar(self.time.replace(tzinfo=None), pa.timestamp("us"))
            column = column.cast(pa.timestamp(kind.unit))
        elif pa.types.is_integer(kind):
            least = pa.scalar(self.time_ms)
        elif pa.types.is_date(kind):
            least = pa.scalar(self.time.replace(tzinfo=None), pa.timestamp("us"))
            column = column.cast(pa.timestamp("us"))
        else:
            raise self.refused(table, kind)
        return batch.filter(pc.greater_equal(column, least))


def check_span(since_ms: int, until: Any) -> None:
    """Check that ``until``, if it is a time, is after the beginning.

    Raises:
        InputError: it is not, so that no row would be read.
    """
    if until is not None and not isinstance(until, Mapping) and time_ms(until, "until") <= since_ms:
        raise InputError(
            f"since {time_text(since_ms)} is not before until {time_text(time_ms(until, 'until'))}: no row is between "
            "them; give a later until"
        )


class _Probe:
    """A placeholder for a value, which records the path of the attributes that a function reads."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path

    def __getattr__(self, name: str) -> "_Probe":
        return _Probe((*self.path, name))

    def __getitem__(self, name: Any) -> "_Probe":
        return _Probe((*self.path, str(name)))

    def __bool__(self) -> bool:
        raise TypeError("a field is no condition")


def _traced(function: Any) -> tuple[str, ...] | None:
    """Return the path of the field that a function returns, or None if it does anything else.

    >>> _traced(lambda order: order.meta.at), _traced(lambda order: order.at + 1)
    (('meta', 'at'), None)
    >>> _traced(lambda order: order.at if order.at is not None else order.due)
    """
    # A function that branches may return another field for other rows; one that calls others may branch there.
    code = getattr(function, "__code__", None)
    if code is not None and any("JUMP" in step.opname or "CALL" in step.opname for step in get_instructions(code)):
        return None
    try:
        result = function(_Probe(()))
    except Exception:  # noqa: BLE001 - whatever it needs, it is more than a field
        return None
    return result.path if isinstance(result, _Probe) and result.path else None
