"""The rows of files as the sources of files read them: kinds of files, bad rows, and rows as blocks of a topic.

Of the other packages, this module imports only ``core`` and ``files``.
"""

import logging
from typing import Any, Final

from attrs import evolve, frozen

from streams.connect.protocol import Position, SourceBlock
from streams.core.dead_letters import ROW_HEADER
from streams.core.errors import ConfigError
from streams.core.topic import Topic
from streams.files import (
    WHOLE,
    FileInput,
    FileSource,
    FormatOption,
    Location,
    OnBadRow,
    Part,
    Records,
    as_list,
    open_input,
)

log = logging.getLogger(__name__)

#: Partitions of a topic are the worker's: a row may name any.
_ANY_PARTITION: Final = (1 << 31) - 1
_ADVICE: Final = "correct the row, or leave such rows out with bad_rows='continue'"


def location_of(source: str, path: str, file_format: FormatOption) -> Location:
    """Return the location of the files of a source, by their format or else their suffixes.

    Raises:
        ConfigError: there is no such format, or an option is invalid.
    """
    try:
        return Location(path, file_format)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def check_settings(source: str, interval_ms: int, **reactions: str) -> None:
    """Check the pause of a source, and the settings that say what to do about something bad.

    Raises:
        ConfigError: the pause is less than 1 ms, or a reaction is neither "fail" nor "continue".
    """
    check_pause(source, "interval_ms", interval_ms)
    for name, reaction in reactions.items():
        if reaction not in ("fail", "continue"):
            raise ConfigError(f"{source}: {name} is 'fail' or 'continue', not {reaction!r}")


def check_pause(source: str, name: str, pause_ms: int, *, least_ms: int = 1) -> None:
    """Check a setting of a source in milliseconds.

    Raises:
        ConfigError: it is less than ``least_ms``.
    """
    if pause_ms < least_ms:
        raise ConfigError(f"{source}: {name} is at least {least_ms}, not {pause_ms}")


@frozen
class FileRows:
    """Converts rows of files to blocks of a topic; ``bad_rows`` is "fail", or "continue" to leave them out."""

    topic: Topic[Any, Any]
    bad_rows: OnBadRow

    def reader(self, source: FileSource) -> FileInput:
        """Return the reader of a file.

        Raises:
            InputError: the file cannot be read, or its kind is not known.
        """
        return open_input(self.topic, source, on_bad_row=self.bad_rows, advice=_ADVICE)

    def read_lines(
        self, reader: FileInput, lines: list[bytes], first_line: int, partition: str, position: Position
    ) -> list[SourceBlock[Any, Any]]:
        """Return consecutive lines of a file as blocks, all of them with the position after the lines.

        Raises:
            InputError: a row is bad.
        """
        source = evolve(reader.source, lines=[lines])
        some = evolve(reader, source=source, part=Part(first_line=first_line))
        blocks = [self.block(records, partition, position) for records in some.records(_ANY_PARTITION)]
        return blocks or [SourceBlock(partition, position, [], [])]

    def batches(self, reader: FileInput, skip_rows: int) -> Any:
        """Yield the rows after the first ``skip_rows`` as ``Records``.

        Raises:
            InputError: a row is bad, or the file cannot be read further.
        """
        return evolve(reader, part=WHOLE).records(_ANY_PARTITION, skip_rows)

    def block(self, records: Records, partition: str, position: Position) -> SourceBlock[Any, Any]:
        """Return rows as a block, without bad ones, which are logged and counted."""
        keys = as_list(records.keys)
        values = as_list(records.values)
        times = records.timestamps
        headers = records.headers if any(records.headers or ()) else None
        bad = {index for index, row in enumerate(headers or ()) if any(name == ROW_HEADER for name, _ in row)}
        if not bad:
            return SourceBlock(partition, position, keys, values, times, headers, is_serialized=True)
        assert headers is not None, "bad rows have a header"
        for index in sorted(bad):
            message = next(value for name, value in headers[index] if name == ROW_HEADER)
            log.warning("%s; the row is left out", (message or b"").decode())
        good = [index for index in range(len(keys)) if index not in bad]
        return SourceBlock(
            partition,
            position,
            [keys[index] for index in good],
            [values[index] for index in good],
            [times[index] for index in good],
            [headers[index] for index in good],
            is_serialized=True,
            skipped=len(bad),
        )
